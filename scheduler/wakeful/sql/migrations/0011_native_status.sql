-- Native status: one transaction that decides an issue's status, changes it, and saves whom that must wake.
--
-- What it saves are intents: wakes of kind native_status, system's own, which a dispatcher turns into runs
-- (docs/architecture.md). Their state is queued, not deferred.

CREATE TABLE wakeful.status_decision (
    company wakeful.id NOT NULL REFERENCES wakeful.company,
    id uuid NOT NULL DEFAULT wakeful.uuid7(),
    issue wakeful.id NOT NULL,
    status text NOT NULL,
    former text NOT NULL,
    -- the issue's status_version that it led to
    version integer NOT NULL,
    key wakeful.id,
    review wakeful.id,
    reason text,
    actor text NOT NULL,
    at timestamptz NOT NULL DEFAULT wakeful.now(),
    PRIMARY KEY (company, id),
    FOREIGN KEY (company, issue) REFERENCES wakeful.issue,
    CHECK (octet_length(reason) <= 65536)
);
CREATE UNIQUE INDEX status_decision_key ON wakeful.status_decision (company, key) WHERE key IS NOT NULL;
CREATE INDEX status_decision_of_issue ON wakeful.status_decision (company, issue, version);
CREATE TRIGGER status_decision_journal BEFORE UPDATE OR DELETE ON wakeful.status_decision FOR EACH ROW
    EXECUTE FUNCTION wakeful.refuse_change_but_erasure('%s is a journal', 'reason');

-- What a decision led to.
CREATE INDEX wake_of_decision ON wakeful.wake (company, decision, id) WHERE decision IS NOT NULL;
-- One live intent tells a parent of a child, a dependent of a blocker: once it has settled, the next may come.
CREATE UNIQUE INDEX wake_intent_key ON wakeful.wake (company, key)
    WHERE kind = 'native_status' AND state IN ('queued', 'claimed', 'error');

SELECT wakeful.guard('status_decision');

-- Who reviews an issue: 'agent:ID', 'user:ID', or NULL for nobody. Wakes nobody: a change of status does.
CREATE FUNCTION wakeful.assign_review(company text, issue text, reviewer text, actor text DEFAULT NULL)
RETURNS wakeful.receipt LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE former text := wakeful.enter_company(company); result wakeful.receipt; held wakeful.issue; who record;
BEGIN
    PERFORM wakeful.parse_actor(actor);
    IF assign_review.reviewer IS NOT NULL THEN
        who := wakeful.parse_actor(assign_review.reviewer);
        IF who.kind = 'system' THEN
            PERFORM wakeful.refuse('WK422', format('reviewer %L is not agent:ID or user:ID', assign_review.reviewer));
        ELSIF who.kind = 'agent' THEN
            PERFORM wakeful.require_agent(assign_review.company, who.id);
        END IF;
    END IF;
    PERFORM wakeful.ensure_company(assign_review.company);
    PERFORM wakeful.ensure_issue(assign_review.company, assign_review.issue);
    SELECT * INTO held FROM wakeful.issue i
    WHERE i.company = assign_review.company AND i.id = assign_review.issue FOR NO KEY UPDATE;
    result.state := held.status;
    IF assign_review.reviewer IS NOT DISTINCT FROM held.reviewer THEN
        result.outcome := 'existing';
    ELSE
        UPDATE wakeful.issue i SET reviewer = assign_review.reviewer WHERE i.company = held.company AND i.id = held.id;
        PERFORM wakeful.record_audit(held.company, actor, 'review', 'issue:' || held.id,
            jsonb_build_object('reviewer', held.reviewer), jsonb_build_object('reviewer', assign_review.reviewer));
        result.outcome := 'merged';
    END IF;
    PERFORM wakeful.leave_company(former);
    RETURN result;
END $$;

-- Locks an issue with all that its end may wake: its parent and the issues that wait for it, ascending. Whoever becomes
-- one of them while this waits for a lock is locked too: in a second round, from the start, so that the order holds.
CREATE FUNCTION wakeful.lock_neighbours(company text, issue text) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE c CONSTANT text := lock_neighbours.company; wanted text[];
BEGIN
    LOOP
        SELECT array_agg(n.id) INTO wanted FROM (
            SELECT lock_neighbours.issue AS id
            UNION SELECT i.parent FROM wakeful.issue i WHERE i.company = c AND i.id = lock_neighbours.issue AND i.parent IS NOT NULL
            UNION SELECT b.issue FROM wakeful.issue_block b WHERE b.company = c AND b.blocker = lock_neighbours.issue) AS n;
        BEGIN
            PERFORM FROM wakeful.issue i WHERE i.company = c AND i.id = ANY (wanted) ORDER BY i.id FOR NO KEY UPDATE;
            IF NOT EXISTS (SELECT FROM wakeful.issue_block b
                           WHERE b.company = c AND b.blocker = lock_neighbours.issue AND b.issue <> ALL (wanted)) THEN
                RETURN;
            END IF;
            RAISE EXCEPTION USING ERRCODE = 'WK000', MESSAGE = 'one more waits for it';
        EXCEPTION WHEN SQLSTATE 'WK000' THEN
            NULL;  -- the locks of this round are given back
        END;
    END LOOP;
END $$;

-- Saves one intent, unless a live one says the same already. Returns it, or NULL.
CREATE FUNCTION wakeful.save_intent(
    company text, agent text, issue text, review text, decision uuid, key text, payload jsonb)
RETURNS uuid LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE fresh CONSTANT uuid := wakeful.uuid7();
BEGIN
    INSERT INTO wakeful.wake (company, id, kind, state, agent, issue, project, source, actor_kind, actor, payload, key, due_at,
                              effect_root, review, decision)
    SELECT i.company, fresh, 'native_status', 'queued', save_intent.agent, i.id, i.project, 'automation', 'system',
           'native-status-committer', save_intent.payload, save_intent.key, wakeful.now(), fresh, save_intent.review,
           save_intent.decision
    FROM wakeful.issue i WHERE i.company = save_intent.company AND i.id = save_intent.issue
    ON CONFLICT (company, key) WHERE kind = 'native_status' AND state IN ('queued', 'claimed', 'error') DO NOTHING;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    PERFORM wakeful.notify_wake(save_intent.company, fresh, 'native_status', wakeful.now());
    RETURN fresh;
END $$;

-- The status committer. Changes an issue's status, compared with the version that the decision was made on, and saves
-- the decision and whom it wakes: the reviewer of an issue in review; the assignee of one that calls for action, unless
-- that agent decided it itself; of an ended issue the parent's agent, and the agents whose last blocker it was.
-- `agent` is woken in place of the reviewer (and becomes it) or the assignee. Locks: issues ascending.
CREATE FUNCTION wakeful.commit_status(
    company text, issue text, status text, expected_version integer DEFAULT NULL, key text DEFAULT NULL,
    review text DEFAULT NULL, agent text DEFAULT NULL, reason text DEFAULT NULL, actor text DEFAULT NULL)
RETURNS wakeful.receipt LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    former text := wakeful.enter_company(company);
    c CONSTANT text := commit_status.company;
    who record := wakeful.parse_actor(actor);
    fresh CONSTANT uuid := wakeful.uuid7();
    held wakeful.issue;
    told jsonb;
    target text := commit_status.agent;
    saved uuid;
    was_over boolean;
    r record;
    result wakeful.receipt;
BEGIN
    IF commit_status.status IS NULL OR commit_status.status NOT IN
       ('backlog', 'todo', 'in_progress', 'in_review', 'blocked', 'done', 'cancelled') THEN
        PERFORM wakeful.refuse('WK422', format('%L is no issue status', commit_status.status),
            'one of: backlog, todo, in_progress, in_review, blocked, done, cancelled');
    ELSIF length(commit_status.key) NOT BETWEEN 1 AND 200 OR length(commit_status.review) NOT BETWEEN 1 AND 200 THEN
        PERFORM wakeful.refuse('WK422', 'a key and the id of a review have 1 to 200 characters each');
    END IF;
    PERFORM wakeful.check_words(commit_status.reason, 'a reason');
    PERFORM wakeful.ensure_company(c);
    IF target IS NOT NULL THEN
        PERFORM wakeful.require_agent(c, target);
    END IF;
    PERFORM wakeful.ensure_issue(c, commit_status.issue);
    PERFORM wakeful.lock_neighbours(c, commit_status.issue);
    SELECT * INTO held FROM wakeful.issue i WHERE i.company = c AND i.id = commit_status.issue;
    result.state := held.status;
    result.outcome := 'existing';
    -- The key answers first: whoever delivers a decision twice knows only the version that it was made on.
    IF NOT EXISTS (SELECT FROM wakeful.status_decision d WHERE d.company = c AND d.key = commit_status.key) THEN
        IF commit_status.expected_version <> held.status_version THEN
            PERFORM wakeful.refuse('WK409', format('the status of issue %L is at version %s, not %s', held.id, held.status_version,
                commit_status.expected_version), 'somebody else was first: decide again from fresh facts');
        ELSIF held.status <> commit_status.status THEN
            INSERT INTO wakeful.status_decision (company, id, issue, status, former, version, key, review, reason, actor)
            VALUES (c, fresh, held.id, commit_status.status, held.status, held.status_version + 1, commit_status.key,
                    commit_status.review, commit_status.reason, who.kind || ':' || who.id)
            ON CONFLICT DO NOTHING;
            IF FOUND THEN
                result.outcome := 'merged';
            END IF;
        END IF;
    END IF;
    IF result.outcome = 'existing' THEN
        SELECT w.id INTO result.wake FROM wakeful.status_decision d
        JOIN wakeful.wake w ON w.company = d.company AND w.decision = d.id
        WHERE d.company = c AND d.key = commit_status.key ORDER BY w.id LIMIT 1;
        PERFORM wakeful.leave_company(former);
        RETURN result;
    END IF;

    was_over := held.status IN ('done', 'cancelled') AND NOT wakeful.only_held(c, held.id);
    PERFORM wakeful.set_issue_status(c, held.id, commit_status.status, actor);
    result.state := commit_status.status;
    told := jsonb_build_object('issue', held.id, 'status', commit_status.status, 'former', held.status,
                               'version', held.status_version + 1, 'decision', fresh);
    IF commit_status.status = 'in_review' THEN
        IF target IS NOT NULL AND held.reviewer IS DISTINCT FROM 'agent:' || target THEN
            PERFORM wakeful.assign_review(c, held.id, 'agent:' || target, commit_status.actor);
        ELSIF target IS NULL AND held.reviewer LIKE 'agent:%' THEN
            target := substr(held.reviewer, 7);
        END IF;
    ELSIF target IS NULL AND commit_status.status IN ('todo', 'in_progress') AND held.assignee_kind = 'agent'
          AND (who.kind, who.id) IS DISTINCT FROM ('agent', held.assignee) THEN
        target := held.assignee;
    END IF;
    IF target IS NOT NULL THEN
        result.wake := wakeful.save_intent(c, target, held.id,
            CASE WHEN commit_status.status = 'in_review' THEN coalesce(commit_status.review, held.id) END, fresh, NULL,
            told || jsonb_build_object('reason', CASE commit_status.status WHEN 'in_review' THEN 'review' ELSE 'status' END));
    END IF;
    IF commit_status.status IN ('done', 'cancelled') AND NOT was_over THEN
        FOR r IN
            SELECT n.id, n.assignee AS agent, n.why, json_build_array(n.why, n.id, held.id)::text AS key
            FROM (SELECT i.id, i.assignee, i.assignee_kind, i.status, 'child_ended' AS why FROM wakeful.issue i
                  WHERE i.company = c AND i.id = held.parent
                  UNION ALL
                  SELECT i.id, i.assignee, i.assignee_kind, i.status, 'unblocked' FROM wakeful.issue_block b
                  JOIN wakeful.issue i ON i.company = c AND i.id = b.issue
                  WHERE b.company = c AND b.blocker = held.id AND commit_status.status = 'done'
                    AND wakeful.open_blocker(c, b.issue) IS NULL) AS n
            WHERE n.assignee_kind = 'agent' AND (n.status NOT IN ('done', 'cancelled') OR wakeful.only_held(c, n.id))
            ORDER BY n.id, n.why
        LOOP
            saved := wakeful.save_intent(c, r.agent, r.id, NULL, fresh, r.key, told || jsonb_build_object('reason', r.why));
            result.wake := coalesce(result.wake, saved);
        END LOOP;
    END IF;
    PERFORM wakeful.leave_company(former);
    RETURN result;
END $$;

SELECT wakeful.close_functions();
SELECT wakeful.open_producers();
