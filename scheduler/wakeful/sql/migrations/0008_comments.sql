-- Saved comments and card answers: saved for a run, changed while they wait, taken back.
--
-- Same rules as 0003. Lock order, as everywhere: the queued run that carries them, their issue, the comment or card, the
-- receipts ascending, then what settle_runs locks. Under the issue's lock a run's end can neither be missed nor overtaken,
-- so what is saved behind a live run is saved parked, in silence: the end of that run signals.
--
-- One receipt of kind saved_comments waits per (agent, issue, actor); the ids of new comments join it. It takes at most
-- 100 comments and 1 MiB of words: the next comment begins another receipt, with a run of its own after this one's.

CREATE INDEX issue_taken ON wakeful.issue (company, execution_run) WHERE execution_run IS NOT NULL;

-- ── what waits, and behind what ─────────────────────────────────────────────────────────────────────────

-- The run that works on an issue: its own live run, or one that took it besides its own.
CREATE FUNCTION wakeful.working_run(company text, issue text) RETURNS uuid LANGUAGE sql STABLE
AS $$
(SELECT r.id FROM wakeful.run r
 WHERE r.company = $1 AND r.issue = $2 AND r.wave_slot IS NULL
   AND r.state IN ('queued', 'starting', 'running', 'suspended', 'stopping') LIMIT 1)
UNION ALL
(SELECT r.id FROM wakeful.issue i JOIN wakeful.run r ON r.company = i.company AND r.id = i.execution_run
 WHERE i.company = $1 AND i.id = $2 AND r.state IN ('queued', 'starting', 'running', 'suspended', 'stopping') LIMIT 1)
LIMIT 1
$$;

-- Whether a receipt that carries these comments takes another one, or one that was edited to `words` bytes.
CREATE FUNCTION wakeful.has_room(company text, comments text[], words bigint) RETURNS boolean LANGUAGE sql STABLE
AS $$
SELECT cardinality($2) < 100 AND 1048576 >= $3 + coalesce((
    SELECT sum(octet_length(c.body)) FROM wakeful.comment c WHERE c.company = $1 AND c.id = ANY ($2)), 0)
$$;

-- A deferred receipt really changed: its version, and, where it waits, one new grace. Behind a live run it goes on
-- waiting in silence. The caller holds the issue.
CREATE FUNCTION wakeful.restart_grace(company text, wake uuid) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE c CONSTANT text := restart_grace.company; fresh wakeful.wake;
BEGIN
    UPDATE wakeful.wake w
    SET version = w.version + 1,
        grace_from = CASE WHEN w.wait_reason IS NULL THEN w.grace_from ELSE wakeful.wall() END,
        due_at = CASE WHEN w.wait_reason IS NULL THEN w.due_at
                      WHEN w.wait_gate = 'execution' AND wakeful.working_run(c, w.issue) IS NOT NULL THEN NULL
                      ELSE least(wakeful.wall() + interval '30 seconds', w.reopens_at) END
    WHERE w.company = c AND w.id = restart_grace.wake AND w.state = 'deferred'
    RETURNING * INTO fresh;
    IF fresh.due_at IS NOT NULL THEN
        PERFORM wakeful.notify_wake(c, fresh.id, fresh.owner, fresh.due_at);
    END IF;
END $$;

-- Saves a receipt of an issue whose lock the caller holds: due at once, or parked behind the live run. Returns it.
CREATE FUNCTION wakeful.save_receipt(
    company text, kind text, agent text, issue text, source text, actor_kind text, actor text,
    comments text[], card text, card_status text)
RETURNS uuid LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    c CONSTANT text := save_receipt.company;
    fresh CONSTANT uuid := wakeful.uuid7();
    busy CONSTANT uuid := wakeful.working_run(company, issue);
    since CONSTANT timestamptz := CASE WHEN busy IS NOT NULL THEN wakeful.wall() END;
    owner text;
BEGIN
    INSERT INTO wakeful.wake AS w (company, id, kind, agent, issue, project, source, actor_kind, actor, comments, card, card_status,
                              effect_root, due_at, wait_gate, wait_key, wait_reason, wait_message, wait_since, grace_from, opens_on)
    SELECT c, fresh, save_receipt.kind, save_receipt.agent, i.id, i.project, save_receipt.source, save_receipt.actor_kind,
           save_receipt.actor, save_receipt.comments, save_receipt.card, save_receipt.card_status, fresh,
           CASE WHEN busy IS NULL THEN wakeful.now() END,
           CASE WHEN busy IS NOT NULL THEN 'execution' END, CASE WHEN busy IS NOT NULL THEN i.id END,
           CASE WHEN busy IS NOT NULL THEN 'execution.live_run' END,
           CASE WHEN busy IS NOT NULL THEN format('issue %s has a live run (%s)', i.id, busy) END, since, since,
           CASE WHEN busy IS NOT NULL THEN 'the end of that run' END
    FROM wakeful.issue i WHERE i.company = c AND i.id = save_receipt.issue
    RETURNING w.owner INTO owner;
    IF busy IS NULL THEN
        PERFORM wakeful.notify_wake(c, fresh, owner, wakeful.now());
    END IF;
    RETURN fresh;
END $$;

-- Puts a comment into the queue of an agent: it joins the receipt that waits, or begins one. The caller holds the issue.
CREATE FUNCTION wakeful.queue_comment(company text, issue text, comment text, agent text, source text, actor_kind text, actor text)
RETURNS wakeful.receipt LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    c CONSTANT text := queue_comment.company;
    held wakeful.wake;
    words bigint;
BEGIN
    SELECT * INTO held FROM wakeful.wake w
    WHERE w.company = c AND w.issue = queue_comment.issue AND w.state = 'deferred' AND w.kind = 'saved_comments'
      AND w.agent = queue_comment.agent AND w.actor_kind = queue_comment.actor_kind AND w.actor = queue_comment.actor
    ORDER BY w.id DESC LIMIT 1 FOR NO KEY UPDATE;
    SELECT octet_length(m.body) INTO words FROM wakeful.comment m WHERE m.company = c AND m.id = queue_comment.comment;
    IF held.id IS NOT NULL AND wakeful.has_room(c, held.comments, words) THEN
        UPDATE wakeful.wake w SET comments = w.comments || queue_comment.comment WHERE w.company = c AND w.id = held.id;
        PERFORM wakeful.restart_grace(c, held.id);
        RETURN ('merged', held.id, 'deferred', NULL)::wakeful.receipt;
    END IF;
    RETURN ('inserted', wakeful.save_receipt(c, 'saved_comments', queue_comment.agent, queue_comment.issue, queue_comment.source,
        queue_comment.actor_kind, queue_comment.actor, ARRAY[queue_comment.comment], NULL, NULL), 'deferred', NULL)::wakeful.receipt;
END $$;

-- The receipt that carries a comment, or the one whose run was given it; without either only that it is saved.
CREATE FUNCTION wakeful.comment_receipt(company text, comment text) RETURNS wakeful.receipt LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    c CONSTANT text := comment_receipt.company;
    held wakeful.comment;
    result wakeful.receipt;
BEGIN
    SELECT * INTO held FROM wakeful.comment m WHERE m.company = c AND m.id = comment_receipt.comment;
    SELECT 'existing', w.id, w.state, w.run INTO result FROM wakeful.wake w
    WHERE w.company = c AND w.issue = held.issue AND w.state = 'deferred' AND held.id = ANY (w.comments) ORDER BY w.id LIMIT 1;
    IF result.wake IS NULL THEN
        SELECT 'existing', r.wake, coalesce(w.state, r.state), r.id INTO result
        FROM wakeful.run r LEFT JOIN wakeful.wake w ON w.company = r.company AND w.id = r.wake
        WHERE r.company = c AND r.issue = held.issue AND r.comments <> '{}' AND held.id = ANY (r.comments)
        ORDER BY r.id DESC LIMIT 1;
    END IF;
    IF result.run IS NULL AND result.wake IS NULL THEN
        result := ('existing', NULL, CASE WHEN held.deleted_at IS NULL THEN 'saved' ELSE 'deleted' END, NULL)::wakeful.receipt;
    END IF;
    RETURN result;
END $$;

-- ── saving ──────────────────────────────────────────────────────────────────────────────────────────────

CREATE FUNCTION wakeful.check_body(body text) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF (octet_length(body) BETWEEN 1 AND 65536) IS NOT TRUE THEN
        PERFORM wakeful.refuse('WK422', format('the comment has %s bytes; 1 to 65536 bytes (64 KiB) are allowed',
            coalesce(octet_length(body), 0)));
    END IF;
END $$;

-- Saves a comment and wakes the agent for it: the one named, else the issue's assignee. An agent's own words wake it not.
-- Where no agent has the issue, the comment is saved, and whoever is assigned the issue is woken for it.
-- A known id, or key, changes nothing.
CREATE FUNCTION wakeful.save_comment(
    company text, issue text, body text, author text, id text DEFAULT NULL, agent text DEFAULT NULL, run uuid DEFAULT NULL,
    key text DEFAULT NULL, actor text DEFAULT NULL)
RETURNS wakeful.receipt LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    former text := wakeful.enter_company(company);
    c CONSTANT text := save_comment.company;
    fresh CONSTANT text := coalesce(save_comment.id, wakeful.uuid7()::text);
    who CONSTANT record := wakeful.parse_actor(coalesce(save_comment.actor, save_comment.author));
    wrote CONSTANT record := wakeful.parse_actor(save_comment.author);
    writer text;
    target text := save_comment.agent;
    held wakeful.issue;
    known wakeful.comment;
    result wakeful.receipt;
BEGIN
    IF save_comment.author IS NULL THEN
        PERFORM wakeful.refuse('WK422', 'a comment has an author: user:ID, agent:ID or system:ID');
    ELSIF length(fresh) NOT BETWEEN 1 AND 200 OR length(save_comment.key) NOT BETWEEN 1 AND 200 THEN
        PERFORM wakeful.refuse('WK422', 'the id of a comment, and its key, have 1 to 200 characters');
    END IF;
    PERFORM wakeful.check_body(save_comment.body);
    PERFORM wakeful.ensure_company(c);
    IF target IS NOT NULL THEN
        PERFORM wakeful.require_agent(c, target);
    END IF;
    IF save_comment.run IS NOT NULL THEN
        SELECT r.agent INTO writer FROM wakeful.run r WHERE r.company = c AND r.id = save_comment.run;
        IF NOT FOUND THEN
            PERFORM wakeful.refuse('WK404', format('run %s does not exist in company %L', save_comment.run, c));
        END IF;
    END IF;
    PERFORM wakeful.ensure_issue(c, save_comment.issue, target);
    SELECT * INTO held FROM wakeful.issue i WHERE i.company = c AND i.id = save_comment.issue FOR NO KEY UPDATE;
    IF target IS NULL AND held.assignee_kind = 'agent' THEN
        target := held.assignee;
    END IF;
    INSERT INTO wakeful.comment (company, id, issue, author_kind, author, body, run, key, awaits_assignee)
    VALUES (c, fresh, held.id, wrote.kind, wrote.id, save_comment.body, save_comment.run, save_comment.key, target IS NULL)
    ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        SELECT * INTO known FROM wakeful.comment m
        WHERE m.company = c AND (m.id = save_comment.id OR m.key = save_comment.key)
        ORDER BY m.key IS NOT DISTINCT FROM save_comment.key DESC LIMIT 1;
        IF known.issue <> held.id THEN
            PERFORM wakeful.refuse('WK409', format('comment %L is on issue %L', known.id, known.issue));
        END IF;
        result := wakeful.comment_receipt(c, known.id);
        PERFORM wakeful.leave_company(former);
        RETURN result;
    END IF;
    IF target IS NULL OR writer = target OR (wrote.kind = 'agent' AND wrote.id = target) THEN
        result := ('inserted', NULL, 'saved', NULL)::wakeful.receipt;
    ELSE
        result := wakeful.queue_comment(c, held.id, fresh, target,
            CASE wrote.kind WHEN 'user' THEN 'on_demand' ELSE 'automation' END, who.kind, who.id);
    END IF;
    PERFORM wakeful.record_audit(c, coalesce(save_comment.actor, save_comment.author), 'comment', 'issue:' || held.id, NULL,
        jsonb_build_object('comment', fresh, 'wake', result.wake));
    PERFORM wakeful.leave_company(former);
    RETURN result;
END $$;

SELECT wakeful.close_functions();
SELECT wakeful.open_producers();
GRANT EXECUTE ON FUNCTION wakeful.working_run(text, text) TO wakeful_scheduler, wakeful_viewer;
