-- The interrupt: a person stops the turn that runs on an issue, so that what is saved for its agent is delivered now;
-- and the release of a saved receipt that a cancelled run names.
--
-- The marker is three columns of the wake: who asked, when, which run was to stop. Only interrupt_issue writes them.
-- Lock order: the live run, its issue, the wakes ascending.

ALTER TABLE wakeful.run ADD COLUMN teardowns smallint NOT NULL DEFAULT 0;
ALTER TABLE wakeful.wake ADD CONSTRAINT wake_marker_check CHECK (
    (interrupt_by IS NULL) = (interrupt_at IS NULL) AND (interrupted_run IS NULL OR interrupt_at IS NOT NULL));

-- ── no payload can claim an interrupt ───────────────────────────────────────────────────────────────────

-- Whatever door it came through: the keys are taken out, the caller is warned, and the journal says so.
CREATE FUNCTION wakeful.strip_marker() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE found text[];
BEGIN
    SELECT array_agg(k) INTO found FROM unnest(TG_ARGV) AS k WHERE NEW.payload ? k;
    NEW.payload := NEW.payload - found;
    INSERT INTO wakeful.audit (company, actor, authenticated, verb, target, before)
    VALUES (NEW.company, NEW.actor_kind || ':' || NEW.actor, 'database login ' || session_user, 'strip', 'wake:' || NEW.id,
            jsonb_build_object('payload keys', found));
    RAISE WARNING USING MESSAGE = format('the payload of wake %s claims an interrupt; taken out of it: %s', NEW.id,
        array_to_string(found, ', ')), HINT = 'only a person''s command interrupts: wakeful interrupt ISSUE';
    RETURN NEW;
END $$;

CREATE TRIGGER wake_marker BEFORE INSERT OR UPDATE OF payload ON wakeful.wake FOR EACH ROW
    WHEN (jsonb_typeof(NEW.payload) = 'object' AND NEW.payload ?| ARRAY['interrupt', 'interrupt_by', 'interrupt_at',
        'interrupted_run', 'queued_comment_interrupt', 'queuedCommentInterrupt'])
    EXECUTE FUNCTION wakeful.strip_marker('interrupt', 'interrupt_by', 'interrupt_at', 'interrupted_run',
        'queued_comment_interrupt', 'queuedCommentInterrupt');

-- ── what a run's cancellation releases ──────────────────────────────────────────────────────────────────

-- Part of settle_runs: the saved receipt that a cancelled run names is due at once, without grace, and its owner is told.
-- A run that never started hands over the messages that it was to deliver: its end must lose none. A card's answer, which
-- is never merged with messages, is saved once more. So does one that met its provider's limit when it was asked to stop:
-- what it was given counts as undelivered, and it does not go on by itself.
CREATE FUNCTION wakeful.release_named_wakes(company text, runs uuid[]) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE c CONSTANT text := release_named_wakes.company; r record;
BEGIN
    FOR r IN
        INSERT INTO wakeful.wake AS w (company, id, kind, priority, agent, issue, project, source, actor_kind, actor, payload, due_at,
                                       effect_root, rearm_of, estimate, card, card_status)
        SELECT c, wakeful.uuid7(), o.kind, o.priority, o.agent, o.issue, o.project, o.source, o.actor_kind, o.actor, o.payload,
               wakeful.now(), o.effect_root, o.id, o.estimate, o.card, o.card_status
        FROM wakeful.run u JOIN wakeful.wake o ON o.company = c AND o.id = u.wake AND o.kind = 'card'
        WHERE u.company = c AND u.id = ANY (runs) AND u.named_wake IS NOT NULL
          AND (u.state = 'cancelled' AND u.started_at IS NULL OR u.end_class = 'provider_limited' AND u.stop_at IS NOT NULL)
        ON CONFLICT DO NOTHING
        RETURNING w.id, w.owner, w.due_at
    LOOP
        PERFORM wakeful.notify_wake(c, r.id, r.owner, r.due_at);
    END LOOP;
    PERFORM FROM wakeful.wake w
    WHERE w.company = c AND w.state = 'deferred' AND w.id IN (
        SELECT u.named_wake FROM wakeful.run u WHERE u.company = c AND u.id = ANY (runs)
          AND (u.state = 'cancelled' OR u.end_class = 'provider_limited'))
    ORDER BY w.id FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    FOR r IN
        UPDATE wakeful.wake w
        SET due_at = wakeful.now(), version = w.version + 1,
            comments = CASE WHEN (u.started_at IS NULL OR u.end_class = 'provider_limited')
                                 AND (u.agent, u.issue) = (w.agent, w.issue) AND w.comments <> '{}'
                            THEN ARRAY(SELECT x.id FROM unnest(u.comments) WITH ORDINALITY AS x (id, place)
                                       JOIN wakeful.comment m ON m.company = c AND m.id = x.id
                                       WHERE m.deleted_at IS NULL AND x.id <> ALL (w.comments)
                                         AND NOT wakeful.delivered(c, u.issue, x.id) ORDER BY x.place) || w.comments
                            ELSE w.comments END
        FROM wakeful.run u
        WHERE u.company = c AND u.id = ANY (runs) AND (u.state = 'cancelled' OR u.end_class = 'provider_limited')
          AND w.company = c AND w.id = u.named_wake AND w.state = 'deferred'
        RETURNING w.id, w.owner, w.due_at
    LOOP
        PERFORM wakeful.notify_wake(c, r.id, r.owner, r.due_at);
    END LOOP;
END $$;

-- ── the command ─────────────────────────────────────────────────────────────────────────────────────────

-- In whose name a saved queue would be delivered: the author of its last message by a person that is still to be
-- delivered, else the receipt's own actor. NULL where nothing is left to deliver.
CREATE FUNCTION wakeful.queue_authority(company text, wake uuid) RETURNS text LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
SELECT coalesce((array_agg(m.author_kind || ':' || m.author ORDER BY u.place DESC) FILTER (WHERE m.author_kind = 'user'))[1],
                min(w.actor_kind || ':' || w.actor))
FROM wakeful.wake w
CROSS JOIN LATERAL wakeful.each_delivered(w.company, w.issue, w.comments) AS u
JOIN wakeful.comment m ON m.company = w.company AND m.id = u.id
WHERE w.company = $1 AND w.id = $2 AND m.deleted_at IS NULL AND (m.author_kind, m.author) <> ('agent', w.agent::text)
  AND NOT u.delivered
HAVING count(*) > 0
$$;

-- Locks the run that works on an issue, then the issue, and returns the run. Where another run works there by the time
-- the issue is held, the issue is let go again: nobody may wait for a run while holding its issue.
CREATE FUNCTION wakeful.lock_working_run(company text, issue text) RETURNS wakeful.run LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE working wakeful.run;
BEGIN
    LOOP
        working := NULL;
        SELECT * INTO working FROM wakeful.run u
        WHERE u.company = lock_working_run.company AND u.id = wakeful.working_run(lock_working_run.company, lock_working_run.issue)
          AND u.ended_at IS NULL FOR NO KEY UPDATE;
        BEGIN
            PERFORM FROM wakeful.issue i
            WHERE i.company = lock_working_run.company AND i.id = lock_working_run.issue FOR NO KEY UPDATE;
            IF wakeful.working_run(lock_working_run.company, lock_working_run.issue) IS NOT DISTINCT FROM working.id THEN
                RETURN working;
            END IF;
            RAISE EXCEPTION USING ERRCODE = 'WK001', MESSAGE = 'another run works on the issue by now';
        EXCEPTION WHEN SQLSTATE 'WK001' THEN
            NULL;  -- the issue's lock has gone with this block
        END;
    END LOOP;
END $$;

-- Asks the run that lives on an issue to stop, so that what is saved for an agent there is delivered next. The receipt
-- keeps who asked, when, and which run; it is looked at once after a grace, and as soon as that run has ended. Without
-- a live run there is nothing to stop, and it is due now. Each command may ask a run that is stopping once more, up to
-- three times in all; nothing else asks again.
CREATE FUNCTION wakeful.interrupt_issue(
    company text, issue text, agent text DEFAULT NULL, reason text DEFAULT NULL, actor text DEFAULT NULL)
RETURNS wakeful.receipt LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    former text := wakeful.enter_company(company);
    c CONSTANT text := interrupt_issue.company;
    who CONSTANT text := coalesce(actor, 'system:' || session_user);
    whose text := interrupt_issue.agent;
    moment CONSTANT timestamptz := wakeful.wall();
    live wakeful.run;
    place wakeful.issue;
    held wakeful.wake;
    authority text;
    stopped wakeful.receipt;
    asks boolean;
    fresh boolean;
    result wakeful.receipt;
BEGIN
    PERFORM wakeful.check_words(interrupt_issue.reason, 'a reason');
    PERFORM wakeful.parse_actor(actor);
    IF who NOT LIKE 'user:%' THEN
        PERFORM wakeful.refuse('WK409', format('only a person may interrupt, and %s is none', who), 'say who you are: --as user:ID');
    END IF;
    live := wakeful.lock_working_run(c, interrupt_issue.issue);
    SELECT * INTO place FROM wakeful.issue i WHERE i.company = c AND i.id = interrupt_issue.issue;
    IF place.id IS NULL THEN
        PERFORM wakeful.refuse('WK404', format('issue %L does not exist in company %L', interrupt_issue.issue, c),
            'list them: wakeful issue list');
    END IF;
    IF whose IS NULL AND place.assignee_kind = 'agent' THEN
        whose := place.assignee;
    END IF;
    IF whose IS NULL THEN
        PERFORM wakeful.refuse('WK422', format('issue %L is assigned to no agent', place.id), 'say whose messages: --agent ID');
    END IF;
    PERFORM wakeful.require_agent(c, whose);

    PERFORM FROM wakeful.wake w
    WHERE w.company = c AND w.issue = place.id AND w.agent = whose AND w.state = 'deferred' AND w.comments <> '{}'
    ORDER BY w.id FOR NO KEY UPDATE;
    SELECT w.id, a.name INTO held.id, authority
    FROM wakeful.wake w CROSS JOIN LATERAL (SELECT wakeful.queue_authority(w.company, w.id) AS name) AS a
    WHERE w.company = c AND w.issue = place.id AND w.agent = whose AND w.state = 'deferred' AND w.comments <> '{}'
      AND a.name IS NOT NULL
    ORDER BY a.name = who DESC, w.id LIMIT 1;
    IF held.id IS NULL THEN
        PERFORM wakeful.refuse('WK409', format('nothing is saved to deliver to agent %L on issue %L', whose, place.id),
            CASE WHEN live.id IS NOT NULL THEN format('to stop its run: wakeful run stop %s', live.id) END);
    ELSIF authority <> who THEN
        PERFORM wakeful.refuse('WK409', format('what is saved for agent %L on issue %L is in the name of %s; %s may not interrupt for it',
            whose, place.id, authority, who));
    END IF;
    SELECT * INTO held FROM wakeful.wake w WHERE w.company = c AND w.id = held.id;

    fresh := held.interrupt_by IS DISTINCT FROM who;
    asks := live.id IS NOT NULL AND (live.state <> 'stopping' OR live.teardowns < 3);
    IF fresh OR live.id IS NOT NULL AND live.id IS DISTINCT FROM held.interrupted_run THEN
        UPDATE wakeful.wake w
        SET interrupt_by = who, interrupt_at = CASE WHEN fresh THEN moment ELSE w.interrupt_at END,
            interrupted_run = coalesce(live.id, w.interrupted_run), version = w.version + 1,
            grace_from = CASE WHEN fresh AND live.id IS NOT NULL THEN moment ELSE w.grace_from END,
            due_at = CASE WHEN NOT fresh THEN w.due_at WHEN live.id IS NULL THEN wakeful.now() ELSE moment + interval '30 seconds' END
        WHERE w.company = c AND w.id = held.id;
        -- What nobody has looked at yet waits for this very run: that is its one reason, and its one grace.
        UPDATE wakeful.wake w
        SET wait_gate = 'execution', wait_key = place.id, wait_reason = 'execution.live_run', wait_since = moment,
            wait_message = format('issue %s has a live run (%s)', place.id, live.id), opens_on = 'the end of that run'
        WHERE w.company = c AND w.id = held.id AND w.wait_reason IS NULL AND live.id IS NOT NULL;
        PERFORM wakeful.notify_wake(c, w.id, w.owner, w.due_at) FROM wakeful.wake w
        WHERE w.company = c AND w.id = held.id AND w.due_at IS NOT NULL;
    END IF;
    IF asks THEN
        -- A run releases one receipt by its cancellation; a second one behind it is told by the gate.
        UPDATE wakeful.run u
        SET teardowns = u.teardowns + 1, named_wake = CASE WHEN EXISTS (
            SELECT FROM wakeful.wake x WHERE x.company = c AND x.id = u.named_wake AND x.state = 'deferred')
            THEN u.named_wake ELSE held.id END
        WHERE u.company = c AND u.id = live.id;
        stopped := wakeful.stop_run(c, live.id, coalesce(interrupt_issue.reason, 'interrupted'), who);
        IF stopped.outcome = 'existing' THEN
            PERFORM wakeful.notify_run(c, live.id, live.host);
        END IF;
    END IF;
    result := ('existing', held.id, 'deferred', live.id)::wakeful.receipt;
    IF fresh OR asks THEN
        result.outcome := 'merged';
        PERFORM wakeful.record_audit(c, who, 'interrupt', 'issue:' || place.id, NULL, jsonb_build_object('wake', held.id,
            'agent', whose, 'run', live.id, 'asked', CASE WHEN asks THEN live.teardowns + 1 END, 'reason', interrupt_issue.reason));
    END IF;
    PERFORM wakeful.leave_company(former);
    RETURN result;
END $$;

SELECT wakeful.close_functions();
SELECT wakeful.open_producers();
GRANT EXECUTE ON FUNCTION wakeful.release_named_wakes(text, uuid[]) TO wakeful_scheduler;
GRANT EXECUTE ON FUNCTION wakeful.queue_authority(text, uuid) TO wakeful_scheduler, wakeful_viewer;
