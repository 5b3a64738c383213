-- Further gates and their producers: dependencies, holds, recovery, environment leases, providers, circuits,
-- company concurrency; the life of members and projects.
--
-- Same rules as 0003: validate, write, audit, signal on a real change, answer truthfully.

ALTER TABLE wakeful.company ADD COLUMN max_concurrent_runs integer CHECK (max_concurrent_runs > 0);
ALTER TABLE wakeful.run ADD COLUMN account text, ADD COLUMN survivors integer, ADD COLUMN processes integer;
CREATE INDEX run_of_account ON wakeful.run (company, account, created_at) WHERE account IS NOT NULL;
CREATE INDEX run_of_account_claimed ON wakeful.run (company, account, claimed_at) WHERE account IS NOT NULL;
CREATE INDEX run_of_agent_ended ON wakeful.run (company, agent, ended_at, id) WHERE ended_at IS NOT NULL;

-- ── records ─────────────────────────────────────────────────────────────────────────────────────────────

CREATE TABLE wakeful.issue_block (
    company wakeful.id NOT NULL REFERENCES wakeful.company,
    issue wakeful.id NOT NULL,
    blocker wakeful.id NOT NULL,
    created_at timestamptz NOT NULL DEFAULT wakeful.now(),
    PRIMARY KEY (company, issue, blocker),
    FOREIGN KEY (company, issue) REFERENCES wakeful.issue,
    FOREIGN KEY (company, blocker) REFERENCES wakeful.issue,
    CHECK (issue <> blocker)
);
CREATE INDEX issue_blocked_by ON wakeful.issue_block (company, blocker);

-- A hold covers its root issue and every descendant. A cancel hold remembers what each member's status was.
CREATE TABLE wakeful.hold (
    company wakeful.id NOT NULL REFERENCES wakeful.company,
    id uuid NOT NULL DEFAULT wakeful.uuid7(),
    root wakeful.id NOT NULL,
    mode text NOT NULL CHECK (mode IN ('pause', 'cancel')),
    state text NOT NULL DEFAULT 'active' CHECK (state IN ('active', 'released', 'restored')),
    reason text,
    created_at timestamptz NOT NULL DEFAULT wakeful.now(),
    created_by text NOT NULL,
    ended_at timestamptz,
    ended_by text,
    PRIMARY KEY (company, id),
    FOREIGN KEY (company, root) REFERENCES wakeful.issue,
    CHECK ((state = 'active') = (ended_at IS NULL))
);
CREATE UNIQUE INDEX hold_active ON wakeful.hold (company, root) WHERE state = 'active';

CREATE TABLE wakeful.hold_member (
    company wakeful.id NOT NULL,
    hold uuid NOT NULL,
    issue wakeful.id NOT NULL,
    status text NOT NULL,
    status_version integer NOT NULL,
    PRIMARY KEY (company, hold, issue),
    FOREIGN KEY (company, hold) REFERENCES wakeful.hold,
    FOREIGN KEY (company, issue) REFERENCES wakeful.issue
);
CREATE INDEX hold_member_issue ON wakeful.hold_member (company, issue);

-- A resource that a run occupies outside, which must be closed before its issue runs again.
CREATE TABLE wakeful.environment_lease (
    company wakeful.id NOT NULL REFERENCES wakeful.company,
    id wakeful.id NOT NULL,
    issue wakeful.id NOT NULL,
    run uuid,
    state text NOT NULL DEFAULT 'active' CHECK (state IN ('active', 'released', 'failed')),
    opened_at timestamptz NOT NULL DEFAULT wakeful.now(),
    closed_at timestamptz,
    PRIMARY KEY (company, id),
    FOREIGN KEY (company, issue) REFERENCES wakeful.issue,
    CHECK ((state = 'active') = (closed_at IS NULL))
);
CREATE INDEX environment_lease_open ON wakeful.environment_lease (company, issue) WHERE state = 'active';

-- id is '<provider>/<account>'. Closed until a time, or (policy ask) until a person clears it. Reopening ramps.
CREATE TABLE wakeful.provider_account (
    company wakeful.id NOT NULL REFERENCES wakeful.company,
    id wakeful.id NOT NULL,
    closed_at timestamptz,
    closed_until wakeful.moment,
    reason text,
    resuming text NOT NULL DEFAULT 'auto' CHECK (resuming IN ('auto', 'ask')),
    ramp_from timestamptz,
    starts_per_second numeric(9, 3) CHECK (starts_per_second > 0),
    PRIMARY KEY (company, id)
);

CREATE TABLE wakeful.circuit (
    company wakeful.id NOT NULL,
    agent wakeful.id NOT NULL,
    opened_at timestamptz,
    signature text,
    reset_at timestamptz,
    reset_by text,
    PRIMARY KEY (company, agent),
    FOREIGN KEY (company, agent) REFERENCES wakeful.agent
);

SELECT wakeful.guard('issue_block', 'hold', 'hold_member', 'environment_lease', 'provider_account', 'circuit');

-- ── facts shared by judge and producers ─────────────────────────────────────────────────────────────────

-- The nearest active hold on an issue or one of its ancestors. Bounded and cycle-safe.
CREATE FUNCTION wakeful.hold_over(company text, issue text, OUT root text, OUT mode text) LANGUAGE sql STABLE
AS $$
WITH RECURSIVE up AS (
    SELECT i.id, i.parent, 1 AS depth, ARRAY[i.id::text] AS path
    FROM wakeful.issue i WHERE i.company = $1 AND i.id = $2
    UNION ALL
    SELECT p.id, p.parent, up.depth + 1, up.path || p.id::text
    FROM up JOIN wakeful.issue p ON p.company = $1 AND p.id = up.parent
    WHERE up.depth < 100 AND p.id::text <> ALL (up.path)
)
SELECT h.root::text, h.mode FROM up JOIN wakeful.hold h ON h.company = $1 AND h.root = up.id AND h.state = 'active'
ORDER BY up.depth LIMIT 1
$$;

-- Whether an issue is cancelled by nothing but an active cancel hold: held, not terminal.
CREATE FUNCTION wakeful.only_held(company text, issue text) RETURNS boolean LANGUAGE sql STABLE
AS $$
SELECT EXISTS (
    SELECT FROM wakeful.hold_member m
    JOIN wakeful.hold h ON h.company = m.company AND h.id = m.hold AND h.state = 'active' AND h.mode = 'cancel'
    JOIN wakeful.issue i ON i.company = m.company AND i.id = m.issue
    WHERE m.company = $1 AND m.issue = $2 AND i.status = 'cancelled' AND i.status_version = m.status_version + 1
      AND m.status NOT IN ('done', 'cancelled'))
$$;

-- The first blocker of an issue that is not done.
CREATE FUNCTION wakeful.open_blocker(company text, issue text) RETURNS text LANGUAGE sql STABLE
AS $$
SELECT b.blocker::text FROM wakeful.issue_block b JOIN wakeful.issue x ON x.company = b.company AND x.id = b.blocker
WHERE b.company = $1 AND b.issue = $2 AND x.status <> 'done' ORDER BY b.blocker LIMIT 1
$$;

-- An issue and its descendants, nearest first. Bounded and cycle-safe.
CREATE FUNCTION wakeful.subtree(company text, issue text) RETURNS SETOF text LANGUAGE sql STABLE
AS $$
WITH RECURSIVE down AS (
    SELECT i.id::text AS id, 1 AS depth FROM wakeful.issue i WHERE i.company = $1 AND i.id = $2
    UNION
    SELECT c.id::text, down.depth + 1 FROM down JOIN wakeful.issue c ON c.company = $1 AND c.parent = down.id
    WHERE down.depth < 100
)
SELECT DISTINCT id FROM down
$$;

-- ── dependencies ────────────────────────────────────────────────────────────────────────────────────────

CREATE FUNCTION wakeful.add_dependency(company text, issue text, blocker text, actor text DEFAULT NULL)
RETURNS wakeful.receipt LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE former text := wakeful.enter_company(company); result wakeful.receipt; c CONSTANT text := add_dependency.company;
BEGIN
    PERFORM wakeful.parse_actor(actor);
    PERFORM wakeful.ensure_company(c);
    IF add_dependency.issue = add_dependency.blocker THEN
        PERFORM wakeful.refuse('WK422', 'an issue cannot depend on itself');
    END IF;
    PERFORM wakeful.ensure_issue(c, least(issue, blocker));
    PERFORM wakeful.ensure_issue(c, greatest(issue, blocker));
    PERFORM FROM wakeful.issue i WHERE i.company = c AND i.id IN (add_dependency.issue, add_dependency.blocker)
    ORDER BY i.id FOR NO KEY UPDATE;
    IF EXISTS (
        WITH RECURSIVE needs AS (
            SELECT b.blocker::text AS id, 1 AS depth FROM wakeful.issue_block b
            WHERE b.company = c AND b.issue = add_dependency.blocker
            UNION
            SELECT b.blocker::text, needs.depth + 1 FROM needs
            JOIN wakeful.issue_block b ON b.company = c AND b.issue = needs.id WHERE needs.depth < 100)
        SELECT FROM needs WHERE id = add_dependency.issue) THEN
        PERFORM wakeful.refuse('WK409', format('issue %L already waits for issue %L; both would wait for ever', blocker, issue));
    END IF;
    INSERT INTO wakeful.issue_block (company, issue, blocker) VALUES (c, issue, blocker) ON CONFLICT DO NOTHING;
    result.outcome := CASE WHEN FOUND THEN 'inserted' ELSE 'existing' END;
    IF result.outcome = 'inserted' THEN
        PERFORM wakeful.record_audit(c, actor, 'depend', 'issue:' || issue, NULL, jsonb_build_object('blocker', blocker));
    END IF;
    PERFORM wakeful.leave_company(former);
    RETURN result;
END $$;

CREATE FUNCTION wakeful.remove_dependency(company text, issue text, blocker text, actor text DEFAULT NULL)
RETURNS wakeful.receipt LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE former text := wakeful.enter_company(company); result wakeful.receipt; c CONSTANT text := remove_dependency.company; held text;
BEGIN
    PERFORM wakeful.parse_actor(actor);
    PERFORM FROM wakeful.issue i WHERE i.company = c AND i.id = remove_dependency.issue FOR NO KEY UPDATE;
    held := wakeful.open_blocker(c, issue);
    DELETE FROM wakeful.issue_block b WHERE b.company = c AND b.issue = remove_dependency.issue AND b.blocker = remove_dependency.blocker;
    result.outcome := CASE WHEN FOUND THEN 'merged' ELSE 'existing' END;
    IF result.outcome = 'merged' THEN
        PERFORM wakeful.record_audit(c, actor, 'undepend', 'issue:' || issue, jsonb_build_object('blocker', blocker), NULL);
        IF held IS NOT NULL AND wakeful.open_blocker(c, issue) IS NULL THEN
            PERFORM wakeful.notify_gate(c, 'dependency', issue);
        END IF;
    END IF;
    PERFORM wakeful.leave_company(former);
    RETURN result;
END $$;

-- The issues that wait for this one and are free of blockers now. Called under the issue's lock.
CREATE FUNCTION wakeful.notify_dependents(company text, issue text) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE r record;
BEGIN
    FOR r IN SELECT b.issue FROM wakeful.issue_block b
             WHERE b.company = notify_dependents.company AND b.blocker = notify_dependents.issue ORDER BY b.issue LOOP
        PERFORM wakeful.notify_gate(company, 'dependency', r.issue);
    END LOOP;
END $$;

-- ── holds ───────────────────────────────────────────────────────────────────────────────────────────────

-- Holds an issue and all its descendants. Runs in progress go on; nothing of the subtree is admitted or claimed.
-- A cancel hold also cancels the members, and remembers what they were.
CREATE FUNCTION wakeful.hold_issue(company text, issue text, mode text DEFAULT 'pause', reason text DEFAULT NULL, actor text DEFAULT NULL)
RETURNS wakeful.receipt LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    former text := wakeful.enter_company(company);
    result wakeful.receipt;
    c CONSTANT text := hold_issue.company;
    made uuid;
BEGIN
    PERFORM wakeful.check_words(hold_issue.reason, 'a reason');
    PERFORM wakeful.parse_actor(actor);
    IF hold_issue.mode NOT IN ('pause', 'cancel') THEN
        PERFORM wakeful.refuse('WK422', format('%L is no mode of a hold', hold_issue.mode), 'one of: pause, cancel');
    END IF;
    IF NOT EXISTS (SELECT FROM wakeful.issue i WHERE i.company = c AND i.id = hold_issue.issue) THEN
        PERFORM wakeful.refuse('WK404', format('issue %L does not exist in company %L', hold_issue.issue, c),
            'list them: wakeful issue list');
    END IF;
    PERFORM FROM wakeful.issue i WHERE i.company = c AND i.id IN (SELECT wakeful.subtree(c, hold_issue.issue))
    ORDER BY i.id FOR NO KEY UPDATE;
    INSERT INTO wakeful.hold (company, root, mode, reason, created_by)
    VALUES (c, hold_issue.issue, hold_issue.mode, hold_issue.reason, coalesce(actor, 'system:' || session_user))
    ON CONFLICT (company, root) WHERE state = 'active' DO NOTHING RETURNING id INTO made;
    result.outcome := CASE WHEN made IS NULL THEN 'existing' ELSE 'inserted' END;
    SELECT h.mode INTO result.state FROM wakeful.hold h WHERE h.company = c AND h.root = hold_issue.issue AND h.state = 'active';
    IF made IS NOT NULL THEN
        IF hold_issue.mode = 'cancel' THEN
            INSERT INTO wakeful.hold_member (company, hold, issue, status, status_version)
            SELECT c, made, i.id, i.status, i.status_version FROM wakeful.issue i
            WHERE i.company = c AND i.id IN (SELECT wakeful.subtree(c, hold_issue.issue)) AND i.status NOT IN ('done', 'cancelled');
            UPDATE wakeful.issue i SET status = 'cancelled', status_version = i.status_version + 1
            FROM wakeful.hold_member m WHERE m.company = c AND m.hold = made AND i.company = c AND i.id = m.issue;
        END IF;
        PERFORM wakeful.record_audit(c, actor, 'hold', 'issue:' || hold_issue.issue, NULL,
            jsonb_build_object('mode', hold_issue.mode, 'reason', hold_issue.reason));
    END IF;
    PERFORM wakeful.leave_company(former);
    RETURN result;
END $$;

-- Ends a hold. `restore` puts back what a cancel hold cancelled, where nobody changed it since; without it those
-- issues become terminal.
CREATE FUNCTION wakeful.end_hold(company text, issue text, restore boolean, actor text) RETURNS wakeful.receipt LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE result wakeful.receipt; c CONSTANT text := end_hold.company; held wakeful.hold; r record;
BEGIN
    PERFORM FROM wakeful.issue i WHERE i.company = c AND (i.id = end_hold.issue OR i.id IN (
        SELECT m.issue FROM wakeful.hold h JOIN wakeful.hold_member m ON m.company = c AND m.hold = h.id
        WHERE h.company = c AND h.root = end_hold.issue AND h.state = 'active'))
    ORDER BY i.id FOR NO KEY UPDATE;
    SELECT * INTO held FROM wakeful.hold h WHERE h.company = c AND h.root = end_hold.issue AND h.state = 'active' FOR NO KEY UPDATE;
    IF held.id IS NULL THEN
        result.outcome := 'existing';
        RETURN result;
    END IF;
    UPDATE wakeful.hold h SET state = CASE WHEN restore THEN 'restored' ELSE 'released' END, ended_at = wakeful.now(),
        ended_by = coalesce(end_hold.actor, 'system:' || session_user)
    WHERE h.company = c AND h.id = held.id;
    IF restore THEN
        UPDATE wakeful.issue i SET status = m.status, status_version = i.status_version + 1
        FROM wakeful.hold_member m
        WHERE m.company = c AND m.hold = held.id AND i.company = c AND i.id = m.issue AND i.status = 'cancelled'
          AND i.status_version = m.status_version + 1;
    END IF;
    PERFORM wakeful.notify_gate(c, 'hold', held.root);
    FOR r IN SELECT m.issue FROM wakeful.hold_member m WHERE m.company = c AND m.hold = held.id ORDER BY m.issue LOOP
        PERFORM wakeful.notify_gate(c, 'issue', r.issue);
    END LOOP;
    PERFORM wakeful.record_audit(c, actor, CASE WHEN restore THEN 'restore' ELSE 'release' END, 'issue:' || held.root,
        jsonb_build_object('mode', held.mode), NULL);
    result.outcome := 'merged';
    result.state := CASE WHEN restore THEN 'restored' ELSE 'released' END;
    RETURN result;
END $$;

CREATE FUNCTION wakeful.release_hold(company text, issue text, actor text DEFAULT NULL)
RETURNS wakeful.receipt LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE former text := wakeful.enter_company(company); result wakeful.receipt;
BEGIN
    PERFORM wakeful.parse_actor(actor);
    result := wakeful.end_hold(company, issue, false, actor);
    PERFORM wakeful.leave_company(former);
    RETURN result;
END $$;

CREATE FUNCTION wakeful.restore_hold(company text, issue text, actor text DEFAULT NULL)
RETURNS wakeful.receipt LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE former text := wakeful.enter_company(company); result wakeful.receipt;
BEGIN
    PERFORM wakeful.parse_actor(actor);
    result := wakeful.end_hold(company, issue, true, actor);
    PERFORM wakeful.leave_company(former);
    RETURN result;
END $$;

-- ── members and projects ────────────────────────────────────────────────────────────────────────────────

-- Terminate and archive retire what is saved for the member; tombstones and other finals stay as they are.
CREATE FUNCTION wakeful.end_agent(company text, agent text, state text, actor text) RETURNS wakeful.receipt LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE result wakeful.receipt; held wakeful.agent;
BEGIN
    SELECT * INTO held FROM wakeful.agent a WHERE a.company = end_agent.company AND a.id = end_agent.agent FOR NO KEY UPDATE;
    IF held.id IS NULL THEN
        PERFORM wakeful.require_agent(end_agent.company, end_agent.agent);
    ELSIF held.state = end_agent.state THEN
        result.outcome := 'existing';
    ELSIF held.state = 'archived' THEN
        PERFORM wakeful.refuse('WK409', format('agent %L is archived', held.id));
    ELSE
        UPDATE wakeful.agent a SET state = end_agent.state, pause_reason = NULL, paused_at = NULL
        WHERE a.company = held.company AND a.id = held.id;
        result.outcome := 'merged';
        PERFORM wakeful.record_audit(held.company, actor, CASE end_agent.state WHEN 'archived' THEN 'archive' ELSE 'terminate' END,
            'agent:' || held.id, jsonb_build_object('state', held.state), jsonb_build_object('state', end_agent.state));
        PERFORM wakeful.notify_gate(held.company, 'agent', held.id);
    END IF;
    result.state := end_agent.state;
    RETURN result;
END $$;

CREATE FUNCTION wakeful.terminate_agent(company text, agent text, actor text DEFAULT NULL)
RETURNS wakeful.receipt LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE former text := wakeful.enter_company(company); result wakeful.receipt;
BEGIN
    PERFORM wakeful.parse_actor(actor);
    result := wakeful.end_agent(company, agent, 'terminated', actor);
    PERFORM wakeful.leave_company(former);
    RETURN result;
END $$;

CREATE FUNCTION wakeful.archive_agent(company text, agent text, actor text DEFAULT NULL)
RETURNS wakeful.receipt LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE former text := wakeful.enter_company(company); result wakeful.receipt;
BEGIN
    PERFORM wakeful.parse_actor(actor);
    result := wakeful.end_agent(company, agent, 'archived', actor);
    PERFORM wakeful.leave_company(former);
    RETURN result;
END $$;

-- Makes an agent wait for a person's approval, or gives it.
CREATE FUNCTION wakeful.await_approval(company text, agent text, actor text DEFAULT NULL)
RETURNS wakeful.receipt LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE former text := wakeful.enter_company(company); result wakeful.receipt; held wakeful.agent;
BEGIN
    PERFORM wakeful.parse_actor(actor);
    SELECT * INTO held FROM wakeful.agent a WHERE a.company = await_approval.company AND a.id = agent FOR NO KEY UPDATE;
    IF held.id IS NULL THEN
        PERFORM wakeful.require_agent(await_approval.company, agent);
    ELSIF held.state NOT IN ('active', 'pending_approval') THEN
        PERFORM wakeful.refuse('WK409', format('agent %L is %s', agent, held.state));
    END IF;
    result.outcome := CASE held.state WHEN 'active' THEN 'merged' ELSE 'existing' END;
    IF held.state = 'active' THEN
        UPDATE wakeful.agent a SET state = 'pending_approval' WHERE a.company = held.company AND a.id = held.id;
        PERFORM wakeful.record_audit(held.company, actor, 'await_approval', 'agent:' || held.id, '{"state": "active"}', '{"state": "pending_approval"}');
    END IF;
    result.state := 'pending_approval';
    PERFORM wakeful.leave_company(former);
    RETURN result;
END $$;

CREATE FUNCTION wakeful.approve_agent(company text, agent text, actor text DEFAULT NULL)
RETURNS wakeful.receipt LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE former text := wakeful.enter_company(company); result wakeful.receipt; held wakeful.agent;
BEGIN
    PERFORM wakeful.parse_actor(actor);
    SELECT * INTO held FROM wakeful.agent a WHERE a.company = approve_agent.company AND a.id = agent FOR NO KEY UPDATE;
    IF held.id IS NULL THEN
        PERFORM wakeful.require_agent(approve_agent.company, agent);
    ELSIF held.state = 'pending_approval' THEN
        UPDATE wakeful.agent a SET state = 'active' WHERE a.company = held.company AND a.id = held.id;
        PERFORM wakeful.record_audit(held.company, actor, 'approve', 'agent:' || held.id, '{"state": "pending_approval"}', '{"state": "active"}');
        PERFORM wakeful.notify_gate(held.company, 'agent', held.id);
        result.outcome := 'merged';
        held.state := 'active';
    ELSE
        result.outcome := 'existing';
    END IF;
    result.state := held.state;
    PERFORM wakeful.leave_company(former);
    RETURN result;
END $$;

CREATE FUNCTION wakeful.archive_project(company text, project text, actor text DEFAULT NULL)
RETURNS wakeful.receipt LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE former text := wakeful.enter_company(company); result wakeful.receipt; held wakeful.project; r record;
BEGIN
    PERFORM wakeful.parse_actor(actor);
    SELECT * INTO held FROM wakeful.project p WHERE p.company = archive_project.company AND p.id = project FOR NO KEY UPDATE;
    IF held.id IS NULL THEN
        PERFORM wakeful.refuse('WK404', format('project %L does not exist in company %L', project, archive_project.company),
            'list them: wakeful project list');
    ELSIF held.archived_at IS NOT NULL THEN
        result.outcome := 'existing';
    ELSE
        UPDATE wakeful.project p SET archived_at = wakeful.now() WHERE p.company = held.company AND p.id = held.id;
        PERFORM wakeful.record_audit(held.company, actor, 'archive', 'project:' || held.id, NULL, NULL);
        PERFORM wakeful.notify_gate(held.company, 'project', held.id);
        -- What waits behind another gate is retired too, now and not when that gate opens.
        FOR r IN SELECT DISTINCT w.issue FROM wakeful.wake w JOIN wakeful.issue i ON i.company = w.company AND i.id = w.issue
                 WHERE w.company = held.company AND w.state = 'deferred' AND w.wait_gate <> 'project' AND i.project = held.id
                 ORDER BY 1 LOOP
            PERFORM wakeful.notify_gate(held.company, 'issue', r.issue);
        END LOOP;
        result.outcome := 'merged';
    END IF;
    result.state := 'archived';
    PERFORM wakeful.leave_company(former);
    RETURN result;
END $$;

-- How many runs of a company may live at once; NULL: any number.
CREATE FUNCTION wakeful.limit_company(company text, max_concurrent_runs integer DEFAULT NULL, actor text DEFAULT NULL)
RETURNS wakeful.receipt LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE former text := wakeful.enter_company(company); result wakeful.receipt; held wakeful.company; fresh CONSTANT integer := limit_company.max_concurrent_runs;
BEGIN
    PERFORM wakeful.parse_actor(actor);
    IF fresh < 1 THEN
        PERFORM wakeful.refuse('WK422', 'a company may have at least 1 run at once');
    END IF;
    SELECT * INTO held FROM wakeful.company c WHERE c.company = limit_company.company FOR NO KEY UPDATE;
    IF held.company IS NULL THEN
        PERFORM wakeful.refuse('WK404', format('company %L does not exist', limit_company.company));
    ELSIF held.max_concurrent_runs IS NOT DISTINCT FROM fresh THEN
        result.outcome := 'existing';
    ELSE
        UPDATE wakeful.company c SET max_concurrent_runs = fresh WHERE c.company = held.company;
        PERFORM wakeful.record_audit(held.company, actor, 'limit', 'company', jsonb_build_object('runs', held.max_concurrent_runs),
            jsonb_build_object('runs', fresh));
        IF coalesce(fresh, 2147483647) > coalesce(held.max_concurrent_runs, 2147483647) THEN
            PERFORM wakeful.notify_gate(held.company, 'concurrency', 'company');
        END IF;
        result.outcome := 'merged';
    END IF;
    result.state := held.state;
    PERFORM wakeful.leave_company(former);
    RETURN result;
END $$;

-- ── environment leases, recovery ────────────────────────────────────────────────────────────────────────

CREATE FUNCTION wakeful.open_lease(company text, lease text, issue text, run uuid DEFAULT NULL, actor text DEFAULT NULL)
RETURNS wakeful.receipt LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE former text := wakeful.enter_company(company); result wakeful.receipt;
BEGIN
    PERFORM wakeful.parse_actor(actor);
    PERFORM FROM wakeful.issue i WHERE i.company = open_lease.company AND i.id = open_lease.issue FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        PERFORM wakeful.refuse('WK404', format('issue %L does not exist in company %L', open_lease.issue, open_lease.company));
    END IF;
    INSERT INTO wakeful.environment_lease (company, id, issue, run)
    VALUES (open_lease.company, lease, open_lease.issue, open_lease.run) ON CONFLICT DO NOTHING;
    result.outcome := CASE WHEN FOUND THEN 'inserted' ELSE 'existing' END;
    SELECT l.state INTO result.state FROM wakeful.environment_lease l WHERE l.company = open_lease.company AND l.id = lease;
    IF result.outcome = 'inserted' THEN
        PERFORM wakeful.record_audit(open_lease.company, actor, 'open', 'lease:' || lease, NULL, jsonb_build_object('issue', open_lease.issue));
    END IF;
    PERFORM wakeful.leave_company(former);
    RETURN result;
END $$;

CREATE FUNCTION wakeful.close_lease(company text, lease text, outcome text DEFAULT 'released', actor text DEFAULT NULL)
RETURNS wakeful.receipt LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE former text := wakeful.enter_company(company); result wakeful.receipt; held wakeful.environment_lease;
BEGIN
    PERFORM wakeful.parse_actor(actor);
    IF close_lease.outcome NOT IN ('released', 'failed') THEN
        PERFORM wakeful.refuse('WK422', format('%L is no end of a lease', close_lease.outcome), 'one of: released, failed');
    END IF;
    SELECT * INTO held FROM wakeful.environment_lease l WHERE l.company = close_lease.company AND l.id = lease;
    IF held.id IS NULL THEN
        PERFORM wakeful.refuse('WK404', format('environment lease %L does not exist in company %L', lease, close_lease.company));
    END IF;
    PERFORM FROM wakeful.issue i WHERE i.company = held.company AND i.id = held.issue FOR NO KEY UPDATE;
    UPDATE wakeful.environment_lease l SET state = close_lease.outcome, closed_at = wakeful.now()
    WHERE l.company = held.company AND l.id = held.id AND l.state = 'active';
    result.outcome := CASE WHEN FOUND THEN 'merged' ELSE 'existing' END;
    IF result.outcome = 'merged' THEN
        PERFORM wakeful.record_audit(held.company, actor, 'close', 'lease:' || lease, NULL, jsonb_build_object('state', close_lease.outcome));
        PERFORM wakeful.notify_gate(held.company, 'execution', held.issue);
    END IF;
    SELECT l.state INTO result.state FROM wakeful.environment_lease l WHERE l.company = held.company AND l.id = held.id;
    PERFORM wakeful.leave_company(former);
    RETURN result;
END $$;

CREATE FUNCTION wakeful.open_recovery(company text, issue text, cause text, actor text DEFAULT NULL)
RETURNS wakeful.receipt LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE former text := wakeful.enter_company(company); result wakeful.receipt;
BEGIN
    PERFORM wakeful.parse_actor(actor);
    PERFORM FROM wakeful.issue i WHERE i.company = open_recovery.company AND i.id = open_recovery.issue FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        PERFORM wakeful.refuse('WK404', format('issue %L does not exist in company %L', open_recovery.issue, open_recovery.company),
            'list them: wakeful issue list');
    END IF;
    SELECT a.id INTO result.wake FROM wakeful.recovery_action a
    WHERE a.company = open_recovery.company AND a.issue = open_recovery.issue AND a.run IS NULL AND a.state = 'open';
    IF FOUND THEN
        result.outcome := 'existing';
    ELSE
        INSERT INTO wakeful.recovery_action (company, issue, cause) VALUES (open_recovery.company, open_recovery.issue, open_recovery.cause)
        RETURNING id INTO result.wake;
        result.outcome := 'inserted';
        PERFORM wakeful.record_audit(open_recovery.company, actor, 'open', 'recovery:' || result.wake, NULL,
            jsonb_build_object('issue', open_recovery.issue, 'cause', open_recovery.cause));
    END IF;
    result.state := 'open';
    PERFORM wakeful.leave_company(former);
    RETURN result;
END $$;

-- Resolves an open action. Of an uncertain run a person says what became of it: `dead` (it goes back to the queue,
-- one generation on) or `lost` (it ends without another attempt). Evidence: attested.
CREATE FUNCTION wakeful.resolve_recovery(company text, action uuid, outcome text DEFAULT 'resolved', actor text DEFAULT NULL)
RETURNS wakeful.receipt LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    former text := wakeful.enter_company(company);
    result wakeful.receipt;
    c CONSTANT text := resolve_recovery.company;
    held wakeful.recovery_action;
    doubted wakeful.run;
BEGIN
    PERFORM wakeful.parse_actor(actor);
    SELECT * INTO held FROM wakeful.recovery_action a WHERE a.company = c AND a.id = action;
    IF held.id IS NULL THEN
        PERFORM wakeful.refuse('WK404', format('recovery action %s does not exist in company %L', action, c));
    END IF;
    -- Lock order: the run, its issue, then the action.
    SELECT * INTO doubted FROM wakeful.run u WHERE u.company = c AND u.id = held.run FOR NO KEY UPDATE;
    PERFORM FROM wakeful.issue i
    WHERE i.company = c AND (i.id = coalesce(held.issue, doubted.issue) OR i.execution_run = doubted.id) ORDER BY i.id FOR NO KEY UPDATE;
    SELECT * INTO held FROM wakeful.recovery_action a WHERE a.company = c AND a.id = action FOR NO KEY UPDATE;
    IF held.state = 'resolved' THEN
        result.outcome := 'existing';
    ELSE
        IF doubted.id IS NOT NULL AND doubted.ended_at IS NULL THEN
            IF resolve_recovery.outcome = 'dead' AND doubted.state IN ('starting', 'running') THEN
                UPDATE wakeful.run u SET state = 'queued', generation = u.generation + 1, claimed_by = NULL, claimed_at = NULL,
                    renew_by = NULL, started_at = NULL, uncertain_at = NULL, queued_at = wakeful.now(),
                    host = CASE WHEN u.host_fixed THEN u.host END
                WHERE u.company = c AND u.id = doubted.id;
                PERFORM wakeful.free_taken(c, ARRAY[doubted.id]);
                PERFORM wakeful.notify('dispatch', c, NULL, NULL);
            ELSIF resolve_recovery.outcome IN ('dead', 'lost') THEN
                UPDATE wakeful.run u SET state = CASE WHEN resolve_recovery.outcome = 'lost' THEN 'lost' ELSE 'cancelled' END,
                    ended_at = wakeful.now(), evidence = 'attested', end_class = 'killed', reason = 'run.' || resolve_recovery.outcome,
                    renew_by = NULL
                WHERE u.company = c AND u.id = doubted.id;
                PERFORM wakeful.settle_runs(c, ARRAY[doubted.id]);
            ELSE
                PERFORM wakeful.refuse('WK422', format('run %s is uncertain: say what became of it', doubted.id),
                    'outcome dead (it may run again) or lost (it will not)');
            END IF;
        END IF;
        -- A person's word is proof behind a run that ended without any, too.
        IF resolve_recovery.outcome IN ('dead', 'lost') THEN
            UPDATE wakeful.issue i SET execution_run = NULL, execution_locked_at = NULL
            FROM wakeful.run u
            WHERE i.company = c AND i.id = coalesce(held.issue, doubted.issue) AND u.company = c AND u.id = i.execution_run
              AND u.ended_at IS NOT NULL;
            IF FOUND THEN
                PERFORM wakeful.notify_gate(c, 'execution', coalesce(held.issue, doubted.issue));
            END IF;
        END IF;
        UPDATE wakeful.recovery_action a SET state = 'resolved', resolved_at = wakeful.now(), outcome = resolve_recovery.outcome,
            resolved_by = coalesce(actor, 'system:' || session_user)
        WHERE a.company = c AND a.id = held.id;
        PERFORM wakeful.record_audit(c, actor, 'resolve', 'recovery:' || held.id, NULL, jsonb_build_object('outcome', resolve_recovery.outcome));
        PERFORM wakeful.notify_gate(c, 'recovery', held.id::text);
        result.outcome := 'merged';
    END IF;
    result.state := 'resolved';
    result.run := held.run;
    PERFORM wakeful.leave_company(former);
    RETURN result;
END $$;

-- ── providers, circuits ─────────────────────────────────────────────────────────────────────────────────

-- Closes a provider's account until a time (NULL: until somebody clears it).
CREATE FUNCTION wakeful.close_account(company text, account text, until timestamptz DEFAULT NULL, reason text DEFAULT NULL, actor text DEFAULT NULL)
RETURNS wakeful.receipt LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE former text := wakeful.enter_company(company); result wakeful.receipt; fresh boolean; held wakeful.provider_account;
BEGIN
    PERFORM wakeful.check_words(close_account.reason, 'a reason');
    PERFORM wakeful.parse_actor(actor);
    PERFORM wakeful.ensure_company(close_account.company);
    PERFORM wakeful.check_moment(until);
    SELECT * INTO held FROM wakeful.provider_account p WHERE p.company = close_account.company AND p.id = account FOR NO KEY UPDATE;
    INSERT INTO wakeful.provider_account AS p (company, id, closed_at, closed_until, reason)
    VALUES (close_account.company, account, wakeful.now(), close_account.until, close_account.reason)
    ON CONFLICT (company, id) DO UPDATE SET closed_at = excluded.closed_at, closed_until = excluded.closed_until, reason = excluded.reason
    WHERE p.closed_at IS NULL OR p.closed_until IS DISTINCT FROM excluded.closed_until
    RETURNING p.xmax = 0 INTO fresh;
    result.outcome := CASE WHEN fresh THEN 'inserted' WHEN NOT fresh THEN 'merged' ELSE 'existing' END;
    IF result.outcome <> 'existing' THEN
        PERFORM wakeful.record_audit(close_account.company, actor, 'close', 'account:' || account, NULL,
            jsonb_build_object('until', close_account.until, 'reason', close_account.reason));
        -- It opens sooner than its sleepers were told.
        IF held.closed_at IS NOT NULL AND close_account.until < coalesce(held.closed_until, 'infinity') THEN
            PERFORM wakeful.notify_gate(close_account.company, 'provider', account);
        END IF;
    END IF;
    result.state := 'closed';
    PERFORM wakeful.leave_company(former);
    RETURN result;
END $$;

-- Runs ended on their provider's limit: each account closes until then for all who use it, and each run's input is
-- saved behind it. A new wake has the old one's kind, input and effect key, and is certified by the limited run.
-- Part of the terminal transaction, after settle_runs; called account by account, so that two terminals agree on the order.
CREATE FUNCTION wakeful.save_behind_limit(company text, run uuid, until timestamptz) RETURNS uuid LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    c CONSTANT text := save_behind_limit.company;
    fresh CONSTANT uuid := wakeful.uuid7();
    ended wakeful.run;
    old wakeful.wake;
    shut wakeful.provider_account;
    -- A limit that is over already closes nothing; but a run that says so again and again must not spin.
    due timestamptz := greatest(save_behind_limit.until, wakeful.now() + interval '30 seconds');
BEGIN
    SELECT * INTO ended FROM wakeful.run u WHERE u.company = c AND u.id = save_behind_limit.run;
    SELECT * INTO old FROM wakeful.wake w WHERE w.company = c AND w.id = ended.wake;
    IF save_behind_limit.until > wakeful.now() THEN
        due := save_behind_limit.until;
        -- The later reset counts; what a person closed without one stays closed without one.
        INSERT INTO wakeful.provider_account AS p (company, id, closed_at, closed_until, reason)
        SELECT c, ended.account, wakeful.now(), due, 'run ' || ended.id || ' met its limit' WHERE ended.account IS NOT NULL
        ON CONFLICT (company, id) DO UPDATE
        SET closed_at = excluded.closed_at, reason = excluded.reason,
            closed_until = CASE WHEN p.closed_at IS NULL OR p.closed_until IS NOT NULL
                                THEN greatest(excluded.closed_until, p.closed_until) END
        RETURNING * INTO shut;
        IF shut.id IS NOT NULL THEN
            due := CASE WHEN shut.resuming = 'auto' THEN shut.closed_until END;
        END IF;
    END IF;
    -- Whoever was asked to stop does not go on by itself.
    IF ended.stop_at IS NOT NULL THEN
        RETURN NULL;
    END IF;
    INSERT INTO wakeful.wake (company, id, kind, priority, agent, issue, project, source, actor_kind, actor, payload, key, due_at,
                              effect_root, rearm_of, certified_run, certified_generation, estimate, comments, card, card_status,
                              review, decision, requested_at,
                              wait_gate, wait_key, wait_reason, wait_message, wait_since, grace_from, opens_on, reopens_at)
    SELECT c, fresh, coalesce(old.kind, 'request'), coalesce(old.priority, ended.priority), ended.agent, ended.issue, ended.project,
           coalesce(old.source, 'automation'), coalesce(old.actor_kind, 'system'), coalesce(old.actor, 'provider limit'),
           coalesce(old.payload, '{}'), old.key, due,
           coalesce(old.effect_root, fresh), old.id, ended.id, ended.generation, coalesce(old.estimate, ended.estimate),
           CASE WHEN old.kind = 'saved_comments' THEN wakeful.undelivered(c, ended.comments) ELSE ended.comments END,
           -- What was asked for first goes first: it may sleep beside what was saved while its run lived.
           old.card, old.card_status, old.review, old.decision, coalesce(old.requested_at, wakeful.now()),
           wait.gate, shut.id, wait.reason, wait.message, wait.since, wait.since, wait.opens_on, wait.reopens_at
    FROM (SELECT 1) AS one
    LEFT JOIN (SELECT 'provider' AS gate, 'provider.limited' AS reason, wakeful.wall() AS since, due AS reopens_at,
                      format('account %s is closed: %s', shut.id, shut.reason) AS message,
                      'wakeful limit clear ' || shut.id || CASE WHEN due IS NULL THEN '' ELSE ', or its reset' END AS opens_on
               ) AS wait ON shut.id IS NOT NULL
    -- Somebody re-armed it, or asked for a retry of this very run while it lived: that wake carries the input.
    ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    UPDATE wakeful.wake_key k SET wake = fresh WHERE k.company = c AND k.key = old.key AND k.wake = old.id;
    IF due IS NOT NULL THEN
        PERFORM wakeful.notify_wake(c, w.id, w.owner, due) FROM wakeful.wake w WHERE w.company = c AND w.id = fresh;
    END IF;
    RETURN fresh;
END $$;

-- Opens a provider's account now; its sleepers start on a ramp.
CREATE FUNCTION wakeful.clear_account(company text, account text, actor text DEFAULT NULL)
RETURNS wakeful.receipt LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE former text := wakeful.enter_company(company); result wakeful.receipt;
BEGIN
    PERFORM wakeful.parse_actor(actor);
    UPDATE wakeful.provider_account p SET closed_at = NULL, closed_until = NULL, reason = NULL, ramp_from = wakeful.wall()
    WHERE p.company = clear_account.company AND p.id = account AND p.closed_at IS NOT NULL
      AND (p.resuming = 'ask' OR p.closed_until IS NULL OR p.closed_until > wakeful.now());
    result.outcome := CASE WHEN FOUND THEN 'merged' ELSE 'existing' END;
    IF result.outcome = 'merged' THEN
        PERFORM wakeful.record_audit(clear_account.company, actor, 'clear', 'account:' || account, NULL, NULL);
        PERFORM wakeful.notify_gate(clear_account.company, 'provider', account);
    END IF;
    result.state := 'open';
    PERFORM wakeful.leave_company(former);
    RETURN result;
END $$;

-- How an account resumes (auto: by the clock; ask: when somebody clears it), and its steady start rate.
CREATE FUNCTION wakeful.set_account(company text, account text, resuming text DEFAULT 'auto', starts_per_second numeric DEFAULT NULL, actor text DEFAULT NULL)
RETURNS wakeful.receipt LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE former text := wakeful.enter_company(company); result wakeful.receipt; held wakeful.provider_account;
BEGIN
    PERFORM wakeful.parse_actor(actor);
    PERFORM wakeful.ensure_company(set_account.company);
    IF set_account.resuming NOT IN ('auto', 'ask') OR set_account.starts_per_second <= 0 THEN
        PERFORM wakeful.refuse('WK422', 'an account resumes by auto or ask, and starts more than 0 runs per second');
    END IF;
    SELECT * INTO held FROM wakeful.provider_account p WHERE p.company = set_account.company AND p.id = account FOR NO KEY UPDATE;
    INSERT INTO wakeful.provider_account AS p (company, id, resuming, starts_per_second)
    VALUES (set_account.company, account, set_account.resuming, set_account.starts_per_second)
    ON CONFLICT (company, id) DO UPDATE SET resuming = excluded.resuming, starts_per_second = excluded.starts_per_second
    WHERE (p.resuming, p.starts_per_second) IS DISTINCT FROM (excluded.resuming, excluded.starts_per_second);
    result.outcome := CASE WHEN NOT FOUND THEN 'existing' WHEN held.id IS NULL THEN 'inserted' ELSE 'merged' END;
    IF result.outcome <> 'existing' THEN
        PERFORM wakeful.record_audit(set_account.company, actor, 'set', 'account:' || account, to_jsonb(held),
            jsonb_build_object('resuming', set_account.resuming, 'starts_per_second', set_account.starts_per_second));
        IF coalesce(set_account.starts_per_second, 'infinity') > coalesce(held.starts_per_second, 'infinity') THEN
            PERFORM wakeful.notify_gate(set_account.company, 'rate', account);
        END IF;
        IF held.resuming = 'ask' AND set_account.resuming = 'auto' THEN
            PERFORM wakeful.notify_gate(set_account.company, 'provider', account);
        END IF;
    END IF;
    PERFORM wakeful.leave_company(former);
    RETURN result;
END $$;

-- Opens the circuits of agents whose last N ends bear one signature. Part of settle_runs.
CREATE FUNCTION wakeful.check_circuits(company text, runs uuid[]) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE r record; c CONSTANT text := check_circuits.company; ends CONSTANT integer := (wakeful.setting_value('circuit_ends', '5') #>> '{}')::integer;
BEGIN
    FOR r IN SELECT DISTINCT u.agent FROM wakeful.run u WHERE u.company = c AND u.id = ANY (runs) AND u.state = 'failed'
               AND u.end_class <> 'provider_limited' ORDER BY u.agent LOOP
        -- Of two ends at once each must count the other: the second waits, and its next statement sees the first.
        PERFORM pg_advisory_xact_lock(hashtextextended('wakeful circuit ' || c || ' ' || r.agent, 0));
        INSERT INTO wakeful.circuit AS k (company, agent, opened_at, signature)
        SELECT c, r.agent, wakeful.now(), min(last.signature)
        FROM (SELECT concat_ws(' ', u.end_class, u.reason, u.exit_code, u.exit_signal) AS signature, u.state
              FROM wakeful.run u LEFT JOIN wakeful.circuit x ON x.company = c AND x.agent = r.agent
              WHERE u.company = c AND u.agent = r.agent AND u.ended_at IS NOT NULL
                AND u.ended_at > coalesce(x.reset_at, '-infinity') AND u.state IN ('succeeded', 'failed')
                AND u.end_class <> 'provider_limited'
              ORDER BY u.ended_at DESC, u.id DESC LIMIT ends) AS last
        HAVING count(*) = ends AND count(DISTINCT last.signature) = 1 AND bool_and(last.state = 'failed')
        ON CONFLICT (company, agent) DO UPDATE SET opened_at = excluded.opened_at, signature = excluded.signature
        WHERE k.opened_at IS NULL;
    END LOOP;
END $$;

CREATE FUNCTION wakeful.reset_circuit(company text, agent text, actor text DEFAULT NULL)
RETURNS wakeful.receipt LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE former text := wakeful.enter_company(company); result wakeful.receipt;
BEGIN
    PERFORM wakeful.parse_actor(actor);
    PERFORM wakeful.require_agent(reset_circuit.company, agent);
    UPDATE wakeful.circuit k SET opened_at = NULL, signature = NULL, reset_at = wakeful.wall(), reset_by = coalesce(actor, 'system:' || session_user)
    WHERE k.company = reset_circuit.company AND k.agent = reset_circuit.agent AND k.opened_at IS NOT NULL;
    result.outcome := CASE WHEN FOUND THEN 'merged' ELSE 'existing' END;
    IF result.outcome = 'merged' THEN
        PERFORM wakeful.record_audit(reset_circuit.company, actor, 'reset', 'circuit:' || agent, NULL, NULL);
        PERFORM wakeful.notify_gate(reset_circuit.company, 'circuit', agent);
    END IF;
    PERFORM wakeful.leave_company(former);
    RETURN result;
END $$;

-- ── hosts ───────────────────────────────────────────────────────────────────────────────────────────────

-- A person's word that a host is gone for good. Schedulers then move, requeue and resolve its runs, per company.
CREATE FUNCTION wakeful.declare_host_dead(host text, actor text DEFAULT NULL)
RETURNS wakeful.receipt LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE result wakeful.receipt;
BEGIN
    PERFORM wakeful.parse_actor(actor);
    UPDATE wakeful.host h SET dead_at = wakeful.now(), dead_by = coalesce(actor, 'system:' || session_user)
    WHERE h.id = declare_host_dead.host AND h.dead_at IS NULL;
    result.outcome := CASE WHEN FOUND THEN 'merged' ELSE 'existing' END;
    result.state := 'dead';
    IF NOT EXISTS (SELECT FROM wakeful.host h WHERE h.id = declare_host_dead.host) THEN
        PERFORM wakeful.refuse('WK404', format('no scheduler ever ran on a host named %L', declare_host_dead.host), 'see: wakeful host list');
    END IF;
    IF result.outcome = 'merged' THEN
        INSERT INTO wakeful.instance_audit (actor, authenticated, verb, target)
        VALUES (coalesce(actor, 'system:' || session_user), 'database login ' || session_user, 'declare dead', 'host:' || declare_host_dead.host);
        PERFORM pg_notify('wakeful', json_build_object('t', 'settings', 's', 'hosts')::text);
    END IF;
    RETURN result;
END $$;

SELECT wakeful.close_functions();
SELECT wakeful.open_producers();
GRANT EXECUTE ON FUNCTION wakeful.hold_over(text, text), wakeful.only_held(text, text), wakeful.open_blocker(text, text),
    wakeful.subtree(text, text) TO wakeful_scheduler, wakeful_viewer;
GRANT EXECUTE ON FUNCTION wakeful.check_circuits(text, uuid[]), wakeful.save_behind_limit(text, uuid, timestamptz)
    TO wakeful_scheduler;
