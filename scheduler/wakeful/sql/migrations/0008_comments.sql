-- Saved comments: saved for a run, changed while they wait, taken back; and the issues that a run takes besides its own.
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
-- waiting in silence, unless that run was interrupted for it. The caller holds the issue.
CREATE FUNCTION wakeful.restart_grace(company text, wake uuid) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE c CONSTANT text := restart_grace.company; since CONSTANT timestamptz := wakeful.wall(); fresh wakeful.wake;
BEGIN
    UPDATE wakeful.wake w
    SET version = w.version + 1,
        grace_from = CASE WHEN w.wait_reason IS NULL OR w.wait_gate = 'chat' THEN w.grace_from ELSE since END,
        -- A retry that waits for its chat has no grace: an edit is no settlement, and no change of a gate.
        due_at = CASE WHEN w.wait_reason IS NULL OR w.wait_gate = 'chat' THEN w.due_at
                      WHEN w.wait_gate = 'execution' AND w.interrupt_at IS NULL AND wakeful.reads_fresh()
                           AND wakeful.working_run(c, w.issue) IS NOT NULL THEN NULL
                      ELSE least(since + interval '30 seconds', w.reopens_at) END
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
    busy CONSTANT uuid := CASE WHEN wakeful.reads_fresh() THEN wakeful.working_run(company, issue) END;
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

-- Part of assign_issue: what was saved while no agent had the issue wakes the one that gets it.
CREATE FUNCTION wakeful.hand_over(company text, issue text, agent text) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE c CONSTANT text := hand_over.company; r record;
BEGIN
    FOR r IN SELECT m.id, m.author_kind, m.author,
                    (SELECT u.agent FROM wakeful.run u WHERE u.company = c AND u.id = m.run) AS writer
             FROM wakeful.comment m WHERE m.company = c AND m.issue = hand_over.issue AND m.awaits_assignee
             ORDER BY m.created_at, m.id LOOP
        UPDATE wakeful.comment m SET awaits_assignee = false WHERE m.company = c AND m.id = r.id;
        CONTINUE WHEN r.writer = hand_over.agent OR (r.author_kind = 'agent' AND r.author = hand_over.agent);
        PERFORM wakeful.queue_comment(c, hand_over.issue, r.id, hand_over.agent,
            CASE r.author_kind WHEN 'user' THEN 'on_demand' ELSE 'automation' END, r.author_kind, r.author);
    END LOOP;
END $$;

-- What a run said in its result, on its issue and in its agent's name, once for each generation. Part of the terminal
-- transaction, under the fence and the issue's lock. The issue's assignee is woken for it, if that is another agent.
CREATE FUNCTION wakeful.post_comment(company text, run uuid, body text) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE c CONSTANT text := post_comment.company; ran wakeful.run; held wakeful.issue;
BEGIN
    SELECT * INTO ran FROM wakeful.run r WHERE r.company = c AND r.id = post_comment.run;
    SELECT * INTO held FROM wakeful.issue i WHERE i.company = c AND i.id = ran.issue;
    IF held.id IS NULL THEN
        RETURN;
    END IF;
    INSERT INTO wakeful.comment (company, id, issue, author_kind, author, body, run)
    VALUES (c, format('run:%s:%s', ran.id, ran.generation), held.id, 'agent', ran.agent, post_comment.body, ran.id)
    ON CONFLICT DO NOTHING;
    IF FOUND AND held.assignee_kind = 'agent' AND held.assignee <> ran.agent THEN
        PERFORM wakeful.queue_comment(c, held.id, format('run:%s:%s', ran.id, ran.generation), held.assignee, 'automation',
            'agent', ran.agent);
    END IF;
END $$;

-- ── changing and taking back what waits ─────────────────────────────────────────────────────────────────

-- The live run that carries a comment, or a card's answer.
CREATE FUNCTION wakeful.run_given(company text, issue text, comment text, card text) RETURNS uuid LANGUAGE sql STABLE
AS $$
SELECT r.id FROM wakeful.run r
WHERE r.company = $1 AND r.issue = $2 AND r.state IN ('queued', 'starting', 'running', 'suspended', 'stopping')
  AND ($3 = ANY (r.comments)
       OR $4 = (SELECT w.card FROM wakeful.wake w WHERE w.company = r.company AND w.id = r.wake AND w.kind = 'card'))
ORDER BY r.id LIMIT 1
$$;

-- Locks what a change of saved input touches: the queued run that carries it, then the issue. Returns that run. Once it is
-- claimed the change comes too late.
CREATE FUNCTION wakeful.lock_given(company text, issue text, comment text, card text) RETURNS uuid LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    c CONSTANT text := lock_given.company;
    early CONSTANT uuid := wakeful.run_given(company, issue, comment, card);
    what CONSTANT text := CASE WHEN lock_given.card IS NULL THEN 'comment' ELSE 'the answer of card' END;
    given uuid;
    state text;
BEGIN
    PERFORM FROM wakeful.run r WHERE r.company = c AND r.id = early FOR NO KEY UPDATE;
    PERFORM FROM wakeful.issue i WHERE i.company = c AND i.id = lock_given.issue FOR NO KEY UPDATE;
    given := wakeful.run_given(c, lock_given.issue, lock_given.comment, lock_given.card);
    IF given IS NULL THEN
        RETURN NULL;
    END IF;
    -- Nobody may wait for a run while it holds an issue. Whoever holds this one, which is new, is about to start it.
    SELECT r.state INTO state FROM wakeful.run r WHERE r.company = c AND r.id = given FOR NO KEY UPDATE SKIP LOCKED;
    IF state IS DISTINCT FROM 'queued' THEN
        PERFORM wakeful.refuse('WK409', format('%s %s is already dispatching, to run %s', what,
            coalesce(lock_given.card, lock_given.comment), given), 'write another one; it will have a run of its own');
    END IF;
    RETURN given;
END $$;

-- Refuses who may not change a comment or a queue: its author and operators may, and whoever says that he is one.
CREATE FUNCTION wakeful.check_author(what text, author text, actor text, force boolean) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE who CONSTANT record := wakeful.parse_actor(actor);
BEGIN
    IF who.kind <> 'system' AND who.kind || ':' || who.id <> author AND force IS NOT TRUE THEN
        PERFORM wakeful.refuse('WK409', format('%s is of %s; %s may not change it', what, author, actor),
            'an operator may, with --force (in SQL: force => true)');
    END IF;
END $$;

-- A comment, by its id; locked with all that carries it. `given` is the queued run that does, if any.
CREATE FUNCTION wakeful.lock_comment(company text, comment text, actor text, force boolean, OUT held wakeful.comment, OUT given uuid)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE c CONSTANT text := lock_comment.company;
BEGIN
    SELECT * INTO held FROM wakeful.comment m WHERE m.company = c AND m.id = lock_comment.comment;
    IF held.id IS NULL THEN
        PERFORM wakeful.refuse('WK404', format('comment %L does not exist in company %L', lock_comment.comment, c));
    END IF;
    PERFORM wakeful.check_author(format('comment %s', held.id), held.author_kind || ':' || held.author, actor, force);
    given := wakeful.lock_given(c, held.issue, held.id, NULL);
    SELECT * INTO held FROM wakeful.comment m WHERE m.company = c AND m.id = held.id FOR NO KEY UPDATE;
END $$;

CREATE FUNCTION wakeful.check_revision(held wakeful.comment, revision integer) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF revision IS NULL THEN
        PERFORM wakeful.refuse('WK422', 'say which revision of the comment you have seen', 'see: wakeful comment list ISSUE');
    ELSIF revision <> held.revision THEN
        PERFORM wakeful.refuse('WK409', format('comment %L is at revision %s, not %s: somebody changed it', held.id, held.revision, revision),
            'look at it again: wakeful comment list ' || held.issue);
    END IF;
END $$;

-- Edits a comment. Where it waits in a queue, what is given to the run is what it says then.
CREATE FUNCTION wakeful.edit_comment(
    company text, comment text, body text, revision integer, force boolean DEFAULT false, actor text DEFAULT NULL)
RETURNS wakeful.receipt LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    former text := wakeful.enter_company(company);
    c CONSTANT text := edit_comment.company;
    locked record;
    held wakeful.comment;
    w record;
    result wakeful.receipt;
BEGIN
    PERFORM wakeful.check_body(edit_comment.body);
    locked := wakeful.lock_comment(c, edit_comment.comment, edit_comment.actor, edit_comment.force);
    held := locked.held;
    PERFORM wakeful.check_revision(held, edit_comment.revision);
    IF held.deleted_at IS NOT NULL THEN
        PERFORM wakeful.refuse('WK409', format('comment %L is deleted', held.id));
    END IF;
    IF held.body <> edit_comment.body THEN
        FOR w IN SELECT x.id, x.comments FROM wakeful.wake x
                 WHERE x.company = c AND x.issue = held.issue AND x.state = 'deferred' AND held.id = ANY (x.comments)
                 ORDER BY x.id FOR NO KEY UPDATE LOOP
            IF NOT wakeful.has_room(c, array_remove(w.comments, held.id::text), octet_length(edit_comment.body)) THEN
                PERFORM wakeful.refuse('WK422', 'the comments of its queue would have more than 1048576 bytes (1 MiB)');
            END IF;
            PERFORM wakeful.restart_grace(c, w.id);
        END LOOP;
        UPDATE wakeful.comment m SET body = edit_comment.body, revision = m.revision + 1, edited_at = wakeful.now()
        WHERE m.company = c AND m.id = held.id;
        PERFORM wakeful.record_audit(c, edit_comment.actor, 'edit', 'comment:' || held.id,
            jsonb_build_object('revision', held.revision), jsonb_build_object('revision', held.revision + 1));
    END IF;
    result := wakeful.comment_receipt(c, held.id);
    result.outcome := CASE WHEN held.body <> edit_comment.body THEN 'merged' ELSE 'existing' END;
    PERFORM wakeful.leave_company(former);
    RETURN result;
END $$;

-- Takes a comment out of what waits. A receipt, or a queued run, that nothing else is left in is cancelled; a retry
-- stands on its own. The caller holds run and issue. Returns whether it was in anything.
CREATE FUNCTION wakeful.take_out(held wakeful.comment, given uuid, actor text) RETURNS boolean LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    c CONSTANT text := held.company;
    taken boolean := given IS NOT NULL;
    r record;
BEGIN
    FOR r IN SELECT w.id, w.kind, array_remove(w.comments, held.id::text) AS rest FROM wakeful.wake w
             WHERE w.company = c AND w.issue = held.issue AND w.state = 'deferred' AND held.id = ANY (w.comments)
             ORDER BY w.id FOR NO KEY UPDATE LOOP
        taken := true;
        IF r.kind = 'saved_comments' AND r.rest = '{}' THEN
            UPDATE wakeful.wake w SET comments = '{}', state = 'cancelled', ended_at = wakeful.now(), due_at = NULL,
                version = w.version + 1, reason = 'comments.none_live', wait_message = 'every comment of it was taken back'
            WHERE w.company = c AND w.id = r.id;
        ELSE
            UPDATE wakeful.wake w SET comments = r.rest, version = w.version + 1 WHERE w.company = c AND w.id = r.id;
        END IF;
    END LOOP;
    IF held.awaits_assignee THEN
        UPDATE wakeful.comment m SET awaits_assignee = false WHERE m.company = c AND m.id = held.id;
        taken := true;
    END IF;
    IF given IS NOT NULL THEN
        PERFORM wakeful.give(c, given, (SELECT array_remove(u.comments, held.id::text) FROM wakeful.run u WHERE u.company = c AND u.id = given));
        PERFORM FROM wakeful.run u JOIN wakeful.wake w ON w.company = c AND w.id = u.wake AND w.kind = 'saved_comments'
        WHERE u.company = c AND u.id = given AND u.comments = '{}';
        IF FOUND THEN
            PERFORM wakeful.cancel_queued(c, given, 'comments.none_live', 'every comment of it was taken back', actor);
        END IF;
    END IF;
    RETURN taken;
END $$;

-- Gives a queued run other comments. It acts in the name of the last person who wrote one of them, else of its wake's actor.
CREATE FUNCTION wakeful.give(company text, run uuid, comments text[]) RETURNS void LANGUAGE sql SET search_path = pg_catalog, pg_temp
AS $$
UPDATE wakeful.run r
SET comments = $3,
    authority = CASE WHEN w.kind <> 'saved_comments' THEN r.authority ELSE coalesce(
        (SELECT 'user:' || m.author FROM unnest($3) WITH ORDINALITY AS u (id, place)
         JOIN wakeful.comment m ON m.company = $1 AND m.id = u.id AND m.author_kind = 'user' ORDER BY u.place DESC LIMIT 1),
        w.actor_kind || ':' || w.actor) END
FROM wakeful.wake w
WHERE r.company = $1 AND r.id = $2 AND w.company = r.company AND w.id = r.wake
$$;

-- Ends a queued run whose input was taken back. The caller holds it and its issue.
CREATE FUNCTION wakeful.cancel_queued(company text, run uuid, reason text, message text, actor text) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
BEGIN
    UPDATE wakeful.run u
    SET state = 'cancelled', ended_at = wakeful.now(), end_class = 'stopped', reason = cancel_queued.reason,
        message = cancel_queued.message, evidence = 'contained',
        stop_at = wakeful.now(), stop_by = coalesce(cancel_queued.actor, 'system:' || session_user), stop_reason = cancel_queued.message,
        wait_gate = NULL, wait_key = NULL, wait_reason = NULL, wait_message = NULL, wait_since = NULL, opens_on = NULL, reopens_at = NULL
    WHERE u.company = cancel_queued.company AND u.id = cancel_queued.run;
    PERFORM wakeful.settle_runs(cancel_queued.company, ARRAY[cancel_queued.run]);
END $$;

-- Takes a comment out of its queue; it stays on the issue.
CREATE FUNCTION wakeful.discard_comment(company text, comment text, revision integer, force boolean DEFAULT false, actor text DEFAULT NULL)
RETURNS wakeful.receipt LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    former text := wakeful.enter_company(company);
    c CONSTANT text := discard_comment.company;
    locked record;
    held wakeful.comment;
    result wakeful.receipt;
BEGIN
    locked := wakeful.lock_comment(c, discard_comment.comment, discard_comment.actor, discard_comment.force);
    held := locked.held;
    PERFORM wakeful.check_revision(held, discard_comment.revision);
    result := wakeful.comment_receipt(c, held.id);
    IF wakeful.take_out(held, locked.given, discard_comment.actor) THEN
        result.outcome := 'merged';
        PERFORM wakeful.record_audit(c, discard_comment.actor, 'discard', 'comment:' || held.id,
            jsonb_build_object('wake', result.wake, 'run', result.run), NULL);
    END IF;
    result.state := wakeful.state_of(c, result.wake, result.run);
    PERFORM wakeful.leave_company(former);
    RETURN result;
END $$;

-- Deletes a comment: its words stay as a record, and no run is given them any more.
CREATE FUNCTION wakeful.delete_comment(company text, comment text, revision integer, force boolean DEFAULT false, actor text DEFAULT NULL)
RETURNS wakeful.receipt LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    former text := wakeful.enter_company(company);
    c CONSTANT text := delete_comment.company;
    locked record;
    held wakeful.comment;
    result wakeful.receipt;
BEGIN
    locked := wakeful.lock_comment(c, delete_comment.comment, delete_comment.actor, delete_comment.force);
    held := locked.held;
    result := wakeful.comment_receipt(c, held.id);
    IF held.deleted_at IS NULL THEN
        PERFORM wakeful.check_revision(held, delete_comment.revision);
        PERFORM wakeful.take_out(held, locked.given, delete_comment.actor);
        UPDATE wakeful.comment m SET deleted_at = wakeful.now(), revision = m.revision + 1 WHERE m.company = c AND m.id = held.id;
        PERFORM wakeful.record_audit(c, delete_comment.actor, 'delete', 'comment:' || held.id,
            jsonb_build_object('revision', held.revision, 'wake', result.wake, 'run', result.run), NULL);
        result.outcome := 'merged';
    END IF;
    result.state := coalesce(wakeful.state_of(c, result.wake, result.run), 'deleted');
    PERFORM wakeful.leave_company(former);
    RETURN result;
END $$;

-- The state of the run that carries saved input, else of its receipt.
CREATE FUNCTION wakeful.state_of(company text, wake uuid, run uuid) RETURNS text LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
SELECT coalesce((SELECT r.state FROM wakeful.run r WHERE r.company = $1 AND r.id = $3),
                (SELECT w.state FROM wakeful.wake w WHERE w.company = $1 AND w.id = $2))
$$;

-- What a queue is compared by: its comments in their order, and the revision of each.
CREATE FUNCTION wakeful.queue_revision(company text, comments text[]) RETURNS text LANGUAGE sql STABLE
AS $$
SELECT left(encode(sha256(convert_to(coalesce(string_agg(u.id || ' ' || c.revision, chr(10) ORDER BY u.place), ''), 'UTF8')), 'hex'), 16)
FROM unnest($2) WITH ORDINALITY AS u (id, place) JOIN wakeful.comment c ON c.company = $1 AND c.id = u.id
$$;

-- Puts the comments of a queue into another order: all of them, each once. `queue` is its receipt, `revision` its revision.
CREATE FUNCTION wakeful.reorder_comments(
    company text, queue uuid, comments text[], revision text, force boolean DEFAULT false, actor text DEFAULT NULL)
RETURNS wakeful.receipt LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    former text := wakeful.enter_company(company);
    c CONSTANT text := reorder_comments.company;
    held wakeful.wake;
    given uuid;
    now_there text[];
    result wakeful.receipt;
BEGIN
    SELECT * INTO held FROM wakeful.wake w WHERE w.company = c AND w.id = reorder_comments.queue;
    IF held.id IS NULL OR held.kind <> 'saved_comments' THEN
        PERFORM wakeful.refuse('WK404', format('there is no queue of comments %s in company %L', reorder_comments.queue, c),
            'see: wakeful comment list ISSUE --queued');
    END IF;
    PERFORM wakeful.check_author(format('queue %s', held.id), held.actor_kind || ':' || held.actor, reorder_comments.actor, reorder_comments.force);
    given := wakeful.lock_given(c, held.issue, coalesce(
        (SELECT u.comments[1] FROM wakeful.run u WHERE u.company = c AND u.wake = held.id), held.comments[1]), NULL);
    SELECT * INTO held FROM wakeful.wake w WHERE w.company = c AND w.id = held.id FOR NO KEY UPDATE;
    IF held.state = 'deferred' THEN
        now_there := held.comments;
    ELSE
        SELECT u.comments INTO now_there FROM wakeful.run u WHERE u.company = c AND u.id = given AND u.wake = held.id;
        IF now_there IS NULL THEN
            PERFORM wakeful.refuse('WK409', format('the comments of queue %s have been given away: it is %s', held.id, held.state));
        END IF;
    END IF;
    IF reorder_comments.revision IS NULL THEN
        PERFORM wakeful.refuse('WK422', 'say which revision of the queue you have seen', 'see: wakeful comment list ISSUE --queued');
    ELSIF reorder_comments.revision <> wakeful.queue_revision(c, now_there)
          OR ARRAY(SELECT unnest(now_there) ORDER BY 1) <> ARRAY(SELECT unnest(reorder_comments.comments) ORDER BY 1) THEN
        PERFORM wakeful.refuse('WK409', format('queue %s holds other comments than these, or their revision changed', held.id),
            'look at it again: wakeful comment list ' || held.issue || ' --queued');
    END IF;
    result := ('existing', held.id, coalesce(wakeful.state_of(c, held.id, given), held.state), given)::wakeful.receipt;
    IF now_there <> reorder_comments.comments THEN
        IF held.state = 'deferred' THEN
            UPDATE wakeful.wake w SET comments = reorder_comments.comments, version = w.version + 1 WHERE w.company = c AND w.id = held.id;
        ELSE
            PERFORM wakeful.give(c, given, reorder_comments.comments);
        END IF;
        PERFORM wakeful.record_audit(c, reorder_comments.actor, 'reorder', 'wake:' || held.id,
            jsonb_build_object('comments', now_there), jsonb_build_object('comments', reorder_comments.comments));
        result.outcome := 'merged';
    END IF;
    PERFORM wakeful.leave_company(former);
    RETURN result;
END $$;

-- ── further issues of a run ─────────────────────────────────────────────────────────────────────────────

-- Lets a run work on another issue besides its own: nobody else starts on it until this run ends or goes back to its
-- queue. Under the run's fence.
CREATE FUNCTION wakeful.take_issue(company text, run uuid, generation integer, issue text, actor text DEFAULT NULL)
RETURNS wakeful.receipt LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    former text := wakeful.enter_company(company);
    c CONSTANT text := take_issue.company;
    ran wakeful.run;
    held wakeful.issue;
    busy uuid;
    result wakeful.receipt;
BEGIN
    PERFORM wakeful.parse_actor(actor);
    SELECT * INTO ran FROM wakeful.run r WHERE r.company = c AND r.id = take_issue.run FOR NO KEY UPDATE;
    IF ran.id IS NULL THEN
        PERFORM wakeful.refuse('WK404', format('run %s does not exist in company %L', take_issue.run, c));
    ELSIF ran.generation IS DISTINCT FROM take_issue.generation OR ran.state NOT IN ('starting', 'running') THEN
        PERFORM wakeful.refuse('WK409', format('run %s is %s at generation %s: it may take nothing at generation %s',
            ran.id, ran.state, ran.generation, take_issue.generation));
    END IF;
    SELECT * INTO held FROM wakeful.issue i WHERE i.company = c AND i.id = take_issue.issue FOR NO KEY UPDATE;
    IF held.id IS NULL THEN
        PERFORM wakeful.refuse('WK404', format('issue %L does not exist in company %L', take_issue.issue, c),
            'create it: wakeful issue create ID');
    END IF;
    busy := wakeful.working_run(c, held.id);
    IF busy <> ran.id OR (busy IS NULL AND held.execution_run IS NOT NULL) THEN
        PERFORM wakeful.refuse('WK409', format('issue %L is worked on by run %s', held.id, coalesce(busy, held.execution_run)));
    END IF;
    result := ('existing', NULL, held.status, ran.id)::wakeful.receipt;
    IF busy IS NULL THEN
        UPDATE wakeful.issue i SET execution_run = ran.id, execution_locked_at = wakeful.wall() WHERE i.company = c AND i.id = held.id;
        PERFORM wakeful.record_audit(c, actor, 'take', 'issue:' || held.id, NULL, jsonb_build_object('run', ran.id));
        result.outcome := 'merged';
    END IF;
    PERFORM wakeful.leave_company(former);
    RETURN result;
END $$;

-- Runs that go back to their queue keep only their own issue; what they took besides is free, and says so. The caller
-- holds the runs and the issues.
CREATE FUNCTION wakeful.free_taken(company text, runs uuid[]) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE c CONSTANT text := free_taken.company; r record;
BEGIN
    FOR r IN SELECT i.id FROM wakeful.issue i JOIN wakeful.run u ON u.company = c AND u.id = i.execution_run
             WHERE i.company = c AND i.execution_run = ANY (runs) AND u.issue IS DISTINCT FROM i.id ORDER BY i.id LOOP
        UPDATE wakeful.issue i SET execution_run = NULL, execution_locked_at = NULL WHERE i.company = c AND i.id = r.id;
        PERFORM FROM wakeful.wake w WHERE w.company = c AND w.issue = r.id AND w.state IN ('deferred', 'queued', 'claimed', 'error');
        IF FOUND OR NOT wakeful.reads_fresh() THEN
            PERFORM wakeful.notify('eligibility', c, 'execution', r.id);
        END IF;
    END LOOP;
END $$;

SELECT wakeful.close_functions();
SELECT wakeful.open_producers();
GRANT EXECUTE ON FUNCTION wakeful.working_run(text, text), wakeful.queue_revision(text, text[]) TO wakeful_scheduler, wakeful_viewer;
GRANT EXECUTE ON FUNCTION wakeful.has_room(text, text[], bigint), wakeful.restart_grace(text, uuid),
    wakeful.save_receipt(text, text, text, text, text, text, text, text[], text, text),
    wakeful.queue_comment(text, text, text, text, text, text, text), wakeful.post_comment(text, uuid, text),
    wakeful.free_taken(text, uuid[]) TO wakeful_scheduler;
