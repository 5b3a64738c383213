-- Cards: questions of agents that a person answers; the answer is a wake of its own.
--
-- Same rules and same lock order as 0008: the queued run that carries an answer, the issue, the card, the receipts.

-- Saves a question of an agent, to be answered by a person. It may take the place of an older one.
CREATE FUNCTION wakeful.create_card(
    company text, issue text, agent text, question jsonb, id text DEFAULT NULL, run uuid DEFAULT NULL, kind text DEFAULT 'question',
    supersedes text DEFAULT NULL, actor text DEFAULT NULL)
RETURNS wakeful.receipt LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    former text := wakeful.enter_company(company);
    c CONSTANT text := create_card.company;
    fresh CONSTANT text := coalesce(create_card.id, wakeful.uuid7()::text);
    known wakeful.card;
    result wakeful.receipt;
BEGIN
    PERFORM wakeful.parse_actor(actor);
    PERFORM wakeful.check_payload(create_card.question);
    PERFORM wakeful.ensure_company(c);
    PERFORM wakeful.require_agent(c, create_card.agent);
    IF length(fresh) NOT BETWEEN 1 AND 200 OR (length(create_card.kind) BETWEEN 1 AND 200) IS NOT TRUE THEN
        PERFORM wakeful.refuse('WK422', 'the id of a card, and its kind, have 1 to 200 characters');
    END IF;
    IF create_card.run IS NOT NULL AND NOT EXISTS (SELECT FROM wakeful.run r WHERE r.company = c AND r.id = create_card.run) THEN
        PERFORM wakeful.refuse('WK404', format('run %s does not exist in company %L', create_card.run, c));
    END IF;
    PERFORM wakeful.ensure_issue(c, create_card.issue, create_card.agent);
    PERFORM FROM wakeful.issue i WHERE i.company = c AND i.id = create_card.issue FOR NO KEY UPDATE;
    INSERT INTO wakeful.card (company, id, issue, agent, run, kind, question)
    VALUES (c, fresh, create_card.issue, create_card.agent, create_card.run, create_card.kind, create_card.question)
    ON CONFLICT DO NOTHING;
    result.outcome := CASE WHEN FOUND THEN 'inserted' ELSE 'existing' END;
    SELECT * INTO known FROM wakeful.card k WHERE k.company = c AND k.id = fresh;
    IF known.issue <> create_card.issue THEN
        PERFORM wakeful.refuse('WK409', format('card %L is on issue %L', known.id, known.issue));
    END IF;
    IF result.outcome = 'inserted' THEN
        IF create_card.supersedes IS NOT NULL THEN
            UPDATE wakeful.card k SET status = 'superseded', ended_at = wakeful.now()
            WHERE k.company = c AND k.id = create_card.supersedes AND k.issue = create_card.issue AND k.id <> fresh AND k.status = 'pending';
            IF NOT FOUND THEN
                PERFORM wakeful.refuse('WK409', format('card %L is no pending card of issue %L', create_card.supersedes, create_card.issue));
            END IF;
        END IF;
        PERFORM wakeful.record_audit(c, actor, 'ask', 'card:' || fresh, NULL,
            jsonb_build_object('issue', create_card.issue, 'agent', create_card.agent, 'supersedes', create_card.supersedes));
    END IF;
    result.state := known.status;
    PERFORM wakeful.leave_company(former);
    RETURN result;
END $$;

-- What a run asks in its result, on its issue and in its agent's name, once for each generation. Part of the terminal
-- transaction, under the fence and the issue's lock. It wakes nobody: its answer does.
CREATE FUNCTION wakeful.post_card(company text, run uuid, question jsonb, kind text) RETURNS void LANGUAGE sql
SET search_path = pg_catalog, pg_temp
AS $$
INSERT INTO wakeful.card (company, id, issue, agent, run, kind, question)
SELECT r.company, format('run:%s:%s', r.id, r.generation), r.issue, r.agent, r.id, $4, $3
FROM wakeful.run r WHERE r.company = $1 AND r.id = $2 AND r.issue IS NOT NULL
ON CONFLICT DO NOTHING
$$;

-- A card with its issue locked, by its id.
CREATE FUNCTION wakeful.lock_card(company text, card text, OUT held wakeful.card, OUT given uuid) LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
BEGIN
    SELECT * INTO held FROM wakeful.card k WHERE k.company = lock_card.company AND k.id = lock_card.card;
    IF held.id IS NULL THEN
        PERFORM wakeful.refuse('WK404', format('card %L does not exist in company %L', lock_card.card, lock_card.company),
            'list them: wakeful card list ISSUE');
    END IF;
    given := wakeful.lock_given(lock_card.company, held.issue, NULL, held.id);
    SELECT * INTO held FROM wakeful.card k WHERE k.company = held.company AND k.id = held.id FOR NO KEY UPDATE;
END $$;

CREATE FUNCTION wakeful.card_receipt(company text, card text) RETURNS wakeful.receipt LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
SELECT ('existing', w.id, coalesce(w.state, k.status), w.run)::wakeful.receipt
FROM wakeful.card k
LEFT JOIN LATERAL (SELECT * FROM wakeful.wake x
                   WHERE x.company = k.company AND x.kind = 'card' AND x.card = k.id ORDER BY x.id DESC LIMIT 1) AS w ON true
WHERE k.company = $1 AND k.id = $2
$$;

-- Answers a card: the agent that asked is woken for it, in the answerer's name, by a wake of its own. The same answer
-- again changes nothing; another one is a conflict.
CREATE FUNCTION wakeful.answer_card(
    company text, card text, answer jsonb DEFAULT NULL, status text DEFAULT 'answered', actor text DEFAULT NULL)
RETURNS wakeful.receipt LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    former text := wakeful.enter_company(company);
    c CONSTANT text := answer_card.company;
    who CONSTANT record := wakeful.parse_actor(actor);
    held wakeful.card;
    result wakeful.receipt;
BEGIN
    IF (answer_card.status IN ('answered', 'accepted', 'rejected')) IS NOT TRUE THEN
        PERFORM wakeful.refuse('WK422', format('%L is no answer to a card', answer_card.status), 'one of: answered, accepted, rejected');
    END IF;
    PERFORM wakeful.check_payload(coalesce(answer_card.answer, 'null'));
    SELECT * INTO held FROM wakeful.card k WHERE k.company = c AND k.id = answer_card.card;
    IF held.id IS NULL THEN
        PERFORM wakeful.refuse('WK404', format('card %L does not exist in company %L', answer_card.card, c),
            'list them: wakeful card list ISSUE');
    END IF;
    PERFORM FROM wakeful.issue i WHERE i.company = c AND i.id = held.issue FOR NO KEY UPDATE;
    SELECT * INTO held FROM wakeful.card k WHERE k.company = c AND k.id = held.id FOR NO KEY UPDATE;
    IF held.status = 'pending' THEN
        UPDATE wakeful.card k SET status = answer_card.status, answer = answer_card.answer, ended_at = wakeful.now(),
            answered_by = who.kind || ':' || who.id
        WHERE k.company = c AND k.id = held.id;
        result := ('inserted', wakeful.save_receipt(c, 'card', held.agent, held.issue,
            CASE who.kind WHEN 'user' THEN 'on_demand' ELSE 'automation' END, who.kind, who.id, '{}', held.id, answer_card.status),
            'deferred', NULL)::wakeful.receipt;
        PERFORM wakeful.record_audit(c, actor, 'answer', 'card:' || held.id, jsonb_build_object('status', held.status),
            jsonb_build_object('status', answer_card.status, 'wake', result.wake));
    ELSIF held.status = answer_card.status AND held.answer IS NOT DISTINCT FROM answer_card.answer THEN
        result := wakeful.card_receipt(c, held.id);
    ELSE
        PERFORM wakeful.refuse('WK409', format('card %L is %s%s', held.id, held.status, coalesce(' by ' || held.answered_by, '')));
    END IF;
    PERFORM wakeful.leave_company(former);
    RETURN result;
END $$;

-- Takes a card back. An answer that still waits for its run goes with it.
CREATE FUNCTION wakeful.withdraw_card(company text, card text, actor text DEFAULT NULL)
RETURNS wakeful.receipt LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    former text := wakeful.enter_company(company);
    c CONSTANT text := withdraw_card.company;
    locked record;
    held wakeful.card;
    w record;
    result wakeful.receipt;
BEGIN
    PERFORM wakeful.parse_actor(actor);
    locked := wakeful.lock_card(c, withdraw_card.card);
    held := locked.held;
    result := wakeful.card_receipt(c, held.id);
    IF held.status <> 'withdrawn' THEN
        IF held.status = 'superseded' OR (held.status <> 'pending' AND result.state <> 'deferred' AND locked.given IS NULL) THEN
            PERFORM wakeful.refuse('WK409', format('card %L is %s%s', held.id, held.status,
                CASE WHEN result.run IS NOT NULL THEN ', and its answer was given to run ' || result.run ELSE '' END));
        END IF;
        UPDATE wakeful.card k SET status = 'withdrawn', ended_at = wakeful.now() WHERE k.company = c AND k.id = held.id;
        FOR w IN SELECT x.id FROM wakeful.wake x WHERE x.company = c AND x.issue = held.issue AND x.state = 'deferred'
                   AND x.kind = 'card' AND x.card = held.id ORDER BY x.id FOR NO KEY UPDATE LOOP
            UPDATE wakeful.wake x SET state = 'cancelled', ended_at = wakeful.now(), due_at = NULL, version = x.version + 1,
                reason = 'card.changed', wait_message = 'the card was withdrawn'
            WHERE x.company = c AND x.id = w.id;
        END LOOP;
        IF locked.given IS NOT NULL THEN
            PERFORM wakeful.cancel_queued(c, locked.given, 'card.changed', 'the card was withdrawn', withdraw_card.actor);
        END IF;
        PERFORM wakeful.record_audit(c, actor, 'withdraw', 'card:' || held.id, jsonb_build_object('status', held.status), '{"status": "withdrawn"}');
        result := wakeful.card_receipt(c, held.id);
        result.outcome := 'merged';
    END IF;
    result.state := 'withdrawn';
    PERFORM wakeful.leave_company(former);
    RETURN result;
END $$;

SELECT wakeful.close_functions();
SELECT wakeful.open_producers();
GRANT EXECUTE ON FUNCTION wakeful.post_card(text, uuid, jsonb, text) TO wakeful_scheduler;
