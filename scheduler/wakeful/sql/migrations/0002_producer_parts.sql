-- What the producers share: tenancy, validation, signals, money, and the second half of every end of a run.
--
-- Nobody outside the schema may call these, except the scheduler where a grant in 0003 says so.
-- Errors raised here and in 0003: WK422 unusable argument, WK404 unknown, WK409 conflict.

-- ── shared by producers; nobody else may call them ──────────────────────────────────────────────────────

-- Sets the tenant for this transaction and returns the former one, for leave_company.
CREATE FUNCTION wakeful.enter_company(company text) RETURNS text LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE former text := current_setting('wakeful.company', true);
BEGIN
    IF company IS NULL OR length(company) NOT BETWEEN 1 AND 200 THEN
        RAISE EXCEPTION USING ERRCODE = 'WK422', MESSAGE = 'a company id has 1 to 200 characters';
    END IF;
    PERFORM set_config('wakeful.company', company, true);
    RETURN coalesce(former, '');
END $$;

CREATE FUNCTION wakeful.leave_company(former text) RETURNS void LANGUAGE sql SET search_path = pg_catalog, pg_temp
AS $$ SELECT set_config('wakeful.company', former, true) $$;

CREATE FUNCTION wakeful.refuse(code text, message text, hint text DEFAULT NULL) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF hint IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = code, MESSAGE = message;
    END IF;
    RAISE EXCEPTION USING ERRCODE = code, MESSAGE = message, HINT = hint;
END $$;

-- 'user:ann' as (user, ann). Without an actor the database login answers for the change.
CREATE FUNCTION wakeful.parse_actor(actor text, OUT kind text, OUT id text) LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    kind := split_part(coalesce(actor, 'system:' || session_user), ':', 1);
    id := substr(coalesce(actor, 'system:' || session_user), length(kind) + 2);
    IF kind NOT IN ('user', 'agent', 'system') OR length(id) NOT BETWEEN 1 AND 200 THEN
        PERFORM wakeful.refuse('WK422', format('actor %L is not user:ID, agent:ID or system:ID', actor));
    END IF;
END $$;

CREATE FUNCTION wakeful.record_audit(company text, actor text, verb text, target text, before jsonb, after jsonb)
RETURNS void LANGUAGE sql SET search_path = pg_catalog, pg_temp
AS $$
INSERT INTO wakeful.audit (company, actor, authenticated, verb, target, before, after)
VALUES ($1, coalesce($2, 'system:' || session_user), 'database login ' || session_user, $3, $4, $5, $6)
$$;

-- A hint to look again, delivered with the commit. Far under the 8000 bytes NOTIFY allows.
CREATE FUNCTION wakeful.notify(topic text, company text, gate text, key text) RETURNS void LANGUAGE sql
SET search_path = pg_catalog, pg_temp
AS $$ SELECT pg_notify('wakeful', json_build_object('t', $1, 'c', $2, 'g', $3, 'k', $4)::text) $$;

CREATE FUNCTION wakeful.notify_wake(company text, wake uuid, owner text, due timestamptz) RETURNS void LANGUAGE sql
SET search_path = pg_catalog, pg_temp
AS $$
SELECT pg_notify('wakeful', json_build_object('t', 'eligibility', 'c', $1, 'w', $2, 'o', $3,
                                              'at', extract('epoch' FROM $4))::text)
$$;

CREATE FUNCTION wakeful.notify_run(company text, run uuid, host text) RETURNS void LANGUAGE sql
SET search_path = pg_catalog, pg_temp
AS $$ SELECT pg_notify('wakeful', json_build_object('t', 'dispatch', 'c', $1, 'r', $2, 'h', $3)::text) $$;

-- Whether what is read after a lock is what stands under it. Otherwise, in a host's transaction with one snapshot for all
-- its statements, nothing may be kept silent because of what was read: somebody may have come in between.
CREATE FUNCTION wakeful.reads_fresh() RETURNS boolean LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$ SELECT current_setting('transaction_isolation') IN ('read committed', 'read uncommitted') $$;

-- A gate opened: owners look at the wakes parked on it, the dispatcher at the runs that wait on it.
CREATE FUNCTION wakeful.notify_gate(company text, gate text, key text) RETURNS void LANGUAGE sql
SET search_path = pg_catalog, pg_temp
AS $$ SELECT wakeful.notify('eligibility', $1, $2, $3); SELECT wakeful.notify('dispatch', $1, $2, $3) $$;

CREATE FUNCTION wakeful.setting_value(name text, otherwise jsonb) RETURNS jsonb LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp
AS $$ SELECT coalesce((SELECT s.value FROM wakeful.setting s WHERE s.name = $1), $2) $$;

-- First mention creates a company only where the instance's setting allows it.
CREATE FUNCTION wakeful.ensure_company(company text) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF EXISTS (SELECT FROM wakeful.company c WHERE c.company = ensure_company.company) THEN
        RETURN;
    END IF;
    IF wakeful.setting_value('create_companies', 'false') = 'true' THEN
        INSERT INTO wakeful.company VALUES (ensure_company.company) ON CONFLICT DO NOTHING;
    ELSE
        PERFORM wakeful.refuse('WK404', format('company %L does not exist', company),
            format('create it: wakeful company add %s', company));
    END IF;
END $$;

-- First mention creates an issue with defaults, assigned to the agent it is mentioned for (if any).
CREATE FUNCTION wakeful.ensure_issue(company text, issue text, agent text DEFAULT NULL) RETURNS text LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE project text;
BEGIN
    SELECT i.project INTO project FROM wakeful.issue i WHERE i.company = ensure_issue.company AND i.id = issue;
    IF NOT FOUND THEN
        IF (length(issue) BETWEEN 1 AND 200) IS NOT TRUE THEN
            PERFORM wakeful.refuse('WK422', 'an issue id has 1 to 200 characters');
        END IF;
        INSERT INTO wakeful.issue (company, id, assignee_kind, assignee)
        VALUES (ensure_issue.company, issue, CASE WHEN agent IS NOT NULL THEN 'agent' END, agent)
        ON CONFLICT DO NOTHING;
        -- Another transaction may have made it meanwhile, in a project.
        SELECT i.project INTO project FROM wakeful.issue i WHERE i.company = ensure_issue.company AND i.id = issue;
    END IF;
    RETURN project;
END $$;

CREATE FUNCTION wakeful.require_agent(company text, agent text) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM FROM wakeful.agent a WHERE a.company = require_agent.company AND a.id = require_agent.agent;
    IF NOT FOUND THEN
        PERFORM FROM wakeful.company c WHERE c.company = require_agent.company;
        IF NOT FOUND THEN
            PERFORM wakeful.refuse('WK404', format('company %L does not exist', company),
                format('create it: wakeful company add %s', company));
        END IF;
        PERFORM wakeful.refuse('WK404', format('agent %L does not exist in company %L', agent, company),
            format('create it: wakeful agent add %s --run ''COMMAND''', agent));
    END IF;
END $$;

CREATE FUNCTION wakeful.check_payload(payload jsonb) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF payload IS NULL THEN
        PERFORM wakeful.refuse('WK422', 'a payload is a JSON value, not NULL');
    END IF;
    IF octet_length(payload::text) > 65536 THEN
        PERFORM wakeful.refuse('WK422', format('the payload has %s bytes; the limit is 65536 bytes (64 KiB)',
            octet_length(payload::text)), 'store large input elsewhere and put its address into the payload');
    END IF;
    -- What is much deeper many languages' readers refuse, Python's among them.
    IF jsonb_path_exists(payload, 'strict $.**{100}') THEN
        PERFORM wakeful.refuse('WK422', 'the payload has more than 100 levels');
    END IF;
END $$;

CREATE FUNCTION wakeful.check_words(words text, what text) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF octet_length(words) > 65536 THEN
        PERFORM wakeful.refuse('WK422', format('%s has at most 65536 bytes (64 KiB)', what));
    END IF;
END $$;

CREATE FUNCTION wakeful.check_moment(at timestamptz) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF at IS NOT NULL AND (at < '2000-01-01 00:00:00+00' OR at >= '2101-01-01 00:00:00+00') THEN
        PERFORM wakeful.refuse('WK422', format('the time %s is outside the years 2000 to 2100', at));
    END IF;
END $$;

CREATE FUNCTION wakeful.check_money(amount numeric, what text) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF amount IS NOT NULL AND (amount = 'NaN' OR amount < 0 OR round(amount, 6) >= 1000000000000) THEN
        PERFORM wakeful.refuse('WK422', format('%s %s is not an amount between 0 and 10^12', what, amount));
    END IF;
END $$;

-- What was spent and what may still be, per policy: spend rows of its window, live reservations, limits.
-- `skip` leaves one run's own reservation out (the dispatcher's re-check).
CREATE FUNCTION wakeful.window_start(period text) RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE
AS $$
SELECT CASE WHEN $1 = 'month' THEN pg_catalog.date_trunc('month', wakeful.now() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC'
            ELSE '-infinity'::timestamptz END
$$;

CREATE FUNCTION wakeful.spent(company text, scope text, scope_id text, since timestamptz) RETURNS numeric LANGUAGE sql
STABLE PARALLEL SAFE
AS $$
SELECT CASE $2
    WHEN 'company' THEN (SELECT pg_catalog.sum(s.amount) FROM wakeful.spend s WHERE s.company = $1 AND s.at >= $4)
    WHEN 'agent' THEN (SELECT pg_catalog.sum(s.amount) FROM wakeful.spend s
                       WHERE s.company = $1 AND s.agent = $3 AND s.at >= $4)
    ELSE (SELECT pg_catalog.sum(s.amount) FROM wakeful.spend s WHERE s.company = $1 AND s.project = $3 AND s.at >= $4)
    END
$$;

CREATE FUNCTION wakeful.reserved(company text, policy text) RETURNS numeric LANGUAGE sql STABLE PARALLEL SAFE
AS $$
SELECT pg_catalog.sum(r.amount) FROM wakeful.reservation r
WHERE r.company = $1 AND r.policy = $2 AND r.state IN ('reserved', 'in_flight', 'indeterminate')
$$;

-- The project-budget rule. Locks the project (last in the lock order) and looks again: money gone and not
-- paused: pauses it, once, and signals; money there and paused by the budget: resumes it and signals.
-- A pause for any other reason keeps its reason, its time and its silence.
CREATE FUNCTION wakeful.check_project_budget(company text, project text) RETURNS text LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE held record; gone boolean;
BEGIN
    SELECT p.paused_at, p.pause_reason INTO held FROM wakeful.project p
    WHERE p.company = check_project_budget.company AND p.id = check_project_budget.project FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN 'none';
    END IF;
    gone := coalesce((
        SELECT b.hard_stop AND coalesce(wakeful.spent(b.company, b.scope, b.scope_id, wakeful.window_start(b.period)), 0)
                               >= b.amount
        FROM wakeful.budget b
        WHERE b.company = check_project_budget.company AND b.id = 'project:' || check_project_budget.project), false);
    IF gone AND held.paused_at IS NULL THEN
        UPDATE wakeful.project p SET paused_at = wakeful.now(), pause_reason = 'budget'
        WHERE p.company = check_project_budget.company AND p.id = check_project_budget.project;
        PERFORM wakeful.notify_gate(check_project_budget.company, 'project', check_project_budget.project);
        RETURN 'paused';
    ELSIF NOT gone AND held.pause_reason = 'budget' THEN
        UPDATE wakeful.project p SET paused_at = NULL, pause_reason = NULL
        WHERE p.company = check_project_budget.company AND p.id = check_project_budget.project;
        PERFORM wakeful.notify_gate(check_project_budget.company, 'project', check_project_budget.project);
        RETURN 'resumed';
    END IF;
    RETURN 'unchanged';
END $$;

-- The second half of every end of a run, whoever ended it: the caller has just made the run rows final under
-- their fence, and holds their issues' locks. Frees the issues, settles or releases reservations, signals
-- what that opens, and deletes at most two expired finals per ended run. Returns the directories, on the named host,
-- whose rows are gone.
CREATE FUNCTION wakeful.settle_runs(company text, runs uuid[]) RETURNS TABLE (host text, directory text)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE c CONSTANT text := settle_runs.company; fresh CONSTANT boolean := wakeful.reads_fresh(); r record; cutoff timestamptz;
BEGIN
    -- A run may hold more issues than its own. Under an issue's lock nobody can be parking on it unseen, so silence is
    -- safe where nobody waits.
    FOR r IN SELECT h.issue,
                    NOT fresh
                    OR EXISTS (SELECT FROM wakeful.wake w WHERE w.company = c AND w.wait_gate = 'issue' AND w.wait_key = h.issue
                               AND w.kind IN ('saved_comments', 'card') AND w.state = 'deferred') AS for_another
             FROM (SELECT u.issue::text AS issue FROM wakeful.run u WHERE u.company = c AND u.id = ANY (runs) AND u.issue IS NOT NULL
                   UNION
                   SELECT i.id::text FROM wakeful.issue i WHERE i.company = c AND i.execution_run = ANY (runs)) AS h
             WHERE NOT fresh
                   OR EXISTS (SELECT FROM wakeful.wake w WHERE w.company = c AND w.issue = h.issue
                              AND w.state IN ('deferred', 'queued', 'claimed', 'error'))
             ORDER BY h.issue LOOP
        PERFORM wakeful.notify('eligibility', c, 'execution', r.issue);
        IF r.for_another THEN
            -- What was saved for another agent than the assignee ends with the assignee's own run.
            PERFORM wakeful.notify('eligibility', c, 'issue', r.issue);
        END IF;
    END LOOP;
    -- Only a proven death frees an issue; any other leaves the execution gate closed behind this run.
    UPDATE wakeful.issue i SET execution_run = NULL, execution_locked_at = NULL
    FROM wakeful.run u
    WHERE u.company = c AND u.id = ANY (runs) AND i.company = c AND i.execution_run = u.id
      AND u.evidence IN ('contained', 'waited', 'attested');
    PERFORM wakeful.release_named_wakes(c, runs);
    -- A retry of a run without an issue holds the run's row while it is saved, so the same holds for it.
    FOR r IN SELECT DISTINCT w.certified_run::text AS run FROM wakeful.wake w
             WHERE w.company = c AND w.certified_run = ANY (runs) AND w.kind = 'task_retry' AND w.issue IS NULL
               AND w.state = 'deferred' LOOP
        PERFORM wakeful.notify('eligibility', c, 'execution', r.run);
    END LOOP;
    FOR r IN SELECT DISTINCT u.agent FROM wakeful.run u JOIN wakeful.agent a ON a.company = c AND a.id = u.agent
             WHERE u.company = c AND u.id = ANY (runs) AND a.max_concurrent_runs IS NOT NULL LOOP
        PERFORM wakeful.notify('eligibility', c, 'concurrency', 'agent:' || r.agent);  -- no queued run waits on it
    END LOOP;
    IF EXISTS (SELECT FROM wakeful.company x WHERE x.company = c AND x.max_concurrent_runs IS NOT NULL) THEN
        PERFORM wakeful.notify('eligibility', c, 'concurrency', 'company');
    END IF;
    PERFORM wakeful.check_circuits(c, runs);
    PERFORM wakeful.settle_money(c, runs);
    cutoff := wakeful.now() - make_interval(days => (wakeful.setting_value('retention_days', '30') #>> '{}')::integer);
    DELETE FROM wakeful.wake w WHERE w.company = c AND w.id IN (
        SELECT x.id FROM wakeful.wake x WHERE x.company = c AND x.ended_at < cutoff
          AND NOT EXISTS (SELECT FROM wakeful.wake_key k WHERE k.company = c AND k.wake = x.id AND k.expires_at > wakeful.now())
          AND NOT EXISTS (SELECT FROM wakeful.run u WHERE u.company = c AND u.wake = x.id
                          AND (u.ended_at IS NULL OR u.ended_at >= cutoff))
        ORDER BY x.ended_at LIMIT cardinality(runs) FOR UPDATE SKIP LOCKED);
    RETURN QUERY
    WITH expired AS MATERIALIZED (
        SELECT x.id, CASE WHEN x.started_at IS NOT NULL AND x.end_class IS DISTINCT FROM 'provider_limited' THEN x.comments
                          ELSE '{}' END AS given
        FROM wakeful.run x WHERE x.company = c AND x.ended_at < cutoff
          AND NOT EXISTS (SELECT FROM wakeful.run u WHERE u.company = c AND u.retry_of = x.id AND u.ended_at IS NULL)
          AND NOT EXISTS (SELECT FROM wakeful.wake w WHERE w.company = c AND w.certified_run = x.id AND w.ended_at IS NULL)
          AND NOT EXISTS (SELECT FROM wakeful.recovery_action a WHERE a.company = c AND a.run = x.id AND a.state = 'open')
        ORDER BY x.ended_at LIMIT cardinality(runs) FOR UPDATE SKIP LOCKED
    ), noted AS (
        -- That a comment was delivered outlives the run that says so. One that somebody changes just now is not waited
        -- for: its run expires later.
        UPDATE wakeful.comment m SET was_delivered = true
        WHERE m.company = c AND m.id IN (
            SELECT k.id FROM wakeful.comment k
            WHERE k.company = c AND k.id = ANY (ARRAY(SELECT unnest(e.given) FROM expired e)) AND NOT k.was_delivered
            FOR NO KEY UPDATE SKIP LOCKED)
        RETURNING m.id::text AS id
    )
    DELETE FROM wakeful.run d USING expired e
    WHERE d.company = c AND d.id = e.id
      AND NOT EXISTS (SELECT FROM wakeful.comment m WHERE m.company = c AND m.id = ANY (e.given) AND NOT m.was_delivered
                      AND m.id::text NOT IN (SELECT n.id FROM noted n))
        RETURNING d.host::text, d.directory;
END $$;

-- One lock a company for its budgets, concurrency and rates; held to the end of the transaction.
CREATE FUNCTION wakeful.lock_limits(company text) RETURNS void LANGUAGE sql SET search_path = pg_catalog, pg_temp
AS $$ SELECT pg_advisory_xact_lock(hashtextextended('wakeful limits ' || $1, 0)) $$;

-- What a policy still allows; infinite where nothing limits.
CREATE FUNCTION wakeful.headroom(company text, policy text) RETURNS numeric LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
SELECT coalesce((
    SELECT CASE WHEN NOT b.hard_stop THEN 'infinity'::numeric
                ELSE b.amount - coalesce(wakeful.spent(b.company, b.scope, b.scope_id, wakeful.window_start(b.period)), 0)
                     - coalesce(wakeful.reserved(b.company, b.id), 0) END
    FROM wakeful.budget b WHERE b.company = $1 AND b.id = $2), 'infinity')
$$;
