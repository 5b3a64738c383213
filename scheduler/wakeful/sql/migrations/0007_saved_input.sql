-- What people and agents save for a run: comments, cards and their answers, chat actions; and how a judge reads them.
--
-- The wake carries ids in its own order; these rows carry the words. A comment is delivered when a run that was given
-- it has started. That is derived from the runs, so nothing has to be taken back when a run meets a provider's limit; it
-- is written down only when such a run expires.

CREATE TABLE wakeful.comment (
    company wakeful.id NOT NULL REFERENCES wakeful.company,
    id wakeful.id NOT NULL,
    issue wakeful.id NOT NULL,
    author_kind text NOT NULL CHECK (author_kind IN ('user', 'agent', 'system')),
    author text NOT NULL,
    body text NOT NULL,
    run uuid,
    key wakeful.id,
    revision integer NOT NULL DEFAULT 1,
    -- saved while no agent had the issue: whoever gets it is woken for it
    awaits_assignee boolean NOT NULL DEFAULT false,
    -- a run that is no longer kept was given it; as long as it is kept, the run itself says so
    was_delivered boolean NOT NULL DEFAULT false,
    created_at timestamptz NOT NULL DEFAULT wakeful.now(),
    edited_at timestamptz,
    deleted_at timestamptz,
    PRIMARY KEY (company, id),
    FOREIGN KEY (company, issue) REFERENCES wakeful.issue,
    CONSTRAINT comment_body_check CHECK (octet_length(body) <= 65536)
);
CREATE INDEX comment_on_issue ON wakeful.comment (company, issue, created_at, id);
CREATE UNIQUE INDEX comment_key ON wakeful.comment (company, key) WHERE key IS NOT NULL;
CREATE INDEX comment_awaits_assignee ON wakeful.comment (company, issue) WHERE awaits_assignee;

CREATE TABLE wakeful.card (
    company wakeful.id NOT NULL REFERENCES wakeful.company,
    id wakeful.id NOT NULL,
    issue wakeful.id NOT NULL,
    agent wakeful.id NOT NULL,
    run uuid,
    kind text NOT NULL DEFAULT 'question',
    question jsonb NOT NULL,
    status text NOT NULL DEFAULT 'pending'
        CHECK (status IN ('pending', 'answered', 'accepted', 'rejected', 'withdrawn', 'superseded')),
    answer jsonb,
    answered_by text,
    created_at timestamptz NOT NULL DEFAULT wakeful.now(),
    ended_at timestamptz,
    PRIMARY KEY (company, id),
    FOREIGN KEY (company, issue) REFERENCES wakeful.issue,
    FOREIGN KEY (company, agent) REFERENCES wakeful.agent,
    CHECK ((status = 'pending') = (ended_at IS NULL)),
    CHECK (octet_length(question::text) <= 65536 AND octet_length(answer::text) <= 65536)
);
CREATE INDEX card_on_issue ON wakeful.card (company, issue, created_at, id);

-- The id of a chat action is the id of its wake.
CREATE TABLE wakeful.chat_action (
    company wakeful.id NOT NULL REFERENCES wakeful.company,
    id uuid NOT NULL,
    kind text NOT NULL DEFAULT 'failed_run_retry' CHECK (kind IN ('failed_run_retry')),
    issue wakeful.id,
    agent wakeful.id NOT NULL,
    source_run uuid,
    actor text NOT NULL,
    state text NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'processing', 'processed', 'failed')),
    run uuid,
    error text,
    created_at timestamptz NOT NULL DEFAULT wakeful.now(),
    settled_at timestamptz,
    settled_by text,
    PRIMARY KEY (company, id),
    FOREIGN KEY (company, issue) REFERENCES wakeful.issue,
    FOREIGN KEY (company, agent) REFERENCES wakeful.agent,
    CHECK ((settled_at IS NULL) = (state IN ('pending', 'processing')))
);

SELECT wakeful.guard('comment', 'card', 'chat_action');

-- Whether a started run was given a comment. A run that met its provider's limit hands it on undelivered.
CREATE FUNCTION wakeful.delivered(company text, issue text, comment text) RETURNS boolean LANGUAGE sql STABLE
AS $$
SELECT EXISTS (SELECT FROM wakeful.run r
               WHERE r.company = $1 AND r.issue = $2 AND r.comments <> '{}' AND $3 = ANY (r.comments)
                 AND r.started_at IS NOT NULL AND r.end_class IS DISTINCT FROM 'provider_limited')
    OR EXISTS (SELECT FROM wakeful.comment m WHERE m.company = $1 AND m.id = $3 AND m.was_delivered)
$$;

-- These comments of an issue, each with its place and whether a started run was given it: as `delivered` says, for many at
-- once. One grouping of all that was ever given there, so that the cost of each does not grow with that.
CREATE FUNCTION wakeful.each_delivered(company text, issue text, comments text[])
RETURNS TABLE (id text, place bigint, delivered boolean) LANGUAGE sql STABLE
AS $$
SELECT x.id, min(x.place), bool_or(x.given)
FROM (SELECT u.id, u.place, false AS given FROM unnest($3) WITH ORDINALITY AS u (id, place)
      UNION ALL
      SELECT g.id, NULL, true FROM wakeful.run r CROSS JOIN LATERAL unnest(r.comments) AS g (id)
      WHERE r.company = $1 AND r.issue = $2 AND r.comments <> '{}'
        AND r.started_at IS NOT NULL AND r.end_class IS DISTINCT FROM 'provider_limited'
      UNION ALL
      SELECT m.id::text, NULL, true FROM wakeful.comment m
      WHERE m.company = $1 AND m.id = ANY ($3) AND m.was_delivered) AS x
GROUP BY x.id HAVING min(x.place) IS NOT NULL
$$;

-- The pending receipt that brings a retry's agent newer input on its issue: a card's answer, or a comment that still
-- stands, saved since the retry was asked for. What the run to be retried wrote itself is no news to it.
CREATE FUNCTION wakeful.newer_input(company text, retry uuid) RETURNS uuid LANGUAGE sql STABLE
AS $$
SELECT n.id
FROM wakeful.wake w
JOIN wakeful.wake n ON n.company = w.company AND n.issue = w.issue AND n.agent = w.agent AND n.state = 'deferred'
WHERE w.company = $1 AND w.id = $2
  AND (n.kind = 'card' AND n.id > w.id
       OR n.kind = 'saved_comments' AND EXISTS (
           SELECT FROM unnest(n.comments) AS u (id)
           JOIN wakeful.comment c ON c.company = n.company AND c.id = u.id
           WHERE c.created_at > w.created_at AND c.deleted_at IS NULL AND c.run IS DISTINCT FROM w.certified_run))
ORDER BY n.id LIMIT 1
$$;

-- Of these comments, in this order, those that are left to be given to a run.
CREATE FUNCTION wakeful.undelivered(company text, comments text[]) RETURNS text[] LANGUAGE sql STABLE
AS $$
SELECT coalesce(array_agg(c.id::text ORDER BY u.place), '{}')
FROM unnest($2) WITH ORDINALITY AS u (id, place)
JOIN wakeful.comment c ON c.company = $1 AND c.id = u.id
WHERE c.deleted_at IS NULL AND NOT wakeful.delivered($1, c.issue, c.id)
$$;

-- The chat action that a receipt stands for. One that does not bear out what the receipt is certified by is not its own.
CREATE FUNCTION wakeful.chat_action_of(company text, wake uuid) RETURNS TABLE (state text, run uuid, error text)
LANGUAGE sql STABLE
AS $$
SELECT a.state, a.run, a.error
FROM wakeful.wake w
JOIN wakeful.chat_action a ON a.company = w.company AND a.id = w.id
WHERE w.company = $1 AND w.id = $2 AND w.chat_action = a.id::text
  AND a.agent = w.agent AND a.issue IS NOT DISTINCT FROM w.issue AND a.source_run = w.certified_run
  AND a.actor = w.actor_kind || ':' || w.actor
$$;

-- What a receipt carries, as receipts.Saved: comments as [id, author kind, author, deleted, delivered, run], in order.
CREATE FUNCTION wakeful.saved_input(company text, wake uuid) RETURNS jsonb LANGUAGE sql STABLE
AS $$
SELECT jsonb_build_object(
    'comments', coalesce((
        SELECT jsonb_agg(jsonb_build_array(c.id, c.author_kind, c.author, c.deleted_at IS NOT NULL, u.delivered, c.run)
                         ORDER BY u.place)
        FROM wakeful.each_delivered(w.company, w.issue, w.comments) AS u
        JOIN wakeful.comment c ON c.company = w.company AND c.id = u.id), '[]'),
    'card', w.card, 'card_status', w.card_status,
    'card_now', k.status, 'card_by', k.answered_by,
    'last_run', (SELECT r.id FROM wakeful.run r WHERE r.company = w.company AND r.issue = w.issue AND r.ended_at IS NOT NULL
                 ORDER BY r.ended_at DESC, r.id DESC LIMIT 1),
    -- A run that only met its provider's limit goes on later.
    'assignees_run', (SELECT r.id FROM wakeful.issue i
                      JOIN wakeful.run r ON r.company = i.company AND r.issue = i.id AND r.agent = i.assignee
                      WHERE i.company = w.company AND i.id = w.issue AND i.assignee_kind = 'agent' AND i.assignee <> w.agent
                        AND r.started_at IS NOT NULL AND r.ended_at >= w.created_at
                        AND r.end_class IS DISTINCT FROM 'provider_limited'
                      ORDER BY r.ended_at DESC, r.id DESC LIMIT 1),
    'interrupt_by', w.interrupt_by, 'interrupt_at', w.interrupt_at,
    'chat_action', w.chat_action, 'chat_outcome', w.chat_outcome, 'chat_state', a.state, 'chat_run', a.run)
FROM wakeful.wake w
LEFT JOIN wakeful.card k ON k.company = w.company AND k.id = w.card
LEFT JOIN LATERAL wakeful.chat_action_of(w.company, w.id) AS a ON w.chat_action IS NOT NULL
WHERE w.company = $1 AND w.id = $2
$$;

SELECT wakeful.close_functions();
GRANT EXECUTE ON FUNCTION wakeful.saved_input(text, uuid), wakeful.delivered(text, text, text), wakeful.undelivered(text, text[]),
    wakeful.each_delivered(text, text, text[]),
    wakeful.chat_action_of(text, uuid), wakeful.newer_input(text, uuid) TO wakeful_scheduler, wakeful_viewer;
