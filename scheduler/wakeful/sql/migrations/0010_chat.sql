-- Task chats: a person's retry of a failed run through a chat, and how such an action settles.
--
-- The action and its wake are saved together and bear one id. The wake waits for the action's settlement; what the
-- action came to is folded into it by a settlement pass and by nothing else. Lock order: the source run (shared), the
-- wake, its action.

CREATE TRIGGER chat_action_final BEFORE UPDATE ON wakeful.chat_action FOR EACH ROW WHEN (OLD.settled_at IS NOT NULL)
    EXECUTE FUNCTION wakeful.refuse_change_but_erasure('this %s is final', 'error');
CREATE TRIGGER chat_action_step BEFORE UPDATE OF state ON wakeful.chat_action FOR EACH ROW
    WHEN (OLD.state = 'processing' AND NEW.state = 'pending')
    EXECUTE FUNCTION wakeful.refuse_change('this %s cannot take that step');
ALTER TABLE wakeful.chat_action
    ADD CHECK (run IS NULL OR state = 'processed'), ADD CHECK (error IS NULL OR state = 'failed'),
    ADD CHECK (octet_length(error) <= 65536);

-- A wait without a key could not be reached by any signal.
ALTER TABLE wakeful.wake ADD CHECK ((wait_gate IS NULL) = (wait_key IS NULL));

-- An expired wake takes its action along.
CREATE FUNCTION wakeful.delete_chat_action() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    DELETE FROM wakeful.chat_action a WHERE a.company = OLD.company AND a.id = OLD.id;
    RETURN NULL;
END $$;
CREATE TRIGGER wake_chat_action AFTER DELETE ON wakeful.wake FOR EACH ROW WHEN (OLD.chat_action IS NOT NULL)
    EXECUTE FUNCTION wakeful.delete_chat_action();

-- ── how an eligibility change reaches a retry that still waits for its action ───────────────────────────

CREATE INDEX wake_in_chat ON wakeful.wake (company, id) WHERE wait_gate = 'chat' AND state = 'deferred';

-- Whether a gate is one of those that a wake of this agent and issue has to pass. Places in a queue (concurrency, rates)
-- are no change of eligibility, and of hosts' own gates nobody knows.
CREATE FUNCTION wakeful.gate_concerns(company text, gate text, key text, agent text, issue text, project text)
RETURNS boolean LANGUAGE sql STABLE
AS $$
SELECT CASE gate_concerns.gate
    WHEN 'company' THEN true
    WHEN 'agent' THEN $3 = $4
    WHEN 'circuit' THEN $3 = $4
    WHEN 'issue' THEN $3 = $5
    WHEN 'dependency' THEN $3 = $5
    WHEN 'execution' THEN $3 = $5
    WHEN 'project' THEN $3 = coalesce((SELECT i.project FROM wakeful.issue i WHERE i.company = $1 AND i.id = $5), $6)
    WHEN 'budget' THEN $3 IN ('company', 'agent:' || $4, 'project:' || coalesce(
        (SELECT i.project FROM wakeful.issue i WHERE i.company = $1 AND i.id = $5), $6))
    WHEN 'hold' THEN $5 IN (SELECT wakeful.subtree($1, $3))
    WHEN 'recovery' THEN EXISTS (SELECT FROM wakeful.recovery_action r
                                 WHERE r.company = $1 AND r.id::text = $3 AND r.issue = $5)
    WHEN 'provider' THEN EXISTS (SELECT FROM wakeful.agent a WHERE a.company = $1 AND a.id = $4
                                 AND a.provider || '/' || coalesce(a.account, 'default') = $3)
    ELSE false END IS TRUE
$$;

-- ── producers ───────────────────────────────────────────────────────────────────────────────────────────

-- Reaches one receipt's settlement pass, and nobody else.
CREATE FUNCTION wakeful.notify_settlement(company text, wake uuid) RETURNS void LANGUAGE sql
SET search_path = pg_catalog, pg_temp
AS $$ SELECT pg_notify('wakeful', json_build_object('t', 'settlement', 'c', $1, 'w', $2)::text) $$;

-- A person asks in a chat for a retry of a failed run: the action (pending), and the retry that waits for it, certified
-- like any other. It signals nothing: nobody can act before the action settles. A second retry of one run answers
-- existing, whichever way the first was asked for.
CREATE FUNCTION wakeful.open_chat_action(
    company text, run uuid, actor text DEFAULT NULL, payload jsonb DEFAULT NULL, key text DEFAULT NULL)
RETURNS wakeful.receipt LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE former text := wakeful.enter_company(company); who record := wakeful.parse_actor(actor); result wakeful.receipt;
BEGIN
    IF who.kind <> 'user' THEN
        PERFORM wakeful.refuse('WK422', 'a retry through a chat is asked for by a person', 'name one: user:ID');
    END IF;
    result := wakeful.save_retry(company, run, payload, key, actor, true);
    PERFORM wakeful.leave_company(former);
    RETURN result;
END $$;

-- The chat has taken the action up.
CREATE FUNCTION wakeful.begin_chat_action(company text, action uuid, actor text DEFAULT NULL)
RETURNS wakeful.receipt LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE former text := wakeful.enter_company(company); result wakeful.receipt; held wakeful.chat_action;
BEGIN
    PERFORM wakeful.parse_actor(actor);
    SELECT * INTO held FROM wakeful.chat_action a
    WHERE a.company = begin_chat_action.company AND a.id = begin_chat_action.action FOR NO KEY UPDATE;
    IF held.id IS NULL THEN
        PERFORM wakeful.refuse('WK404', format('chat action %s does not exist in company %L', begin_chat_action.action, begin_chat_action.company));
    ELSIF held.settled_at IS NOT NULL THEN
        PERFORM wakeful.refuse('WK409', format('chat action %s is settled: %s', held.id, held.state));
    ELSIF held.state = 'processing' THEN
        result.outcome := 'existing';
    ELSE
        UPDATE wakeful.chat_action a SET state = 'processing' WHERE a.company = held.company AND a.id = held.id;
        PERFORM wakeful.record_audit(held.company, actor, 'begin', 'chat:' || held.id, '{"state": "pending"}', '{"state": "processing"}');
        result.outcome := 'merged';
    END IF;
    result.wake := held.id;
    result.state := 'processing';
    PERFORM wakeful.leave_company(former);
    RETURN result;
END $$;

-- What an action came to, once: processed, by a run of the chat's own or by none (then the saved retry goes on), or
-- failed. The same again answers existing; anything else is a conflict. A retry that ran meanwhile stays as it is.
CREATE FUNCTION wakeful.settle_chat_action(
    company text, action uuid, state text, run uuid DEFAULT NULL, error text DEFAULT NULL, actor text DEFAULT NULL)
RETURNS wakeful.receipt LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE former text := wakeful.enter_company(company); result wakeful.receipt; held wakeful.chat_action;
BEGIN
    PERFORM wakeful.parse_actor(actor);
    IF (settle_chat_action.state IN ('processed', 'failed')) IS NOT TRUE THEN
        PERFORM wakeful.refuse('WK422', format('%L is no outcome of a chat action', settle_chat_action.state), 'one of: processed, failed');
    ELSIF settle_chat_action.state = 'failed' AND settle_chat_action.run IS NOT NULL THEN
        PERFORM wakeful.refuse('WK422', 'a failed chat action led to no run');
    ELSIF settle_chat_action.state = 'processed' AND settle_chat_action.error IS NOT NULL THEN
        PERFORM wakeful.refuse('WK422', 'a processed chat action has no error');
    ELSIF octet_length(settle_chat_action.error) > 65536 THEN
        PERFORM wakeful.refuse('WK422', format('the error has %s bytes; the limit is 65536 bytes (64 KiB)', octet_length(settle_chat_action.error)));
    END IF;
    PERFORM FROM wakeful.wake w WHERE w.company = settle_chat_action.company AND w.id = settle_chat_action.action FOR NO KEY UPDATE;
    SELECT * INTO held FROM wakeful.chat_action a
    WHERE a.company = settle_chat_action.company AND a.id = settle_chat_action.action FOR NO KEY UPDATE;
    IF held.id IS NULL THEN
        PERFORM wakeful.refuse('WK404', format('chat action %s does not exist in company %L', settle_chat_action.action, settle_chat_action.company));
    ELSIF held.settled_at IS NOT NULL THEN
        IF (held.state, held.run) IS DISTINCT FROM (settle_chat_action.state, settle_chat_action.run) THEN
            PERFORM wakeful.refuse('WK409', format('chat action %s is settled already: %s%s', held.id, held.state, ' by run ' || held.run));
        END IF;
        result := ('existing', held.id, held.state, held.run)::wakeful.receipt;
    ELSE
        IF settle_chat_action.run IS NOT NULL AND NOT EXISTS (
                SELECT FROM wakeful.run u WHERE u.company = held.company AND u.id = settle_chat_action.run) THEN
            PERFORM wakeful.refuse('WK404', format('run %s does not exist in company %L', settle_chat_action.run, held.company));
        END IF;
        UPDATE wakeful.chat_action a
        SET state = settle_chat_action.state, run = settle_chat_action.run, error = settle_chat_action.error,
            settled_at = wakeful.now(), settled_by = coalesce(settle_chat_action.actor, 'system:' || session_user)
        WHERE a.company = held.company AND a.id = held.id;
        -- The stored deadline is what a scheduler finds that was not there to hear the signal.
        UPDATE wakeful.wake w SET due_at = wakeful.now(), version = w.version + 1
        WHERE w.company = held.company AND w.id = held.id AND w.state = 'deferred' AND w.chat_action IS NOT NULL
          AND w.chat_outcome IS NULL;
        IF FOUND THEN
            PERFORM wakeful.notify_settlement(held.company, held.id);
        END IF;
        PERFORM wakeful.record_audit(held.company, actor, 'settle', 'chat:' || held.id, jsonb_build_object('state', held.state),
            jsonb_build_object('state', settle_chat_action.state, 'run', settle_chat_action.run));
        result := ('merged', held.id, settle_chat_action.state, settle_chat_action.run)::wakeful.receipt;
    END IF;
    PERFORM wakeful.leave_company(former);
    RETURN result;
END $$;

SELECT wakeful.close_functions();
SELECT wakeful.open_producers();
GRANT EXECUTE ON FUNCTION wakeful.gate_concerns(text, text, text, text, text, text), wakeful.delete_chat_action()
    TO wakeful_scheduler;
