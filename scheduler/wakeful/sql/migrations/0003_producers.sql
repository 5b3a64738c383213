-- The producers: every function a host calls inside its own transaction.
--
-- Each validates, writes, leaves an audit row, and signals only when something really changed. Each runs as
-- the owner of the schema under forced row-level security for its `company` argument, and restores the
-- caller's setting. Each answers (outcome, wake, state, run): inserted | merged | existing, told truthfully,
-- since it waits for the fate of another open transaction. `merged` means: changed something that was there.
-- Signatures grow only by arguments with defaults.

CREATE TYPE wakeful.receipt AS (outcome text, wake uuid, state text, run uuid);

-- ── company, project, agent ─────────────────────────────────────────────────────────────────────────────

CREATE FUNCTION wakeful.add_company(company text, name text DEFAULT NULL, actor text DEFAULT NULL)
RETURNS wakeful.receipt LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE former text := wakeful.enter_company(company); result wakeful.receipt;
BEGIN
    PERFORM wakeful.parse_actor(actor);
    INSERT INTO wakeful.company (company, name) VALUES (add_company.company, add_company.name) ON CONFLICT DO NOTHING;
    result.outcome := CASE WHEN FOUND THEN 'inserted' ELSE 'existing' END;
    SELECT c.state INTO result.state FROM wakeful.company c WHERE c.company = add_company.company;
    IF result.outcome = 'inserted' THEN
        PERFORM wakeful.record_audit(add_company.company, actor, 'add', 'company', NULL, jsonb_build_object('name', add_company.name));
    END IF;
    PERFORM wakeful.leave_company(former);
    RETURN result;
END $$;

CREATE FUNCTION wakeful.pause_company(company text, reason text DEFAULT NULL, actor text DEFAULT NULL)
RETURNS wakeful.receipt LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE former text := wakeful.enter_company(company); result wakeful.receipt;
BEGIN
    PERFORM wakeful.parse_actor(actor);
    SELECT c.state INTO result.state FROM wakeful.company c WHERE c.company = pause_company.company FOR NO KEY UPDATE;
    IF result.state IS NULL THEN
        PERFORM wakeful.refuse('WK404', format('company %L does not exist', pause_company.company));
    ELSIF result.state = 'archived' THEN
        PERFORM wakeful.refuse('WK409', format('company %L is archived', pause_company.company));
    ELSIF result.state = 'paused' THEN
        result.outcome := 'existing';
    ELSE
        UPDATE wakeful.company c SET state = 'paused', paused_at = wakeful.now(), pause_reason = coalesce(reason, 'manual')
        WHERE c.company = pause_company.company;
        result.outcome := 'merged';
        result.state := 'paused';
        PERFORM wakeful.record_audit(pause_company.company, actor, 'pause', 'company', '{"state": "active"}', '{"state": "paused"}');
    END IF;
    PERFORM wakeful.leave_company(former);
    RETURN result;
END $$;

CREATE FUNCTION wakeful.resume_company(company text, actor text DEFAULT NULL)
RETURNS wakeful.receipt LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE former text := wakeful.enter_company(company); result wakeful.receipt; held wakeful.company;
BEGIN
    PERFORM wakeful.parse_actor(actor);
    SELECT * INTO held FROM wakeful.company c WHERE c.company = resume_company.company FOR NO KEY UPDATE;
    IF held.company IS NULL THEN
        PERFORM wakeful.refuse('WK404', format('company %L does not exist', resume_company.company));
    ELSIF held.state = 'archived' THEN
        PERFORM wakeful.refuse('WK409', format('company %L is archived', resume_company.company));
    ELSIF held.state = 'active' AND held.panic_at IS NULL THEN
        result.outcome := 'existing';
    ELSE
        UPDATE wakeful.company c SET state = 'active', paused_at = NULL, pause_reason = NULL, panic_at = NULL, panic_by = NULL
        WHERE c.company = resume_company.company;
        result.outcome := 'merged';
        PERFORM wakeful.record_audit(held.company, actor, 'resume', 'company',
            jsonb_build_object('state', held.state, 'reason', held.pause_reason, 'panic_at', held.panic_at), '{"state": "active"}');
        PERFORM wakeful.notify_gate(held.company, 'company', held.company);
    END IF;
    result.state := 'active';
    PERFORM wakeful.leave_company(former);
    RETURN result;
END $$;

-- Admits nothing more and asks every live run of the company to stop. Queued runs stay queued, and wait.
CREATE FUNCTION wakeful.panic_company(company text, reason text DEFAULT NULL, actor text DEFAULT NULL)
RETURNS wakeful.receipt LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE former text := wakeful.enter_company(company); result wakeful.receipt; held wakeful.company; r record;
BEGIN
    PERFORM wakeful.check_words(panic_company.reason, 'a reason');
    PERFORM wakeful.parse_actor(actor);
    -- Queued ones are locked too: a claim under way is waited for and then seen, a later one skips them.
    FOR r IN SELECT u.id, u.host, u.state FROM wakeful.run u
             WHERE u.company = panic_company.company AND u.state IN ('queued', 'starting', 'running')
             ORDER BY u.id FOR NO KEY UPDATE LOOP
        CONTINUE WHEN r.state = 'queued';
        UPDATE wakeful.run u SET state = 'stopping', stop_at = wakeful.now(),
            stop_by = coalesce(panic_company.actor, 'system:' || session_user),
            stop_reason = coalesce(panic_company.reason, 'panic')
        WHERE u.company = panic_company.company AND u.id = r.id;
        PERFORM wakeful.notify_run(panic_company.company, r.id, r.host);
    END LOOP;
    SELECT * INTO held FROM wakeful.company c WHERE c.company = panic_company.company FOR NO KEY UPDATE;
    IF held.company IS NULL THEN
        PERFORM wakeful.refuse('WK404', format('company %L does not exist', panic_company.company));
    END IF;
    result.outcome := CASE WHEN held.panic_at IS NULL THEN 'merged' ELSE 'existing' END;
    result.state := held.state;
    IF held.panic_at IS NULL THEN
        UPDATE wakeful.company c SET panic_at = wakeful.now(), panic_by = coalesce(actor, 'system:' || session_user)
        WHERE c.company = panic_company.company;
        PERFORM wakeful.record_audit(held.company, actor, 'panic', 'company', NULL, jsonb_build_object('reason', panic_company.reason));
    END IF;
    PERFORM wakeful.leave_company(former);
    RETURN result;
END $$;

-- Lifts a company's panic; a pause by a person stays. (resume_company lifts both.)
CREATE FUNCTION wakeful.lift_panic(company text, actor text DEFAULT NULL)
RETURNS wakeful.receipt LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE former text := wakeful.enter_company(company); result wakeful.receipt; held wakeful.company;
BEGIN
    PERFORM wakeful.parse_actor(actor);
    SELECT * INTO held FROM wakeful.company c WHERE c.company = lift_panic.company FOR NO KEY UPDATE;
    IF held.company IS NULL THEN
        PERFORM wakeful.refuse('WK404', format('company %L does not exist', lift_panic.company));
    END IF;
    result.outcome := CASE WHEN held.panic_at IS NULL THEN 'existing' ELSE 'merged' END;
    result.state := held.state;
    IF held.panic_at IS NOT NULL THEN
        UPDATE wakeful.company c SET panic_at = NULL, panic_by = NULL WHERE c.company = lift_panic.company;
        PERFORM wakeful.record_audit(held.company, actor, 'lift panic', 'company', jsonb_build_object('panic_at', held.panic_at), NULL);
        -- A company that is paused as well stays closed, but its waiting wakes have to say so.
        PERFORM wakeful.notify_gate(held.company, 'company', held.company);
    END IF;
    PERFORM wakeful.leave_company(former);
    RETURN result;
END $$;

CREATE FUNCTION wakeful.add_project(company text, project text, name text DEFAULT NULL, actor text DEFAULT NULL)
RETURNS wakeful.receipt LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE former text := wakeful.enter_company(company); result wakeful.receipt;
BEGIN
    PERFORM wakeful.parse_actor(actor);
    PERFORM wakeful.ensure_company(company);
    INSERT INTO wakeful.project (company, id, name) VALUES (add_project.company, project, add_project.name) ON CONFLICT DO NOTHING;
    result.outcome := CASE WHEN FOUND THEN 'inserted' ELSE 'existing' END;
    IF result.outcome = 'inserted' THEN
        PERFORM wakeful.record_audit(add_project.company, actor, 'add', 'project:' || project, NULL,
            jsonb_build_object('name', add_project.name));
    END IF;
    PERFORM wakeful.leave_company(former);
    RETURN result;
END $$;

-- A person's pause of a project that only its budget had paused makes the pause the person's.
CREATE FUNCTION wakeful.pause_project(company text, project text, actor text DEFAULT NULL)
RETURNS wakeful.receipt LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE former text := wakeful.enter_company(company); result wakeful.receipt; held wakeful.project;
BEGIN
    PERFORM wakeful.parse_actor(actor);
    SELECT * INTO held FROM wakeful.project p WHERE p.company = pause_project.company AND p.id = project FOR NO KEY UPDATE;
    IF held.id IS NULL THEN
        PERFORM wakeful.refuse('WK404', format('project %L does not exist in company %L', project, pause_project.company),
            'list them: wakeful project list');
    ELSIF held.pause_reason = 'manual' THEN
        result.outcome := 'existing';
    ELSE
        UPDATE wakeful.project p SET paused_at = coalesce(p.paused_at, wakeful.now()), pause_reason = 'manual'
        WHERE p.company = pause_project.company AND p.id = project;
        result.outcome := 'merged';
        PERFORM wakeful.record_audit(held.company, actor, 'pause', 'project:' || project,
            jsonb_build_object('reason', held.pause_reason), '{"reason": "manual"}');
    END IF;
    result.state := 'paused';
    PERFORM wakeful.leave_company(former);
    RETURN result;
END $$;

CREATE FUNCTION wakeful.resume_project(company text, project text, actor text DEFAULT NULL)
RETURNS wakeful.receipt LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE former text := wakeful.enter_company(company); result wakeful.receipt; held wakeful.project;
BEGIN
    PERFORM wakeful.parse_actor(actor);
    SELECT * INTO held FROM wakeful.project p WHERE p.company = resume_project.company AND p.id = project FOR NO KEY UPDATE;
    IF held.id IS NULL THEN
        PERFORM wakeful.refuse('WK404', format('project %L does not exist in company %L', project, resume_project.company),
            'list them: wakeful project list');
    ELSIF held.paused_at IS NULL THEN
        result.outcome := 'existing';
    ELSE
        UPDATE wakeful.project p SET paused_at = NULL, pause_reason = NULL
        WHERE p.company = resume_project.company AND p.id = project;
        result.outcome := 'merged';
        PERFORM wakeful.record_audit(held.company, actor, 'resume', 'project:' || project,
            jsonb_build_object('reason', held.pause_reason, 'paused_at', held.paused_at), NULL);
        PERFORM wakeful.notify_gate(held.company, 'project', held.id);
    END IF;
    result.state := 'active';
    PERFORM wakeful.leave_company(former);
    RETURN result;
END $$;

-- Adds an agent with its run contract, or replaces the contract of one that is there.
CREATE FUNCTION wakeful.add_agent(
    company text, agent text, command text[], name text DEFAULT NULL, cwd text DEFAULT NULL,
    env_allow text[] DEFAULT '{PATH,HOME,LANG,LC_ALL,TZ,TMPDIR}', env_values jsonb DEFAULT '{}',
    max_runtime interval DEFAULT '1 hour', silence_limit interval DEFAULT NULL, stop_grace interval DEFAULT '10 seconds',
    max_attempts integer DEFAULT 3, estimate numeric DEFAULT NULL, provider text DEFAULT NULL, account text DEFAULT NULL,
    max_concurrent_runs integer DEFAULT NULL, labels text[] DEFAULT '{}', host text DEFAULT NULL,
    reports_to text DEFAULT NULL, executor text DEFAULT 'local', actor text DEFAULT NULL,
    session_policy jsonb DEFAULT '{"mode": "reuse"}', reader jsonb DEFAULT NULL)
RETURNS wakeful.receipt LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    former text := wakeful.enter_company(company);
    result wakeful.receipt;
    held wakeful.agent;
    fresh wakeful.agent;
BEGIN
    PERFORM wakeful.parse_actor(actor);
    PERFORM wakeful.ensure_company(company);
    PERFORM wakeful.check_money(add_agent.estimate, 'the estimate');
    PERFORM wakeful.check_session_policy(add_agent.session_policy);
    PERFORM wakeful.check_reader(add_agent.reader);
    IF cardinality(add_agent.command) IS NULL OR cardinality(add_agent.command) = 0 OR add_agent.command[1] = '' THEN
        PERFORM wakeful.refuse('WK422', 'a command has at least one word', 'example: --run ''python3 agent.py''');
    END IF;
    -- Insert first: it waits for another open transaction that adds the same agent, which is then replaced.
    INSERT INTO wakeful.agent (company, id, name, command, cwd, env_allow, env_values, max_runtime, silence_limit,
        stop_grace, max_attempts, estimate, provider, account, max_concurrent_runs, labels, host, reports_to, executor,
        session_policy, reader)
    VALUES (add_agent.company, agent, add_agent.name, add_agent.command, add_agent.cwd, add_agent.env_allow,
        add_agent.env_values, add_agent.max_runtime, add_agent.silence_limit, add_agent.stop_grace,
        add_agent.max_attempts, add_agent.estimate, add_agent.provider, add_agent.account,
        add_agent.max_concurrent_runs, add_agent.labels, add_agent.host, add_agent.reports_to, add_agent.executor,
        add_agent.session_policy, add_agent.reader)
    ON CONFLICT (company, id) DO NOTHING RETURNING * INTO fresh;
    IF FOUND THEN
        result.outcome := 'inserted';
    ELSE
        SELECT * INTO held FROM wakeful.agent a WHERE a.company = add_agent.company AND a.id = agent FOR NO KEY UPDATE;
        UPDATE wakeful.agent a SET name = add_agent.name, command = add_agent.command, cwd = add_agent.cwd,
            env_allow = add_agent.env_allow, env_values = add_agent.env_values, max_runtime = add_agent.max_runtime,
            silence_limit = add_agent.silence_limit, stop_grace = add_agent.stop_grace,
            max_attempts = add_agent.max_attempts, estimate = add_agent.estimate, provider = add_agent.provider,
            account = add_agent.account, max_concurrent_runs = add_agent.max_concurrent_runs, labels = add_agent.labels,
            host = add_agent.host, reports_to = add_agent.reports_to, executor = add_agent.executor,
            session_policy = add_agent.session_policy, reader = add_agent.reader
        WHERE a.company = add_agent.company AND a.id = agent RETURNING * INTO fresh;
        result.outcome := CASE WHEN fresh IS DISTINCT FROM held THEN 'merged' ELSE 'existing' END;
        IF fresh.max_concurrent_runs IS DISTINCT FROM held.max_concurrent_runs
           AND coalesce(fresh.max_concurrent_runs, 2147483647) > coalesce(held.max_concurrent_runs, 2147483647) THEN
            PERFORM wakeful.notify_gate(fresh.company, 'concurrency', 'agent:' || fresh.id);
        END IF;
        IF (fresh.provider, fresh.account) IS DISTINCT FROM (held.provider, held.account) THEN
            PERFORM wakeful.notify_gate(fresh.company, 'agent', fresh.id);
        END IF;
        IF fresh.host IS DISTINCT FROM held.host THEN
            -- What was queued for the old host goes where the agent goes.
            UPDATE wakeful.run u SET host = fresh.host, host_fixed = fresh.host IS NOT NULL
            WHERE u.company = fresh.company AND u.agent = fresh.id AND u.state = 'queued' AND u.host IS DISTINCT FROM fresh.host;
        END IF;
        IF fresh.labels IS DISTINCT FROM held.labels THEN
            UPDATE wakeful.run u SET labels = fresh.labels
            WHERE u.company = fresh.company AND u.agent = fresh.id AND u.state = 'queued';
        END IF;
        IF (fresh.host, fresh.labels, fresh.executor) IS DISTINCT FROM (held.host, held.labels, held.executor) THEN
            -- Other dispatchers may take what is queued.
            PERFORM wakeful.notify('dispatch', fresh.company, NULL, NULL);
        END IF;
        IF fresh.estimate IS DISTINCT FROM held.estimate AND coalesce(fresh.estimate, 0) < coalesce(held.estimate, 0) THEN
            PERFORM wakeful.notify_gate(fresh.company, 'budget', b.id) FROM wakeful.budget b
            WHERE b.company = fresh.company;
        END IF;
    END IF;
    IF result.outcome <> 'existing' THEN
        PERFORM wakeful.record_audit(fresh.company, actor, 'add', 'agent:' || agent,
            to_jsonb(held) - 'env_values', to_jsonb(fresh) - 'env_values');
    END IF;
    result.state := coalesce(fresh.state, held.state);
    PERFORM wakeful.leave_company(former);
    RETURN result;
END $$;

CREATE FUNCTION wakeful.pause_agent(company text, agent text, actor text DEFAULT NULL)
RETURNS wakeful.receipt LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE former text := wakeful.enter_company(company); result wakeful.receipt; held wakeful.agent;
BEGIN
    PERFORM wakeful.parse_actor(actor);
    SELECT * INTO held FROM wakeful.agent a WHERE a.company = pause_agent.company AND a.id = agent FOR NO KEY UPDATE;
    IF held.id IS NULL THEN
        PERFORM wakeful.require_agent(pause_agent.company, agent);
    ELSIF held.state NOT IN ('active', 'paused') THEN
        PERFORM wakeful.refuse('WK409', format('agent %L is %s and cannot be paused', agent, held.state));
    ELSIF held.state = 'paused' AND held.pause_reason = 'manual' THEN
        result.outcome := 'existing';
    ELSE
        UPDATE wakeful.agent a SET state = 'paused', pause_reason = 'manual', paused_at = coalesce(a.paused_at, wakeful.now())
        WHERE a.company = pause_agent.company AND a.id = agent;
        result.outcome := 'merged';
        PERFORM wakeful.record_audit(held.company, actor, 'pause', 'agent:' || agent,
            jsonb_build_object('state', held.state, 'reason', held.pause_reason), '{"state": "paused", "reason": "manual"}');
    END IF;
    result.state := 'paused';
    PERFORM wakeful.leave_company(former);
    RETURN result;
END $$;

CREATE FUNCTION wakeful.resume_agent(company text, agent text, actor text DEFAULT NULL)
RETURNS wakeful.receipt LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE former text := wakeful.enter_company(company); result wakeful.receipt; held wakeful.agent;
BEGIN
    PERFORM wakeful.parse_actor(actor);
    SELECT * INTO held FROM wakeful.agent a WHERE a.company = resume_agent.company AND a.id = agent FOR NO KEY UPDATE;
    IF held.id IS NULL THEN
        PERFORM wakeful.require_agent(resume_agent.company, agent);
    ELSIF held.state = 'active' THEN
        result.outcome := 'existing';
    ELSIF held.state <> 'paused' THEN
        PERFORM wakeful.refuse('WK409', format('agent %L is %s and cannot be resumed', agent, held.state));
    ELSE
        UPDATE wakeful.agent a SET state = 'active', pause_reason = NULL, paused_at = NULL
        WHERE a.company = resume_agent.company AND a.id = agent;
        result.outcome := 'merged';
        PERFORM wakeful.record_audit(held.company, actor, 'resume', 'agent:' || agent,
            jsonb_build_object('state', held.state, 'reason', held.pause_reason), '{"state": "active"}');
        PERFORM wakeful.notify_gate(held.company, 'agent', held.id);
    END IF;
    result.state := 'active';
    PERFORM wakeful.leave_company(former);
    RETURN result;
END $$;

-- ── issues ──────────────────────────────────────────────────────────────────────────────────────────────

CREATE FUNCTION wakeful.create_issue(
    company text, issue text, title text DEFAULT NULL, body text DEFAULT NULL, project text DEFAULT NULL,
    parent text DEFAULT NULL, actor text DEFAULT NULL)
RETURNS wakeful.receipt LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE former text := wakeful.enter_company(company); result wakeful.receipt;
BEGIN
    PERFORM wakeful.parse_actor(actor);
    PERFORM wakeful.ensure_company(company);
    IF create_issue.project IS NOT NULL
       AND NOT EXISTS (SELECT FROM wakeful.project p WHERE p.company = create_issue.company AND p.id = create_issue.project) THEN
        PERFORM wakeful.refuse('WK404', format('project %L does not exist in company %L', create_issue.project, create_issue.company),
            format('create it: wakeful project add %s', create_issue.project));
    END IF;
    IF create_issue.parent = issue THEN
        PERFORM wakeful.refuse('WK422', format('issue %L cannot be its own parent', issue));
    ELSIF create_issue.parent IS NOT NULL THEN
        PERFORM wakeful.ensure_issue(create_issue.company, create_issue.parent);
    END IF;
    INSERT INTO wakeful.issue (company, id, title, body, project, parent)
    VALUES (create_issue.company, issue, create_issue.title, create_issue.body, create_issue.project, create_issue.parent)
    ON CONFLICT DO NOTHING;
    result.outcome := CASE WHEN FOUND THEN 'inserted' ELSE 'existing' END;
    IF result.outcome = 'inserted' THEN
        PERFORM wakeful.record_audit(create_issue.company, actor, 'create', 'issue:' || issue, NULL,
            jsonb_build_object('title', create_issue.title, 'project', create_issue.project, 'parent', create_issue.parent));
    END IF;
    SELECT i.status INTO result.state FROM wakeful.issue i WHERE i.company = create_issue.company AND i.id = issue;
    PERFORM wakeful.leave_company(former);
    RETURN result;
END $$;

CREATE FUNCTION wakeful.set_issue_status(company text, issue text, status text, actor text DEFAULT NULL)
RETURNS wakeful.receipt LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE former text := wakeful.enter_company(company); result wakeful.receipt; held wakeful.issue;
BEGIN
    PERFORM wakeful.parse_actor(actor);
    IF set_issue_status.status IS NULL OR set_issue_status.status NOT IN
       ('backlog', 'todo', 'in_progress', 'in_review', 'blocked', 'done', 'cancelled') THEN
        PERFORM wakeful.refuse('WK422', format('%L is no issue status', set_issue_status.status),
            'one of: backlog, todo, in_progress, in_review, blocked, done, cancelled');
    END IF;
    PERFORM wakeful.ensure_company(set_issue_status.company);
    PERFORM wakeful.ensure_issue(set_issue_status.company, issue);
    SELECT * INTO held FROM wakeful.issue i WHERE i.company = set_issue_status.company AND i.id = issue FOR NO KEY UPDATE;
    IF held.status = set_issue_status.status THEN
        result.outcome := 'existing';
    ELSE
        UPDATE wakeful.issue i SET status = set_issue_status.status, status_version = i.status_version + 1
        WHERE i.company = held.company AND i.id = held.id;
        result.outcome := 'merged';
        PERFORM wakeful.record_audit(held.company, actor, 'status', 'issue:' || issue,
            jsonb_build_object('status', held.status), jsonb_build_object('status', set_issue_status.status));
        IF (held.status IN ('done', 'cancelled')) <> (set_issue_status.status IN ('done', 'cancelled')) THEN
            PERFORM wakeful.notify_gate(held.company, 'issue', held.id);
        END IF;
        IF set_issue_status.status = 'done' THEN
            PERFORM wakeful.notify_dependents(held.company, held.id);
        END IF;
    END IF;
    result.state := set_issue_status.status;
    PERFORM wakeful.leave_company(former);
    RETURN result;
END $$;

-- ── wakes ───────────────────────────────────────────────────────────────────────────────────────────────

-- Takes the idempotency key for a new wake, or answers with the wake that holds it. Waits for another open
-- transaction that is taking the same key. An expired key is taken over under its lock.
CREATE FUNCTION wakeful.take_key(company text, key text, wake uuid) RETURNS uuid LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    held wakeful.wake_key;
    period interval := make_interval(days => (wakeful.setting_value('dedup_days', '7') #>> '{}')::integer);
BEGIN
    IF length(take_key.key) NOT BETWEEN 1 AND 200 THEN
        PERFORM wakeful.refuse('WK422', 'an idempotency key has 1 to 200 characters');
    END IF;
    LOOP
        INSERT INTO wakeful.wake_key (company, key, wake, expires_at)
        VALUES (take_key.company, take_key.key, take_key.wake, wakeful.now() + period) ON CONFLICT DO NOTHING;
        IF FOUND THEN
            RETURN NULL;
        END IF;
        SELECT * INTO held FROM wakeful.wake_key k
        WHERE k.company = take_key.company AND k.key = take_key.key FOR UPDATE;
        IF FOUND THEN
            IF held.expires_at > wakeful.now()
               OR EXISTS (SELECT FROM wakeful.wake w WHERE w.company = held.company AND w.id = held.wake AND w.ended_at IS NULL) THEN
                RETURN held.wake;
            END IF;
            UPDATE wakeful.wake_key k SET wake = take_key.wake, expires_at = wakeful.now() + period
            WHERE k.company = held.company AND k.key = held.key;
            RETURN NULL;
        END IF;
    END LOOP;
END $$;

CREATE FUNCTION wakeful.receipt_of(company text, wake uuid) RETURNS wakeful.receipt LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp
AS $$ SELECT ('existing', w.id, w.state, w.run)::wakeful.receipt FROM wakeful.wake w WHERE w.company = $1 AND w.id = $2 $$;

-- Says what is wrong with a request, if anything is.
CREATE FUNCTION wakeful.check_request(
    payload jsonb, at timestamptz, estimate numeric, source text, priority integer, kind text, actor text)
RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM wakeful.parse_actor(actor);
    PERFORM wakeful.check_payload(payload);
    PERFORM wakeful.check_moment(at);
    PERFORM wakeful.check_money(estimate, 'the estimate');
    IF source NOT IN ('assignment', 'on_demand', 'automation', 'timer') THEN
        PERFORM wakeful.refuse('WK422', format('%L is no source', source),
            'one of: assignment, on_demand, automation, timer');
    END IF;
    IF priority NOT BETWEEN -1000 AND 1000 THEN
        PERFORM wakeful.refuse('WK422', format('priority %s is not between -1000 and 1000', priority));
    END IF;
    IF kind IN ('task_retry', 'saved_comments', 'card', 'native_status', 'dispatch', 'supervisor', 'interrupt',
                'settlement', 'execution_wait') THEN
        PERFORM wakeful.refuse('WK422', format('wakes of kind %L are made by their own producers', kind));
    END IF;
END $$;

-- The call hosts make most, so its statements are few and its ordinary arguments are checked in one expression
-- (docs/performance.md); whatever is not ordinary goes through check_request.
CREATE FUNCTION wakeful.request_wake(
    company text, agent text, issue text DEFAULT NULL, at timestamptz DEFAULT NULL, key text DEFAULT NULL,
    payload jsonb DEFAULT '{}', priority integer DEFAULT 0, actor text DEFAULT NULL, source text DEFAULT 'on_demand',
    estimate numeric DEFAULT NULL, kind text DEFAULT 'request')
RETURNS wakeful.receipt LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    former CONSTANT text := coalesce(current_setting('wakeful.company', true), '');
    fresh CONSTANT uuid := wakeful.uuid7();
    known record;
    held uuid;
    result wakeful.receipt;
BEGIN
    -- enter_company, leave_company and notify_wake are written out here: this is the producer that hosts call most.
    IF company IS NULL OR length(company) NOT BETWEEN 1 AND 200 THEN
        PERFORM wakeful.enter_company(company);
    END IF;
    PERFORM set_config('wakeful.company', company, true);
    IF (kind = 'request' AND priority = 0 AND source = 'on_demand' AND estimate IS NULL
            AND octet_length(payload::text) <= 200  -- which has no room for too many levels
            AND coalesce(at BETWEEN '2000-01-01 00:00:00+00' AND '2100-12-31 00:00:00+00', true)
            AND coalesce(actor ~ '^(user|agent|system):.{1,200}$', true)) IS NOT TRUE THEN
        PERFORM wakeful.check_request(payload, at, estimate, source, priority, kind, actor);
    END IF;
    SELECT a.id AS agent, i.id AS issue, i.project INTO known
    FROM wakeful.agent a LEFT JOIN wakeful.issue i ON i.company = a.company AND i.id = request_wake.issue
    WHERE a.company = request_wake.company AND a.id = request_wake.agent;
    IF known.agent IS NULL THEN
        PERFORM wakeful.require_agent(request_wake.company, request_wake.agent);
    END IF;
    IF request_wake.issue IS DISTINCT FROM known.issue THEN
        known.project := wakeful.ensure_issue(request_wake.company, request_wake.issue, request_wake.agent);
    END IF;
    IF request_wake.key IS NOT NULL THEN
        held := wakeful.take_key(request_wake.company, request_wake.key, fresh);
        IF held IS NOT NULL THEN
            result := wakeful.receipt_of(request_wake.company, held);
            PERFORM set_config('wakeful.company', former, true);
            RETURN result;
        END IF;
    END IF;
    WITH asked AS (
        SELECT coalesce(request_wake.at, wakeful.now()) AS due, coalesce(request_wake.actor, 'system:' || session_user) AS actor
    ), saved AS (
        INSERT INTO wakeful.wake (company, id, kind, priority, agent, issue, project, source, actor_kind, actor, payload, key,
                                  due_at, effect_root, estimate)
        SELECT request_wake.company, fresh, request_wake.kind, request_wake.priority, request_wake.agent, request_wake.issue,
               known.project, request_wake.source, split_part(asked.actor, ':', 1),
               substr(asked.actor, strpos(asked.actor, ':') + 1), request_wake.payload, request_wake.key, asked.due, fresh,
               request_wake.estimate
        FROM asked
    ), noted AS (
        INSERT INTO wakeful.audit (company, actor, authenticated, verb, target, after)
        SELECT request_wake.company, asked.actor, 'database login ' || session_user, 'request', 'wake:' || fresh,
               jsonb_build_object('agent', request_wake.agent, 'issue', request_wake.issue)
        FROM asked
    )
    SELECT 'inserted', fresh, 'deferred', NULL INTO result
    FROM asked CROSS JOIN LATERAL pg_notify('wakeful', json_build_object('t', 'eligibility', 'c', request_wake.company,
        'w', fresh, 'o', request_wake.kind, 'at', extract('epoch' FROM asked.due))::text);
    PERFORM set_config('wakeful.company', former, true);
    RETURN result;
END $$;

-- A run that nobody has claimed keeps no issue from its new assignee: it ends, and what it was to carry waits for the
-- issue to come back, in the name of whoever asked for it. A review is not the assignee's, and stays. Called under the
-- locks of the run and its issue.
CREATE FUNCTION wakeful.make_room(queued wakeful.run, assignee text, actor text) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE carried wakeful.wake;
BEGIN
    SELECT * INTO carried FROM wakeful.wake w WHERE w.company = queued.company AND w.id = queued.wake;
    IF queued.state = 'queued' AND queued.kind = 'agent' AND carried.id IS NOT NULL AND carried.review IS NULL THEN
        PERFORM wakeful.stop_run(queued.company, queued.id, 'the issue went to ' || assignee, actor);
        BEGIN
            PERFORM wakeful.rearm_wake(queued.company, carried.id, NULL, carried.actor_kind || ':' || carried.actor);
        EXCEPTION WHEN SQLSTATE 'WK409' THEN
            NULL;  -- another wake carries it already, or nothing is left to carry: no reason to keep the issue
        END;
    END IF;
END $$;

-- Assigns an issue to 'agent:ID' or 'user:ID' (NULL: to nobody); an agent is woken for it.
CREATE FUNCTION wakeful.assign_issue(company text, issue text, assignee text, actor text DEFAULT NULL)
RETURNS wakeful.receipt LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    former text := wakeful.enter_company(company);
    result wakeful.receipt;
    held wakeful.issue;
    working wakeful.run;
    who record;
BEGIN
    PERFORM wakeful.parse_actor(actor);
    IF assign_issue.assignee IS NOT NULL THEN
        who := wakeful.parse_actor(assign_issue.assignee);
        IF who.kind = 'system' THEN
            PERFORM wakeful.refuse('WK422', format('assignee %L is not agent:ID or user:ID', assign_issue.assignee));
        ELSIF who.kind = 'agent' THEN
            PERFORM wakeful.require_agent(assign_issue.company, who.id);
        END IF;
    ELSE
        who := ROW(NULL::text, NULL::text);
    END IF;
    PERFORM wakeful.ensure_company(assign_issue.company);
    PERFORM wakeful.ensure_issue(assign_issue.company, assign_issue.issue);
    -- Locks the run that has the issue, if one does, then the issue.
    working := wakeful.lock_working_run(assign_issue.company, assign_issue.issue);
    SELECT * INTO held FROM wakeful.issue i WHERE i.company = assign_issue.company AND i.id = assign_issue.issue;
    result.state := held.status;
    IF assign_issue.assignee IS NOT DISTINCT FROM held.assignee_kind || ':' || held.assignee THEN
        result.outcome := 'existing';
        PERFORM wakeful.leave_company(former);
        RETURN result;
    END IF;
    UPDATE wakeful.issue i
    SET assignee_kind = split_part(assign_issue.assignee, ':', 1),
        assignee = substr(assign_issue.assignee, strpos(assign_issue.assignee, ':') + 1)
    WHERE i.company = held.company AND i.id = held.id;
    PERFORM wakeful.record_audit(held.company, actor, 'assign', 'issue:' || held.id,
        jsonb_build_object('assignee', held.assignee_kind || ':' || held.assignee), jsonb_build_object('assignee', assign_issue.assignee));
    PERFORM wakeful.notify_gate(held.company, 'issue', held.id);
    IF working.issue = held.id AND assign_issue.assignee <> 'agent:' || working.agent THEN
        PERFORM wakeful.make_room(working, assign_issue.assignee, assign_issue.actor);
    END IF;
    result.outcome := 'merged';
    IF assign_issue.assignee LIKE 'agent:%' THEN
        PERFORM wakeful.hand_over(held.company, held.id, substr(assign_issue.assignee, 7));
    END IF;
    IF assign_issue.assignee LIKE 'agent:%' AND held.status NOT IN ('done', 'cancelled') THEN
        result := wakeful.request_wake(company => held.company, agent => substr(assign_issue.assignee, 7), issue => held.id,
            payload => '{"reason": "assigned"}', actor => assign_issue.actor, source => 'assignment');
    END IF;
    PERFORM wakeful.leave_company(former);
    RETURN result;
END $$;

-- Saves a retry of a run, certified by that run's generation: due now, or (asked for in a chat) with the chat's action,
-- which it then waits for. It repeats the run's input, unless it brings its own.
CREATE FUNCTION wakeful.save_retry(company text, run uuid, payload jsonb, key text, actor text, in_chat boolean)
RETURNS wakeful.receipt LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    fresh CONSTANT uuid := wakeful.uuid7();
    action CONSTANT text := CASE WHEN save_retry.in_chat THEN fresh::text END;
    who record := wakeful.parse_actor(actor);
    source wakeful.run;
    origin wakeful.wake;
    held uuid;
BEGIN
    -- Shared with nobody who ends the run: an end either sees this wake, or this wake sees the end.
    SELECT * INTO source FROM wakeful.run u WHERE u.company = save_retry.company AND u.id = save_retry.run FOR SHARE;
    IF source.id IS NULL THEN
        PERFORM wakeful.refuse('WK404', format('run %s does not exist in company %L', save_retry.run, save_retry.company));
    ELSIF source.kind <> 'agent' THEN
        PERFORM wakeful.refuse('WK409', format('run %s is a supervisor run', source.id), 'use: wakeful run continue');
    ELSIF source.state = 'succeeded' THEN
        PERFORM wakeful.refuse('WK409', format('run %s succeeded; there is nothing to retry', source.id),
            format('wake its agent again: wakeful wake %s', source.agent));
    ELSIF save_retry.in_chat AND source.ended_at IS NULL THEN
        PERFORM wakeful.refuse('WK409', format('run %s has not ended', source.id), 'to have it repeated after its end: wakeful retry');
    END IF;
    SELECT * INTO origin FROM wakeful.wake w WHERE w.company = source.company AND w.id = source.wake;
    PERFORM wakeful.check_payload(coalesce(payload, '{}'));
    LOOP
        SELECT w.id INTO held FROM wakeful.wake w
        WHERE w.company = source.company AND w.certified_run = source.id AND w.kind = 'task_retry'
          AND (w.state = 'deferred' OR w.run IS NOT NULL);
        EXIT WHEN held IS NOT NULL;
        IF save_retry.key IS NOT NULL THEN
            held := wakeful.take_key(source.company, save_retry.key, fresh);
            EXIT WHEN held IS NOT NULL;
        END IF;
        INSERT INTO wakeful.wake (company, id, kind, priority, agent, issue, project, source, actor_kind, actor, payload, key,
                                  due_at, effect_root, certified_run, certified_generation, estimate, comments, card, card_status,
                                  review, chat_action, wait_gate, wait_key, wait_reason, wait_message, wait_since, opens_on)
        VALUES (source.company, fresh, 'task_retry', coalesce(origin.priority, 0), source.agent, source.issue, source.project,
                'on_demand', who.kind, who.id, coalesce(save_retry.payload, origin.payload, '{}'), save_retry.key,
                CASE WHEN action IS NULL THEN wakeful.now() END, fresh, source.id, source.generation, origin.estimate,
                source.comments, origin.card, origin.card_status, origin.review, action,
                CASE WHEN action IS NOT NULL THEN 'chat' END, action, CASE WHEN action IS NOT NULL THEN 'chat.unsettled' END,
                'chat action ' || action || ' has not been settled', CASE WHEN action IS NOT NULL THEN wakeful.wall() END,
                'the chat''s own settlement: wakeful chat settle ' || action)
        ON CONFLICT (company, certified_run) WHERE kind = 'task_retry' AND (state = 'deferred' OR run IS NOT NULL) DO NOTHING;
        IF FOUND AND action IS NOT NULL THEN
            INSERT INTO wakeful.chat_action (company, id, issue, agent, source_run, actor)
            VALUES (source.company, fresh, source.issue, source.agent, source.id, who.kind || ':' || who.id);
            PERFORM wakeful.record_audit(source.company, actor, 'chat retry', 'run:' || source.id, NULL, jsonb_build_object('wake', fresh));
            RETURN ('inserted', fresh, 'deferred', NULL)::wakeful.receipt;
        ELSIF FOUND THEN
            PERFORM wakeful.record_audit(source.company, actor, 'retry', 'run:' || source.id, NULL, jsonb_build_object('wake', fresh));
            PERFORM wakeful.notify_wake(source.company, fresh, 'task_retry', wakeful.now());
            RETURN ('inserted', fresh, 'deferred', NULL)::wakeful.receipt;
        END IF;
        -- Somebody else's retry of this run was committed meanwhile: the key is theirs to answer for.
        DELETE FROM wakeful.wake_key k WHERE k.company = source.company AND k.key = save_retry.key AND k.wake = fresh;
    END LOOP;
    RETURN wakeful.receipt_of(save_retry.company, held);
END $$;

-- Asks for a run in place of one that did not succeed. A second retry of one run, under any key, answers existing; if
-- the earlier wake ended without a run, a new one is saved.
CREATE FUNCTION wakeful.request_retry(
    company text, run uuid, payload jsonb DEFAULT NULL, key text DEFAULT NULL, actor text DEFAULT NULL)
RETURNS wakeful.receipt LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE former text := wakeful.enter_company(company); result wakeful.receipt;
BEGIN
    result := wakeful.save_retry(company, run, payload, key, actor, false);
    PERFORM wakeful.leave_company(former);
    RETURN result;
END $$;

-- A new wake with the input of an ended one; the chain keeps its effect key. One re-arm per wake.
CREATE FUNCTION wakeful.rearm_wake(company text, wake uuid, at timestamptz DEFAULT NULL, actor text DEFAULT NULL)
RETURNS wakeful.receipt LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    former text := wakeful.enter_company(company);
    fresh CONSTANT uuid := wakeful.uuid7();
    who record := wakeful.parse_actor(actor);
    old wakeful.wake;
    ran wakeful.run;
    held uuid;
    result wakeful.receipt;
BEGIN
    PERFORM wakeful.check_moment(rearm_wake.at);
    SELECT * INTO old FROM wakeful.wake w WHERE w.company = rearm_wake.company AND w.id = rearm_wake.wake;
    IF old.id IS NULL THEN
        PERFORM wakeful.refuse('WK404', format('wake %s does not exist in company %L', rearm_wake.wake, rearm_wake.company));
    ELSIF old.ended_at IS NULL THEN
        PERFORM wakeful.refuse('WK409', format('wake %s is still pending', old.id), 'nothing needs to be re-armed; see: wakeful why');
    END IF;
    SELECT * INTO ran FROM wakeful.run u WHERE u.company = old.company AND u.id = old.run;
    IF ran.id IS NOT NULL AND ran.ended_at IS NULL THEN
        PERFORM wakeful.refuse('WK409', format('run %s of this wake is still %s', ran.id, ran.state));
    END IF;
    -- What was edited or taken back while it was queued, its run knows.
    old.comments := coalesce(ran.comments, old.comments);
    IF old.kind = 'saved_comments' THEN
        old.comments := wakeful.undelivered(old.company, old.comments);
        IF old.comments = '{}' THEN
            PERFORM wakeful.refuse('WK409', format('wake %s has no comment left that no run was given', old.id),
                CASE WHEN ran.id IS NOT NULL THEN format('to repeat its run: wakeful retry %s', ran.id) END);
        END IF;
    END IF;
    INSERT INTO wakeful.wake (company, id, kind, priority, agent, issue, project, source, actor_kind, actor, payload, key,
                              due_at, effect_root, rearm_of, certified_run, certified_generation, estimate,
                              comments, card, card_status, review, decision)
    VALUES (old.company, fresh, old.kind, old.priority, old.agent, old.issue, old.project, old.source, who.kind, who.id,
            old.payload, old.key, coalesce(rearm_wake.at, wakeful.now()), old.effect_root, old.id,
            CASE WHEN old.certified_run IS NOT NULL THEN coalesce(ran.id, old.certified_run) END,
            CASE WHEN old.certified_run IS NOT NULL THEN coalesce(ran.generation, old.certified_generation) END,
            old.estimate, old.comments, old.card, old.card_status, old.review, old.decision)
    ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        SELECT w.id INTO held FROM wakeful.wake w WHERE w.company = old.company AND w.rearm_of = old.id;
        IF held IS NULL THEN
            SELECT w.id INTO held FROM wakeful.wake w
            WHERE w.company = old.company AND w.certified_run = coalesce(ran.id, old.certified_run) AND w.kind = 'task_retry'
              AND (w.state = 'deferred' OR w.run IS NOT NULL);
            PERFORM wakeful.refuse('WK409', format('wake %s already retries the run of this wake', held),
                'see it: wakeful why ' || held);
        END IF;
        result := wakeful.receipt_of(rearm_wake.company, held);
        PERFORM wakeful.leave_company(former);
        RETURN result;
    END IF;
    UPDATE wakeful.wake_key k SET wake = fresh WHERE k.company = old.company AND k.key = old.key AND k.wake = old.id;
    PERFORM wakeful.record_audit(old.company, actor, 'rearm', 'wake:' || old.id, NULL, jsonb_build_object('wake', fresh));
    PERFORM wakeful.notify_wake(w.company, w.id, w.owner, w.due_at) FROM wakeful.wake w WHERE w.company = old.company AND w.id = fresh;
    PERFORM wakeful.leave_company(former);
    RETURN ('inserted', fresh, 'deferred', NULL)::wakeful.receipt;
END $$;

-- Takes a pending wake back: a tombstone that stays.
CREATE FUNCTION wakeful.retire_wake(company text, wake uuid, reason text DEFAULT NULL, actor text DEFAULT NULL)
RETURNS wakeful.receipt LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE former text := wakeful.enter_company(company); result wakeful.receipt; held wakeful.wake;
BEGIN
    PERFORM wakeful.check_words(retire_wake.reason, 'a reason');
    PERFORM wakeful.parse_actor(actor);
    SELECT * INTO held FROM wakeful.wake w WHERE w.company = retire_wake.company AND w.id = retire_wake.wake FOR NO KEY UPDATE;
    IF held.id IS NULL THEN
        PERFORM wakeful.refuse('WK404', format('wake %s does not exist in company %L', retire_wake.wake, retire_wake.company));
    ELSIF held.ended_at IS NOT NULL THEN
        result := wakeful.receipt_of(held.company, held.id);
    ELSIF held.state = 'claimed' THEN
        PERFORM wakeful.refuse('WK409', format('a dispatcher has taken wake %s and is about to settle it', held.id),
            'try again in a minute: its claim has ended by then; see: wakeful why ' || held.id);
    ELSE
        UPDATE wakeful.wake w
        SET state = 'cancelled', ended_at = wakeful.now(), due_at = NULL, version = w.version + 1,
            reason = 'wake.taken_back', wait_message = coalesce(retire_wake.reason, w.wait_message)
        WHERE w.company = held.company AND w.id = held.id;
        PERFORM wakeful.record_audit(held.company, actor, 'retire', 'wake:' || held.id,
            jsonb_build_object('state', held.state), jsonb_build_object('state', 'cancelled', 'reason', retire_wake.reason));
        result := ('merged', held.id, 'cancelled', NULL)::wakeful.receipt;
    END IF;
    PERFORM wakeful.leave_company(former);
    RETURN result;
END $$;

-- Asks a run to stop: a row, and a hint to its host. A queued run ends here and now.
CREATE FUNCTION wakeful.stop_run(company text, run uuid, reason text DEFAULT NULL, actor text DEFAULT NULL)
RETURNS wakeful.receipt LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    former text := wakeful.enter_company(company);
    stopper CONSTANT text := coalesce(actor, 'system:' || session_user);
    held wakeful.run;
    result wakeful.receipt;
BEGIN
    PERFORM wakeful.check_words(stop_run.reason, 'a reason');
    PERFORM wakeful.parse_actor(actor);
    SELECT * INTO held FROM wakeful.run u WHERE u.company = stop_run.company AND u.id = stop_run.run FOR NO KEY UPDATE;
    IF held.id IS NULL THEN
        PERFORM wakeful.refuse('WK404', format('run %s does not exist in company %L', stop_run.run, stop_run.company));
    ELSIF held.ended_at IS NOT NULL OR held.state = 'stopping' THEN
        result := ('existing', held.wake, held.state, held.id)::wakeful.receipt;
    ELSIF held.state = 'queued' THEN
        PERFORM FROM wakeful.issue i WHERE i.company = held.company AND i.id = held.issue FOR NO KEY UPDATE;
        UPDATE wakeful.run u
        SET state = 'cancelled', ended_at = wakeful.now(), end_class = 'stopped', reason = 'run.stopped',
            stop_at = wakeful.now(), stop_by = stopper, stop_reason = stop_run.reason, evidence = 'contained',
            wait_gate = NULL, wait_key = NULL, wait_reason = NULL, wait_message = NULL, wait_since = NULL,
            opens_on = NULL, reopens_at = NULL
        WHERE u.company = held.company AND u.id = held.id;
        PERFORM wakeful.settle_runs(held.company, ARRAY[held.id]);
        result := ('merged', held.wake, 'cancelled', held.id)::wakeful.receipt;
    ELSE
        UPDATE wakeful.run u SET state = 'stopping', stop_at = wakeful.now(), stop_by = stopper, stop_reason = stop_run.reason
        WHERE u.company = held.company AND u.id = held.id;
        PERFORM wakeful.notify_run(held.company, held.id, held.host);
        result := ('merged', held.wake, 'stopping', held.id)::wakeful.receipt;
    END IF;
    IF result.outcome = 'merged' THEN
        PERFORM wakeful.record_audit(held.company, actor, 'stop', 'run:' || held.id,
            jsonb_build_object('state', held.state), jsonb_build_object('state', result.state, 'reason', stop_run.reason));
    END IF;
    PERFORM wakeful.leave_company(former);
    RETURN result;
END $$;

-- ── money ───────────────────────────────────────────────────────────────────────────────────────────────

-- Sets a policy for 'company', 'agent:ID' or 'project:ID'. More headroom than before, and any at all, signals.
CREATE FUNCTION wakeful.set_budget(
    company text, policy text, amount numeric, period text DEFAULT 'month', warn_percent integer DEFAULT 80,
    hard_stop boolean DEFAULT true, estimate numeric DEFAULT NULL, on_overrun text DEFAULT 'finish', actor text DEFAULT NULL)
RETURNS wakeful.receipt LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    former text := wakeful.enter_company(company);
    result wakeful.receipt;
    held wakeful.budget;
    fresh wakeful.budget;
    before numeric;
    after numeric;
    scope CONSTANT text := split_part(set_budget.policy, ':', 1);
    scope_id CONSTANT text := nullif(substr(set_budget.policy, length(split_part(set_budget.policy, ':', 1)) + 2), '');
BEGIN
    PERFORM wakeful.parse_actor(actor);
    PERFORM wakeful.ensure_company(set_budget.company);
    PERFORM wakeful.check_money(set_budget.amount, 'the limit');
    PERFORM wakeful.check_money(set_budget.estimate, 'the estimate');
    IF set_budget.amount IS NULL THEN
        PERFORM wakeful.refuse('WK422', 'a budget needs a limit');
    END IF;
    IF set_budget.period NOT IN ('month', 'lifetime') THEN
        PERFORM wakeful.refuse('WK422', format('%L is no budget period', set_budget.period), 'one of: month, lifetime');
    END IF;
    IF scope = 'agent' THEN
        PERFORM wakeful.require_agent(set_budget.company, scope_id);
    ELSIF scope = 'project' THEN
        PERFORM FROM wakeful.project p WHERE p.company = set_budget.company AND p.id = scope_id;
        IF NOT FOUND THEN
            PERFORM wakeful.refuse('WK404', format('project %L does not exist in company %L', scope_id, set_budget.company));
        END IF;
    ELSIF scope <> 'company' OR scope_id IS NOT NULL THEN
        PERFORM wakeful.refuse('WK422', format('%L is no budget scope', set_budget.policy), 'one of: company, agent:ID, project:ID');
    END IF;
    PERFORM wakeful.lock_limits(set_budget.company);
    SELECT * INTO held FROM wakeful.budget b WHERE b.company = set_budget.company AND b.id = set_budget.policy;
    before := wakeful.headroom(set_budget.company, set_budget.policy);
    INSERT INTO wakeful.budget AS b (company, id, scope, scope_id, amount, period, warn_percent, hard_stop, estimate, on_overrun)
    VALUES (set_budget.company, set_budget.policy, scope, scope_id, set_budget.amount, set_budget.period,
            set_budget.warn_percent, set_budget.hard_stop, set_budget.estimate, set_budget.on_overrun)
    ON CONFLICT (company, id) DO UPDATE
    SET amount = excluded.amount, period = excluded.period, warn_percent = excluded.warn_percent,
        hard_stop = excluded.hard_stop, estimate = excluded.estimate, on_overrun = excluded.on_overrun, changed_at = wakeful.now()
    WHERE (b.amount, b.period, b.warn_percent, b.hard_stop, b.estimate, b.on_overrun) IS DISTINCT FROM
          (excluded.amount, excluded.period, excluded.warn_percent, excluded.hard_stop, excluded.estimate, excluded.on_overrun)
    RETURNING * INTO fresh;
    result.outcome := CASE WHEN fresh.id IS NULL THEN 'existing' WHEN held.id IS NULL THEN 'inserted' ELSE 'merged' END;
    IF result.outcome <> 'existing' THEN
        after := wakeful.headroom(set_budget.company, set_budget.policy);
        PERFORM wakeful.record_audit(set_budget.company, actor, 'set', 'budget:' || set_budget.policy, to_jsonb(held), to_jsonb(fresh));
        IF after > 0 AND (after > before OR coalesce(fresh.estimate, 0) < coalesce(held.estimate, 0)) THEN
            PERFORM wakeful.notify_gate(set_budget.company, 'budget', set_budget.policy);
        END IF;
        IF scope = 'project' THEN
            PERFORM wakeful.check_project_budget(set_budget.company, scope_id);
        END IF;
    END IF;
    PERFORM wakeful.leave_company(former);
    RETURN result;
END $$;

-- Raises a policy's limit: to an amount, or by one.
CREATE FUNCTION wakeful.raise_budget(company text, policy text, amount numeric DEFAULT NULL, by_amount numeric DEFAULT NULL, actor text DEFAULT NULL)
RETURNS wakeful.receipt LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE former text := wakeful.enter_company(company); result wakeful.receipt; held wakeful.budget;
BEGIN
    IF (raise_budget.amount IS NULL) = (by_amount IS NULL) THEN
        PERFORM wakeful.refuse('WK422', 'a raise names the new limit, or by how much, not both');
    END IF;
    PERFORM wakeful.check_money(by_amount, 'the raise');
    PERFORM wakeful.lock_limits(raise_budget.company);
    SELECT * INTO held FROM wakeful.budget b WHERE b.company = raise_budget.company AND b.id = raise_budget.policy;
    IF held.id IS NULL THEN
        PERFORM wakeful.refuse('WK404', format('there is no budget %L in company %L', raise_budget.policy, raise_budget.company),
            format('set it: wakeful budget set %s AMOUNT', raise_budget.policy));
    ELSIF coalesce(raise_budget.amount, held.amount + by_amount) < held.amount THEN
        PERFORM wakeful.refuse('WK422', format('%s is less than the present limit %s', raise_budget.amount, held.amount),
            'to lower a limit: wakeful budget set');
    END IF;
    result := wakeful.set_budget(held.company, held.id, coalesce(raise_budget.amount, held.amount + by_amount), held.period,
        held.warn_percent, held.hard_stop, held.estimate, held.on_overrun, raise_budget.actor);
    PERFORM wakeful.leave_company(former);
    RETURN result;
END $$;

CREATE FUNCTION wakeful.add_spend(
    company text, amount numeric, agent text DEFAULT NULL, project text DEFAULT NULL, issue text DEFAULT NULL,
    run uuid DEFAULT NULL, key text DEFAULT NULL, provenance text DEFAULT 'reported', at timestamptz DEFAULT NULL,
    actor text DEFAULT NULL)
RETURNS wakeful.receipt LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    former text := wakeful.enter_company(company);
    result wakeful.receipt;
    ran wakeful.run;
    whose text := add_spend.project;
    stops boolean := false;
BEGIN
    PERFORM wakeful.parse_actor(actor);
    PERFORM wakeful.ensure_company(add_spend.company);
    PERFORM wakeful.check_money(add_spend.amount, 'the amount');
    PERFORM wakeful.check_moment(add_spend.at);
    IF add_spend.amount IS NULL OR (add_spend.provenance IN ('reported', 'estimated', 'unknown')) IS NOT TRUE THEN
        PERFORM wakeful.refuse('WK422', 'spend has an amount, and a provenance: reported, estimated or unknown');
    END IF;
    IF add_spend.run IS NOT NULL THEN
        stops := wakeful.lock_overrun(add_spend.company, add_spend.run);
        SELECT * INTO ran FROM wakeful.run u WHERE u.company = add_spend.company AND u.id = add_spend.run;
        IF ran.id IS NULL THEN
            PERFORM wakeful.refuse('WK404', format('run %s does not exist in company %L', add_spend.run, add_spend.company));
        END IF;
    END IF;
    whose := coalesce(whose, ran.project, (SELECT i.project FROM wakeful.issue i
                      WHERE i.company = add_spend.company AND i.id = coalesce(add_spend.issue, ran.issue)));
    INSERT INTO wakeful.spend (company, amount, agent, project, issue, run, attempt, key, provenance, at)
    VALUES (add_spend.company, add_spend.amount, coalesce(add_spend.agent, ran.agent), whose,
            coalesce(add_spend.issue, ran.issue), add_spend.run, ran.attempt, add_spend.key, add_spend.provenance,
            coalesce(add_spend.at, wakeful.now()))
    ON CONFLICT (company, key) WHERE key IS NOT NULL DO NOTHING;
    result.outcome := CASE WHEN FOUND THEN 'inserted' ELSE 'existing' END;
    IF result.outcome = 'inserted' THEN
        PERFORM wakeful.record_audit(add_spend.company, actor, 'spend', coalesce('run:' || add_spend.run, 'company'), NULL,
            jsonb_build_object('amount', add_spend.amount, 'agent', coalesce(add_spend.agent, ran.agent), 'project', whose));
        IF stops THEN
            PERFORM wakeful.stop_overrun(add_spend.company, add_spend.run);
        END IF;
        IF EXISTS (SELECT FROM wakeful.budget b WHERE b.company = add_spend.company AND b.id = 'project:' || whose) THEN
            PERFORM wakeful.check_project_budget(add_spend.company, whose);
        END IF;
    END IF;
    PERFORM wakeful.leave_company(former);
    RETURN result;
END $$;

-- ── instance ────────────────────────────────────────────────────────────────────────────────────────────

-- Changes a setting of the whole instance. The one signal that may ask for instance-wide reconstruction.
CREATE FUNCTION wakeful.set_setting(name text, value jsonb, actor text DEFAULT NULL)
RETURNS wakeful.receipt LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE result wakeful.receipt; held jsonb;
BEGIN
    PERFORM wakeful.parse_actor(actor);
    IF NOT wakeful.suits_setting(set_setting.name, set_setting.value) THEN
        PERFORM wakeful.refuse('WK422', format('setting %s cannot be %s', coalesce(set_setting.name, '(none)'), coalesce(set_setting.value::text, 'null')),
            'true or false: scheduler_enabled owners_enabled draining panic create_companies; 1 to 99999: retention_days dedup_days circuit_ends ramp_starts ramp_doubles');
    END IF;
    -- A row that is not there yet cannot be locked, so the name is.
    PERFORM pg_advisory_xact_lock(hashtextextended('wakeful setting ' || set_setting.name, 0));
    SELECT s.value INTO held FROM wakeful.setting s WHERE s.name = set_setting.name;
    INSERT INTO wakeful.setting AS s (name, value, changed_by)
    VALUES (set_setting.name, set_setting.value, coalesce(actor, 'system:' || session_user))
    ON CONFLICT (name) DO UPDATE SET value = excluded.value, changed_at = wakeful.now(), changed_by = excluded.changed_by
    WHERE s.value IS DISTINCT FROM excluded.value;
    result.outcome := CASE WHEN NOT FOUND THEN 'existing' WHEN held IS NULL THEN 'inserted' ELSE 'merged' END;
    result.state := set_setting.value #>> '{}';
    IF result.outcome <> 'existing' THEN
        INSERT INTO wakeful.instance_audit (actor, authenticated, verb, target, before, after)
        VALUES (coalesce(actor, 'system:' || session_user), 'database login ' || session_user, 'set',
                'setting:' || set_setting.name, held, set_setting.value);
        PERFORM pg_notify('wakeful', json_build_object('t', 'settings', 's', set_setting.name)::text);
    END IF;
    RETURN result;
END $$;

-- A host opens its own gate, in its own transaction.
CREATE FUNCTION wakeful.signal_gate(company text, gate text, key text)
RETURNS wakeful.receipt LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE former text := wakeful.enter_company(company);
BEGIN
    IF (length(gate) BETWEEN 1 AND 200 AND length(key) BETWEEN 1 AND 200) IS NOT TRUE THEN
        PERFORM wakeful.refuse('WK422', 'a gate and its key have 1 to 200 characters each');
    END IF;
    PERFORM wakeful.notify_gate(company, gate, key);
    PERFORM wakeful.leave_company(former);
    RETURN ('merged', NULL, NULL, NULL)::wakeful.receipt;
END $$;

-- ── who may call what ───────────────────────────────────────────────────────────────────────────────────

SELECT wakeful.close_functions();
SELECT wakeful.open_producers();
GRANT EXECUTE ON FUNCTION wakeful.now(), wakeful.wall(), wakeful.uuid7(), wakeful.tenant(), wakeful.window_start(text),
    wakeful.spent(text, text, text, timestamptz), wakeful.reserved(text, text)
    TO wakeful_host, wakeful_scheduler, wakeful_viewer;
GRANT EXECUTE ON FUNCTION wakeful.settle_runs(text, uuid[]), wakeful.check_project_budget(text, text),
    wakeful.lock_limits(text), wakeful.notify(text, text, text, text), wakeful.notify_gate(text, text, text),
    wakeful.notify_run(text, uuid, text), wakeful.notify_wake(text, uuid, text, timestamptz),
    wakeful.setting_value(text, jsonb), wakeful.refuse(text, text, text)
    TO wakeful_scheduler;
