-- The records of wakeful: tables, constraints, guards, indexes, row-level security.
--
-- A tour. `company` is the tenant and leads every key. `agent`, `project` and `issue` are the host's own
-- things, by the host's own ids. A `wake` is one saved request to run an agent; `wake_key` remembers which
-- idempotency key made it. When its gates are open, a wake becomes one `run`. `budget` says what may be
-- spent, `spend` what was, `reservation` what admitted runs still may. Instance tables (host, setting,
-- clock, epoch, instance_audit, migration) belong to no company.
--
-- Lock order of every transaction: runs (the writer's own, the one that a change is about), issues, sessions (agent, issue,
-- key), what hangs on an issue (comments, cards, holds, recovery actions), wakes, chat actions, waits, agent runs of a wave,
-- the company's limits lock, circuits, projects (only to pause or resume them), provider accounts; of each kind ascending.
--
-- Time comes from two functions: wakeful.now() (statement time, STABLE, so it stays an index condition) and
-- wakeful.wall() (clock time, for grace and leases, since a host's transaction may be long). A test clock
-- replaces both at once by CREATE OR REPLACE; they then share the one row of wakeful.clock.

CREATE FUNCTION wakeful.now() RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE
AS $$ SELECT pg_catalog.statement_timestamp() $$;

CREATE FUNCTION wakeful.wall() RETURNS timestamptz LANGUAGE sql VOLATILE PARALLEL SAFE
AS $$ SELECT pg_catalog.clock_timestamp() $$;

-- UUIDv7 (RFC 9562): 48 bits of milliseconds, version, 12 bits of the millisecond's fraction, then random.
CREATE FUNCTION wakeful.uuid7() RETURNS uuid LANGUAGE sql VOLATILE PARALLEL SAFE
AS $$
SELECT pg_catalog.encode(pg_catalog.overlay(
         pg_catalog.uuid_send(pg_catalog.gen_random_uuid()),
         pg_catalog.int8send(((t.us / 1000) << 16) | 28672 | ((t.us % 1000) * 4096 / 1000)),
         1, 8), 'hex')::uuid
FROM (SELECT (pg_catalog.extract('epoch', pg_catalog.clock_timestamp()) * 1000000)::bigint AS us) AS t
$$;

CREATE FUNCTION wakeful.tenant() RETURNS text LANGUAGE sql STABLE PARALLEL SAFE
AS $$ SELECT pg_catalog.current_setting('wakeful.company', true) $$;

-- Ids are the host's own strings: 1-200 characters (PostgreSQL text cannot hold NUL).
CREATE DOMAIN wakeful.id AS text CHECK (length(VALUE) BETWEEN 1 AND 200);
CREATE DOMAIN wakeful.money AS numeric(18, 6) CHECK (VALUE >= 0 AND VALUE <> 'NaN');
-- Absurd times cannot be read by every driver, so they are refused at the door.
CREATE DOMAIN wakeful.moment AS timestamptz
    CHECK (VALUE >= '2000-01-01 00:00:00+00' AND VALUE < '2101-01-01 00:00:00+00');

-- ── instance ────────────────────────────────────────────────────────────────────────────────────────────

CREATE TABLE wakeful.clock (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    shift interval NOT NULL DEFAULT '0'
);
INSERT INTO wakeful.clock DEFAULT VALUES;

CREATE TABLE wakeful.epoch (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    number integer NOT NULL DEFAULT 1 CHECK (number > 0)
);
INSERT INTO wakeful.epoch DEFAULT VALUES;

-- Whether a value suits a setting: what reads settings trusts them, and a bad one would stop everything.
CREATE FUNCTION wakeful.suits_setting(name text, value jsonb) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$ SELECT coalesce(CASE
    WHEN $1 IN ('scheduler_enabled', 'owners_enabled', 'draining', 'panic', 'create_companies')
        THEN pg_catalog.jsonb_typeof($2) = 'boolean'
    WHEN $1 IN ('retention_days', 'dedup_days', 'circuit_ends', 'ramp_starts', 'ramp_doubles')
        THEN pg_catalog.jsonb_typeof($2) = 'number' AND ($2 #>> '{}') ~ '^[1-9][0-9]{0,4}$'
    END, false) $$;

CREATE TABLE wakeful.setting (
    name wakeful.id PRIMARY KEY,
    value jsonb NOT NULL,
    changed_at timestamptz NOT NULL DEFAULT wakeful.now(),
    changed_by text NOT NULL,
    CHECK (wakeful.suits_setting(name, value))
);

CREATE TABLE wakeful.host (
    id wakeful.id PRIMARY KEY,
    machine text,
    labels text[] NOT NULL DEFAULT '{}',
    seen_at timestamptz NOT NULL DEFAULT wakeful.now(),
    dead_at timestamptz,
    dead_by text
);

CREATE TABLE wakeful.instance_audit (
    id uuid PRIMARY KEY DEFAULT wakeful.uuid7(),
    at timestamptz NOT NULL DEFAULT wakeful.now(),
    actor text NOT NULL,
    authenticated text NOT NULL,
    verb text NOT NULL,
    target text NOT NULL,
    before jsonb,
    after jsonb
);

-- ── who and what ────────────────────────────────────────────────────────────────────────────────────────

CREATE TABLE wakeful.company (
    company wakeful.id PRIMARY KEY,
    name text,
    state text NOT NULL DEFAULT 'active' CHECK (state IN ('active', 'paused', 'archived')),
    paused_at timestamptz,
    pause_reason text,
    panic_at timestamptz,
    panic_by text,
    created_at timestamptz NOT NULL DEFAULT wakeful.now()
);

CREATE TABLE wakeful.project (
    company wakeful.id NOT NULL REFERENCES wakeful.company,
    id wakeful.id NOT NULL,
    name text,
    paused_at timestamptz,
    pause_reason text CHECK (pause_reason IN ('manual', 'budget', 'system')),
    archived_at timestamptz,
    created_at timestamptz NOT NULL DEFAULT wakeful.now(),
    PRIMARY KEY (company, id),
    CHECK ((paused_at IS NULL) = (pause_reason IS NULL))
);

-- The names in a JSON object; a viewer may know which variables an agent is given, not what is in them.
CREATE FUNCTION wakeful.names_in(document jsonb) RETURNS text[] LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
SELECT ARRAY(SELECT k FROM pg_catalog.jsonb_object_keys(CASE WHEN pg_catalog.jsonb_typeof($1) = 'object' THEN $1 END) AS k
             ORDER BY k)
$$;

CREATE TABLE wakeful.agent (
    company wakeful.id NOT NULL REFERENCES wakeful.company,
    id wakeful.id NOT NULL,
    name text,
    state text NOT NULL DEFAULT 'active'
        CHECK (state IN ('active', 'paused', 'pending_approval', 'terminated', 'archived')),
    paused_at timestamptz,
    pause_reason text CHECK (pause_reason IN ('manual', 'budget', 'system')),
    reports_to text,
    max_concurrent_runs integer CHECK (max_concurrent_runs > 0),
    -- the run contract
    executor text NOT NULL DEFAULT 'local',
    command text[] NOT NULL CHECK (cardinality(command) > 0),
    cwd text,
    env_allow text[] NOT NULL DEFAULT '{PATH,HOME,LANG,LC_ALL,TZ,TMPDIR}',
    env_values jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(env_values) = 'object'),
    env_names text[] GENERATED ALWAYS AS (wakeful.names_in(env_values)) STORED,
    max_runtime interval DEFAULT '1 hour' CHECK (max_runtime > '0'),
    silence_limit interval CHECK (silence_limit > '0'),
    stop_grace interval NOT NULL DEFAULT '10 seconds' CHECK (stop_grace >= '0'),
    max_attempts integer NOT NULL DEFAULT 3 CHECK (max_attempts > 0),
    estimate wakeful.money,
    provider text,
    account text,
    session_policy jsonb NOT NULL DEFAULT '{"mode": "reuse"}',
    labels text[] NOT NULL DEFAULT '{}',
    host text,
    created_at timestamptz NOT NULL DEFAULT wakeful.now(),
    PRIMARY KEY (company, id)
);

CREATE TABLE wakeful.issue (
    company wakeful.id NOT NULL REFERENCES wakeful.company,
    id wakeful.id NOT NULL,
    title text,
    body text,
    parent wakeful.id,
    project wakeful.id,
    assignee_kind text CHECK (assignee_kind IN ('agent', 'user')),
    assignee text,
    reviewer text,
    status text NOT NULL DEFAULT 'todo'
        CHECK (status IN ('backlog', 'todo', 'in_progress', 'in_review', 'blocked', 'done', 'cancelled')),
    status_version integer NOT NULL DEFAULT 1,
    execution_run uuid,
    execution_locked_at timestamptz,
    created_at timestamptz NOT NULL DEFAULT wakeful.now(),
    PRIMARY KEY (company, id),
    FOREIGN KEY (company, parent) REFERENCES wakeful.issue,
    FOREIGN KEY (company, project) REFERENCES wakeful.project,
    CHECK ((assignee IS NULL) = (assignee_kind IS NULL)),
    CHECK ((execution_run IS NULL) = (execution_locked_at IS NULL))
);
CREATE INDEX issue_parent ON wakeful.issue (company, parent) WHERE parent IS NOT NULL;

-- ── wakes and runs ──────────────────────────────────────────────────────────────────────────────────────

CREATE TABLE wakeful.run (
    company wakeful.id NOT NULL REFERENCES wakeful.company,
    id uuid NOT NULL DEFAULT wakeful.uuid7(),
    kind text NOT NULL DEFAULT 'agent' CHECK (kind IN ('agent', 'supervisor')),
    state text NOT NULL DEFAULT 'queued' CHECK (state IN ('queued', 'starting', 'running', 'suspended',
        'stopping', 'succeeded', 'failed', 'cancelled', 'lost')),
    generation integer NOT NULL DEFAULT 1 CHECK (generation > 0),
    attempt integer NOT NULL DEFAULT 0 CHECK (attempt >= 0),
    priority integer NOT NULL DEFAULT 0,
    agent wakeful.id NOT NULL,
    issue wakeful.id,
    project wakeful.id,
    wake uuid,
    wave_slot text,
    retry_of uuid,
    -- in whose name it acts; the comments it is given, in order; the saved receipt that its cancellation releases
    authority text,
    comments text[] NOT NULL DEFAULT '{}',
    named_wake uuid,
    estimate wakeful.money,
    labels text[] NOT NULL DEFAULT '{}',
    host text,
    host_fixed boolean NOT NULL DEFAULT false,
    executor text,
    claimed_by text,
    claimed_at timestamptz,
    renew_by timestamptz,
    queued_at timestamptz NOT NULL DEFAULT wakeful.now(),
    started_at timestamptz,
    ended_at timestamptz,
    wait_gate text,
    wait_key text,
    wait_reason text,
    wait_message text,
    wait_since timestamptz,
    opens_on text,
    reopens_at timestamptz,
    stop_at timestamptz,
    stop_by text,
    stop_reason text,
    uncertain_at timestamptz,
    exit_code integer,
    exit_signal integer,
    end_class text,
    evidence text CHECK (evidence IN ('contained', 'waited', 'attested', 'reported')),
    reason text,
    message text,
    error text,
    result jsonb,
    directory text,
    stdout_bytes bigint,
    stdout_sha256 text,
    stdout_tail text,
    stdout_altered boolean,
    stdout_truncated boolean,
    stderr_bytes bigint,
    stderr_sha256 text,
    stderr_tail text,
    stderr_altered boolean,
    stderr_truncated boolean,
    created_at timestamptz NOT NULL DEFAULT wakeful.now(),
    shard smallint GENERATED ALWAYS AS ((hashtextextended(company, 0) & 15)::smallint) STORED,
    PRIMARY KEY (company, id),
    FOREIGN KEY (company, agent) REFERENCES wakeful.agent,
    FOREIGN KEY (company, issue) REFERENCES wakeful.issue,
    CHECK ((wait_gate IS NULL) = (wait_reason IS NULL)),
    CHECK (wait_gate IS NULL OR state = 'queued'),
    CHECK ((ended_at IS NULL) = (state IN ('queued', 'starting', 'running', 'suspended', 'stopping')))
);
-- At most one live run per issue, wave slots apart; at most one run per wake.
CREATE UNIQUE INDEX run_live_on_issue ON wakeful.run (company, issue)
    WHERE issue IS NOT NULL AND wave_slot IS NULL
      AND state IN ('queued', 'starting', 'running', 'suspended', 'stopping');
CREATE UNIQUE INDEX run_of_wake ON wakeful.run (company, wake) WHERE wake IS NOT NULL;
CREATE INDEX run_claimable ON wakeful.run (company, priority, queued_at, id)
    WHERE state = 'queued' AND wait_gate IS NULL;
CREATE INDEX run_waiting ON wakeful.run (company, wait_gate, wait_key, id)
    WHERE state = 'queued' AND wait_gate IS NOT NULL;
CREATE INDEX run_on_host ON wakeful.run (host, renew_by) WHERE state IN ('starting', 'running', 'stopping');
-- For counting only. Look-ups by key tell live runs by state: this index would tempt a planner that takes live runs for
-- rare to read all of a company's for one.
CREATE INDEX run_live_of_agent ON wakeful.run (company, agent) WHERE ended_at IS NULL;
CREATE INDEX run_of_issue ON wakeful.run (company, issue, id) WHERE issue IS NOT NULL;
CREATE INDEX run_with_comments ON wakeful.run (company, issue) WHERE comments <> '{}';
CREATE INDEX run_names_wake ON wakeful.run (company, id) WHERE named_wake IS NOT NULL AND state = 'cancelled';
CREATE INDEX run_retry_of ON wakeful.run (company, retry_of) WHERE retry_of IS NOT NULL;
CREATE INDEX run_ended ON wakeful.run (company, ended_at, id) WHERE ended_at IS NOT NULL;

CREATE TABLE wakeful.wake (
    company wakeful.id NOT NULL REFERENCES wakeful.company,
    id uuid NOT NULL DEFAULT wakeful.uuid7(),
    kind wakeful.id NOT NULL,
    state text NOT NULL DEFAULT 'deferred' CHECK (state IN ('deferred', 'queued', 'claimed', 'error',
        'linked', 'coalesced', 'skipped', 'retired', 'settled', 'cancelled', 'failed')),
    priority integer NOT NULL DEFAULT 0 CHECK (priority BETWEEN -1000 AND 1000),
    version integer NOT NULL DEFAULT 1,
    agent wakeful.id NOT NULL,
    issue wakeful.id,
    project wakeful.id,
    source text NOT NULL DEFAULT 'on_demand' CHECK (source IN ('assignment', 'on_demand', 'automation', 'timer')),
    actor_kind text NOT NULL CHECK (actor_kind IN ('user', 'agent', 'system')),
    actor wakeful.id NOT NULL,
    payload jsonb NOT NULL DEFAULT '{}',
    key text,
    requested_at wakeful.moment NOT NULL DEFAULT wakeful.now(),
    created_at timestamptz NOT NULL DEFAULT wakeful.now(),
    due_at wakeful.moment,
    grace_from timestamptz,
    examined_at timestamptz,
    ended_at timestamptz,
    claimed_at timestamptz,
    claimed_by text,
    wait_gate text,
    wait_key text,
    wait_reason text,
    wait_message text,
    wait_since timestamptz,
    opens_on text,
    reopens_at timestamptz,
    reason text,
    error text,
    error_at timestamptz,
    failures integer NOT NULL DEFAULT 0,
    run uuid,
    coalesced_into uuid,
    rearm_of uuid,
    effect_root uuid NOT NULL,
    -- of a recurrence: the effect root of the wake before it, which has one successor however often it is re-armed
    follows uuid,
    interrupt_by text,
    interrupt_at timestamptz,
    interrupted_run uuid,
    chat_action text,
    chat_outcome text,
    comments text[] NOT NULL DEFAULT '{}',
    card text,
    card_status text,
    certified_run uuid,
    certified_generation integer,
    review text,
    decision uuid,
    estimate wakeful.money,
    -- Who times the row: one CASE, so the owners' predicates are disjoint and complete by construction.
    owner text GENERATED ALWAYS AS (CASE
        WHEN interrupt_at IS NOT NULL THEN 'interrupt'
        WHEN chat_action IS NOT NULL AND chat_outcome IS NULL THEN 'settlement'
        WHEN wait_reason IS NOT NULL THEN 'execution_wait'
        WHEN kind = 'card' THEN 'saved_comments'
        WHEN kind = 'dispatch' THEN 'native_status'
        ELSE kind END) STORED,
    shard smallint GENERATED ALWAYS AS ((hashtextextended(company, 0) & 15)::smallint) STORED,
    PRIMARY KEY (company, id),
    FOREIGN KEY (company, agent) REFERENCES wakeful.agent,
    FOREIGN KEY (company, issue) REFERENCES wakeful.issue,
    CHECK ((wait_gate IS NULL) = (wait_reason IS NULL)),
    CHECK ((certified_run IS NULL) = (certified_generation IS NULL)),
    CHECK (octet_length(payload::text) <= 65536),
    CHECK ((ended_at IS NULL) = (state IN ('deferred', 'queued', 'claimed', 'error')))
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0,
        autovacuum_analyze_scale_factor = 0.02);
CREATE INDEX wake_window ON wakeful.wake (owner, shard, due_at, company, id)
    WHERE due_at IS NOT NULL AND state IN ('deferred', 'queued', 'claimed', 'error');
CREATE INDEX wake_fair ON wakeful.wake (owner, company, priority, due_at, id)
    WHERE due_at IS NOT NULL AND state IN ('deferred', 'queued', 'claimed', 'error');
CREATE INDEX wake_parked ON wakeful.wake (company, wait_gate, wait_key, id)
    WHERE wait_gate IS NOT NULL AND state IN ('deferred', 'queued', 'claimed', 'error');
CREATE INDEX wake_open_on_issue ON wakeful.wake (company, issue, id)
    WHERE issue IS NOT NULL AND state IN ('deferred', 'queued', 'claimed', 'error');
CREATE INDEX wake_open_of_agent ON wakeful.wake (company, agent, id)
    WHERE state IN ('deferred', 'queued', 'claimed', 'error');
CREATE INDEX wake_ended ON wakeful.wake (company, ended_at, id) WHERE ended_at IS NOT NULL;
CREATE UNIQUE INDEX wake_follows ON wakeful.wake (company, follows) WHERE follows IS NOT NULL;
CREATE UNIQUE INDEX wake_rearm ON wakeful.wake (company, rearm_of) WHERE rearm_of IS NOT NULL;
-- A run is retried by one wake at a time; one that ended without a run makes room for a new one.
CREATE UNIQUE INDEX wake_retry_of ON wakeful.wake (company, certified_run)
    WHERE kind = 'task_retry' AND (state = 'deferred' OR run IS NOT NULL);

CREATE TABLE wakeful.wake_key (
    company wakeful.id NOT NULL REFERENCES wakeful.company,
    key wakeful.id NOT NULL,
    wake uuid NOT NULL,
    expires_at timestamptz NOT NULL,
    PRIMARY KEY (company, key)
);

-- ── money ───────────────────────────────────────────────────────────────────────────────────────────────

-- One policy per scope: id is 'company', 'agent:<id>' or 'project:<id>'.
CREATE TABLE wakeful.budget (
    company wakeful.id NOT NULL REFERENCES wakeful.company,
    id text NOT NULL,
    scope text NOT NULL CHECK (scope IN ('company', 'agent', 'project')),
    scope_id text,
    amount wakeful.money NOT NULL,
    period text NOT NULL DEFAULT 'month' CHECK (period IN ('month', 'lifetime')),
    warn_percent integer NOT NULL DEFAULT 80 CHECK (warn_percent BETWEEN 1 AND 100),
    hard_stop boolean NOT NULL DEFAULT true,
    estimate wakeful.money,
    on_overrun text NOT NULL DEFAULT 'finish' CHECK (on_overrun IN ('finish', 'stop')),
    changed_at timestamptz NOT NULL DEFAULT wakeful.now(),
    PRIMARY KEY (company, id),
    CHECK (id = CASE WHEN scope = 'company' THEN 'company' ELSE scope || ':' || scope_id END),
    CHECK ((scope = 'company') = (scope_id IS NULL))
);

CREATE TABLE wakeful.spend (
    company wakeful.id NOT NULL REFERENCES wakeful.company,
    id uuid NOT NULL DEFAULT wakeful.uuid7(),
    amount wakeful.money NOT NULL,
    agent text,
    project text,
    issue text,
    run uuid,
    key wakeful.id,
    provenance text NOT NULL DEFAULT 'reported' CHECK (provenance IN ('reported', 'estimated', 'unknown')),
    at wakeful.moment NOT NULL DEFAULT wakeful.now(),
    PRIMARY KEY (company, id)
);
CREATE UNIQUE INDEX spend_key ON wakeful.spend (company, key) WHERE key IS NOT NULL;
CREATE INDEX spend_of_company ON wakeful.spend (company, at) INCLUDE (amount);
CREATE INDEX spend_of_agent ON wakeful.spend (company, agent, at) INCLUDE (amount) WHERE agent IS NOT NULL;
CREATE INDEX spend_of_project ON wakeful.spend (company, project, at) INCLUDE (amount) WHERE project IS NOT NULL;
CREATE INDEX spend_of_run ON wakeful.spend (company, run) INCLUDE (amount) WHERE run IS NOT NULL;

CREATE TABLE wakeful.reservation (
    company wakeful.id NOT NULL,
    run uuid NOT NULL,
    policy text NOT NULL,
    kind text NOT NULL DEFAULT 'run',
    slot integer NOT NULL DEFAULT 0,
    amount wakeful.money NOT NULL,
    state text NOT NULL DEFAULT 'reserved' CHECK (state IN ('reserved', 'in_flight', 'settled', 'released',
        'expired', 'indeterminate', 'reconciled')),
    deadline timestamptz,
    created_at timestamptz NOT NULL DEFAULT wakeful.now(),
    ended_at timestamptz,
    PRIMARY KEY (company, run, policy, kind, slot),
    FOREIGN KEY (company, run) REFERENCES wakeful.run ON DELETE CASCADE
);
CREATE INDEX reservation_live ON wakeful.reservation (company, policy) INCLUDE (amount)
    WHERE state IN ('reserved', 'in_flight', 'indeterminate');

-- ── journals and recovery ───────────────────────────────────────────────────────────────────────────────

-- No foreign key: each row is written beside the row it tells of, which has one.
CREATE TABLE wakeful.audit (
    company wakeful.id NOT NULL,
    id uuid NOT NULL DEFAULT wakeful.uuid7(),
    at timestamptz NOT NULL DEFAULT wakeful.now(),
    actor text NOT NULL,
    authenticated text NOT NULL,
    verb text NOT NULL,
    target text NOT NULL,
    before jsonb,
    after jsonb,
    PRIMARY KEY (company, id)
);

-- Reports of overtaken generations: refused, and kept as refused.
CREATE TABLE wakeful.refused_report (
    company wakeful.id NOT NULL REFERENCES wakeful.company,
    id uuid NOT NULL DEFAULT wakeful.uuid7(),
    at timestamptz NOT NULL DEFAULT wakeful.now(),
    run uuid NOT NULL,
    generation integer NOT NULL,
    report jsonb NOT NULL,
    PRIMARY KEY (company, id),
    UNIQUE (company, run, generation)
);

CREATE TABLE wakeful.recovery_action (
    company wakeful.id NOT NULL REFERENCES wakeful.company,
    id uuid NOT NULL DEFAULT wakeful.uuid7(),
    run uuid,
    issue wakeful.id,
    state text NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'resolved')),
    cause text NOT NULL,
    opened_at timestamptz NOT NULL DEFAULT wakeful.now(),
    resolved_at timestamptz,
    resolved_by text,
    outcome text,
    PRIMARY KEY (company, id),
    FOREIGN KEY (company, issue) REFERENCES wakeful.issue,
    CHECK ((state = 'resolved') = (resolved_at IS NOT NULL))
);
CREATE UNIQUE INDEX recovery_open_of_run ON wakeful.recovery_action (company, run) WHERE state = 'open' AND run IS NOT NULL;
CREATE INDEX recovery_open_on_issue ON wakeful.recovery_action (company, issue) WHERE state = 'open' AND issue IS NOT NULL;

-- ── guards: legal transitions, finals, journals ─────────────────────────────────────────────────────────

CREATE FUNCTION wakeful.refuse_change() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog
AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = 'WK409', MESSAGE = format(TG_ARGV[0], TG_TABLE_NAME),
        HINT = 'rows that are final, and journals, never change';
END $$;

CREATE TRIGGER wake_final BEFORE UPDATE ON wakeful.wake FOR EACH ROW
    WHEN (OLD.state IN ('linked', 'coalesced', 'skipped', 'retired', 'settled', 'cancelled', 'failed'))
    EXECUTE FUNCTION wakeful.refuse_change('this %s is final');
CREATE TRIGGER wake_step BEFORE UPDATE OF state ON wakeful.wake FOR EACH ROW
    WHEN (OLD.state <> NEW.state AND (OLD.state || '>' || NEW.state) <> ALL (ARRAY[
        'deferred>linked', 'deferred>coalesced', 'deferred>retired', 'deferred>settled', 'deferred>cancelled',
        'deferred>failed', 'queued>claimed', 'queued>linked', 'queued>coalesced', 'queued>skipped',
        'queued>retired', 'queued>cancelled', 'queued>failed', 'claimed>linked', 'claimed>coalesced',
        'claimed>skipped', 'claimed>retired', 'claimed>queued', 'claimed>error', 'claimed>failed',
        'error>claimed', 'error>retired', 'error>failed', 'error>cancelled']))
    EXECUTE FUNCTION wakeful.refuse_change('this %s cannot take that step');
CREATE TRIGGER wake_kept BEFORE DELETE ON wakeful.wake FOR EACH ROW WHEN (OLD.ended_at IS NULL)
    EXECUTE FUNCTION wakeful.refuse_change('this %s has not ended');

CREATE TRIGGER run_final BEFORE UPDATE ON wakeful.run FOR EACH ROW
    WHEN (OLD.state IN ('succeeded', 'failed', 'cancelled', 'lost')
          AND NOT (OLD.kind = 'supervisor' AND OLD.state IN ('failed', 'cancelled')
                   AND NEW.state = 'queued' AND NEW.generation = OLD.generation + 1))
    EXECUTE FUNCTION wakeful.refuse_change('this %s is final');
CREATE TRIGGER run_step BEFORE UPDATE OF state ON wakeful.run FOR EACH ROW
    WHEN (OLD.state <> NEW.state AND (
        (OLD.state || '>' || NEW.state) <> ALL (ARRAY[
            'queued>starting', 'queued>cancelled', 'queued>failed',
            'starting>queued', 'starting>running', 'starting>stopping',
            'starting>succeeded', 'starting>failed', 'starting>cancelled', 'starting>lost',
            'running>queued', 'running>suspended', 'running>stopping',
            'running>succeeded', 'running>failed', 'running>cancelled', 'running>lost',
            'suspended>queued', 'suspended>running', 'suspended>cancelled', 'suspended>failed',
            'stopping>succeeded', 'stopping>failed', 'stopping>cancelled', 'stopping>lost',
            'failed>queued', 'cancelled>queued'])
        OR (NEW.state = 'queued' AND NEW.generation <> OLD.generation + 1)))
    EXECUTE FUNCTION wakeful.refuse_change('this %s cannot take that step');
CREATE TRIGGER run_kept BEFORE DELETE ON wakeful.run FOR EACH ROW WHEN (OLD.ended_at IS NULL)
    EXECUTE FUNCTION wakeful.refuse_change('this %s has not ended');

CREATE TRIGGER audit_journal BEFORE UPDATE OR DELETE ON wakeful.audit FOR EACH ROW
    EXECUTE FUNCTION wakeful.refuse_change('%s is a journal');
CREATE TRIGGER instance_audit_journal BEFORE UPDATE OR DELETE ON wakeful.instance_audit FOR EACH ROW
    EXECUTE FUNCTION wakeful.refuse_change('%s is a journal');
CREATE TRIGGER refused_report_journal BEFORE UPDATE OR DELETE ON wakeful.refused_report FOR EACH ROW
    EXECUTE FUNCTION wakeful.refuse_change('%s is a journal');
CREATE TRIGGER spend_journal BEFORE UPDATE OR DELETE ON wakeful.spend FOR EACH ROW
    EXECUTE FUNCTION wakeful.refuse_change('%s is a journal');

-- ── who may see and do what ─────────────────────────────────────────────────────────────────────────────

-- Tables of companies: each company sees its own rows, the scheduler all, and viewers may only read.
CREATE FUNCTION wakeful.guard(VARIADIC tables text[]) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE t text;
BEGIN
    FOREACH t IN ARRAY tables LOOP
        EXECUTE format('ALTER TABLE wakeful.%I ENABLE ROW LEVEL SECURITY', t);
        EXECUTE format('ALTER TABLE wakeful.%I FORCE ROW LEVEL SECURITY', t);
        EXECUTE format('CREATE POLICY tenant ON wakeful.%I USING (company = wakeful.tenant())
                        WITH CHECK (company = wakeful.tenant())', t);
        EXECUTE format('CREATE POLICY scheduler ON wakeful.%I TO wakeful_scheduler USING (true) WITH CHECK (true)', t);
        EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON wakeful.%I TO wakeful_scheduler', t);
        EXECUTE format('GRANT SELECT ON wakeful.%I TO wakeful_viewer', t);
    END LOOP;
END $$;

-- For the end of a migration: of what it added, nobody but the owner may call anything yet.
CREATE FUNCTION wakeful.close_functions() RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE f regprocedure;
BEGIN
    FOR f IN SELECT p.oid FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
             WHERE n.nspname = 'wakeful' AND has_function_privilege('public', p.oid, 'EXECUTE') LOOP
        EXECUTE format('REVOKE EXECUTE ON FUNCTION %s FROM PUBLIC', f);
    END LOOP;
END $$;

-- For the end of a migration that adds producers: hosts and schedulers may call them. All that runs with the owner's
-- rights is a producer, apart from what a former migration has opened to schedulers alone.
CREATE FUNCTION wakeful.open_producers() RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE f regprocedure;
BEGIN
    FOR f IN SELECT p.oid FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
             WHERE n.nspname = 'wakeful' AND p.prosecdef
               AND NOT has_function_privilege('wakeful_scheduler', p.oid, 'EXECUTE') LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO wakeful_host, wakeful_scheduler', f);
    END LOOP;
END $$;

SELECT wakeful.guard('company', 'project', 'agent', 'issue', 'run', 'wake', 'wake_key', 'budget', 'spend', 'reservation',
                     'audit', 'refused_report', 'recovery_action');

DO $$
DECLARE t text;
BEGIN
    -- Instance tables hold nothing of a company. The owner's producers write them; a viewer who names a company reads them.
    FOREACH t IN ARRAY ARRAY['setting', 'host', 'instance_audit', 'epoch', 'migration'] LOOP
        EXECUTE format('ALTER TABLE wakeful.%I ENABLE ROW LEVEL SECURITY', t);
        EXECUTE format('ALTER TABLE wakeful.%I FORCE ROW LEVEL SECURITY', t);
        EXECUTE format('CREATE POLICY instance ON wakeful.%I TO wakeful_owner USING (true) WITH CHECK (true)', t);
        EXECUTE format('CREATE POLICY viewer ON wakeful.%I FOR SELECT TO wakeful_viewer
                        USING (wakeful.tenant() <> '''')', t);
        EXECUTE format('CREATE POLICY scheduler ON wakeful.%I TO wakeful_scheduler USING (true) WITH CHECK (true)', t);
        EXECUTE format('GRANT SELECT ON wakeful.%I TO wakeful_scheduler, wakeful_viewer', t);
    END LOOP;
END $$;
ALTER TABLE wakeful.clock ENABLE ROW LEVEL SECURITY;
ALTER TABLE wakeful.clock FORCE ROW LEVEL SECURITY;
CREATE POLICY everyone ON wakeful.clock USING (true);
GRANT SELECT ON wakeful.clock TO PUBLIC;
GRANT INSERT, UPDATE ON wakeful.host TO wakeful_scheduler;
GRANT UPDATE ON wakeful.epoch TO wakeful_scheduler;
GRANT USAGE ON SCHEMA wakeful TO wakeful_scheduler, wakeful_host, wakeful_viewer;
