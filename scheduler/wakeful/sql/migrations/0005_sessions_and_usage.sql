-- Sessions of agent programs, what runs used, the tally of a run that lives, and how an agent's output is read.
--
-- A run's usage is known per attempt: by what its result said, or by what was reported while it ran (add_spend).
-- run.metered counts the attempts of which that is so, or which never executed anything; all others are unknown,
-- whoever ended them. Unknown is never zero: such a run settles at what it reserved.

ALTER TABLE wakeful.agent ADD COLUMN reader jsonb
    CHECK (reader IS NULL OR jsonb_typeof(reader) = 'object' AND jsonb_typeof(reader -> 'kind') = 'string');
-- session: the token that the current attempt was given.
ALTER TABLE wakeful.run ADD COLUMN session text, ADD COLUMN session_key text NOT NULL DEFAULT '',
    ADD COLUMN metered integer NOT NULL DEFAULT 0 CHECK (metered >= 0);
ALTER TABLE wakeful.spend ADD COLUMN attempt integer;

-- An agent program's own token for the conversation it may go on with. issue and key are '' where there is none.
CREATE TABLE wakeful.session (
    company wakeful.id NOT NULL REFERENCES wakeful.company,
    agent wakeful.id NOT NULL,
    issue text NOT NULL DEFAULT '' CHECK (length(issue) <= 200),
    key text NOT NULL DEFAULT '' CHECK (length(key) <= 200),
    token text NOT NULL CHECK (octet_length(token) BETWEEN 1 AND 4096),
    runs integer NOT NULL DEFAULT 1 CHECK (runs > 0),
    run uuid NOT NULL,
    created_at timestamptz NOT NULL DEFAULT wakeful.now(),
    used_at timestamptz NOT NULL DEFAULT wakeful.now(),
    PRIMARY KEY (company, agent, issue, key),
    FOREIGN KEY (company, agent) REFERENCES wakeful.agent
);

-- What one attempt said it used, a line for each provider and model. Money is NULL where it was not said.
CREATE TABLE wakeful.usage (
    company wakeful.id NOT NULL,
    run uuid NOT NULL,
    attempt integer NOT NULL,
    line integer NOT NULL,
    provider text,
    model text,
    tokens_in bigint CHECK (tokens_in >= 0),
    tokens_out bigint CHECK (tokens_out >= 0),
    tokens_cached bigint CHECK (tokens_cached >= 0),
    money wakeful.money,
    provenance text NOT NULL CHECK (provenance IN ('reported', 'estimated', 'unknown')),
    PRIMARY KEY (company, run, attempt, line),
    FOREIGN KEY (company, run) REFERENCES wakeful.run ON DELETE CASCADE,
    CHECK (provenance <> 'unknown' OR money IS NULL)
);

SELECT wakeful.guard('session', 'usage');

-- ── sessions ────────────────────────────────────────────────────────────────────────────────────────────

-- {"mode": "reuse" | "fresh", "rotate_runs": n, "rotate_days": n}; what is left out: reuse, never rotated.
CREATE FUNCTION wakeful.check_session_policy(policy jsonb) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE n text;
BEGIN
    IF (CASE WHEN jsonb_typeof(policy) = 'object'
             THEN policy - ARRAY['mode', 'rotate_runs', 'rotate_days'] = '{}'
                  AND (NOT policy ? 'mode' OR policy -> 'mode' IN ('"reuse"', '"fresh"')) END) IS NOT TRUE THEN
        PERFORM wakeful.refuse('WK422', format('%s is no session policy', coalesce(left(policy::text, 200), 'NULL')),
            'as in {"mode": "reuse", "rotate_runs": 20, "rotate_days": 7} or {"mode": "fresh"}');
    END IF;
    FOREACH n IN ARRAY ARRAY['rotate_runs', 'rotate_days'] LOOP
        IF policy ? n AND (jsonb_typeof(policy -> n) = 'number' AND policy ->> n ~ '^[1-9][0-9]{0,5}$') IS NOT TRUE THEN
            PERFORM wakeful.refuse('WK422', format('%s is a whole number from 1 to 999999, not %s', n, left(policy ->> n, 200)));
        END IF;
    END LOOP;
END $$;

-- The key under which a run's session is kept, and the token it is given: none where the policy wants a fresh one.
-- A wake's payload may name the key (session_key); a retry keeps the key of the run it retries.
CREATE FUNCTION wakeful.session_for(company text, agent text, issue text, wake uuid, retry_of uuid, OUT key text, OUT token text)
LANGUAGE sql STABLE
AS $$
WITH k AS (
    SELECT coalesce(
        (SELECT w.payload ->> 'session_key' FROM wakeful.wake w
         WHERE w.company = $1 AND w.id = $4 AND jsonb_typeof(w.payload -> 'session_key') = 'string'
           AND length(w.payload ->> 'session_key') <= 200),
        (SELECT u.session_key FROM wakeful.run u WHERE u.company = $1 AND u.id = $5), '') AS key
)
SELECT k.key, (
    SELECT s.token FROM wakeful.session s JOIN wakeful.agent a ON a.company = s.company AND a.id = s.agent
    WHERE s.company = $1 AND s.agent = $2 AND s.issue = coalesce($3, '') AND s.key = k.key
      AND a.session_policy ->> 'mode' IS DISTINCT FROM 'fresh'
      AND s.runs < coalesce((a.session_policy ->> 'rotate_runs')::integer, 2147483647)
      AND s.created_at > coalesce(wakeful.now() - make_interval(days => (a.session_policy ->> 'rotate_days')::integer),
                                  '-infinity'))
FROM k
$$;

-- What ended runs leave of their sessions. The caller has just made the runs final under their fence. A lost
-- session is dropped, so that the next attempt begins a fresh one. Rows are taken in one order by everybody.
CREATE FUNCTION wakeful.keep_sessions(company text, runs uuid[], tokens text[]) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE r record; c CONSTANT text := keep_sessions.company;
BEGIN
    FOR r IN SELECT u.id, u.agent, coalesce(u.issue, '') AS issue, u.session_key AS key, u.session AS given, u.end_class, g.token
             FROM unnest(keep_sessions.runs, keep_sessions.tokens) WITH ORDINALITY AS g (run, token, place)
             JOIN wakeful.run u ON u.company = c AND u.id = g.run
             ORDER BY 2, 3, 4, g.place LOOP
        IF r.end_class = 'session_lost' THEN
            DELETE FROM wakeful.session s WHERE s.company = c AND s.agent = r.agent AND s.issue = r.issue AND s.key = r.key
               AND (r.given IS NULL OR s.token = r.given);
        ELSIF r.token IS NOT NULL THEN
            -- A program may answer with another token each time; it is the same conversation if it was given one.
            INSERT INTO wakeful.session AS s (company, agent, issue, key, token, run)
            VALUES (c, r.agent, r.issue, r.key, r.token, r.id)
            ON CONFLICT (company, agent, issue, key) DO UPDATE
            SET token = excluded.token, run = excluded.run, used_at = excluded.used_at,
                runs = CASE WHEN r.given IS NULL THEN 1 ELSE s.runs + 1 END,
                created_at = CASE WHEN r.given IS NULL THEN excluded.created_at ELSE s.created_at END;
        ELSE
            UPDATE wakeful.session s SET runs = s.runs + 1, run = r.id, used_at = wakeful.now()
            WHERE s.company = c AND s.agent = r.agent AND s.issue = r.issue AND s.key = r.key AND s.token = r.given;
        END IF;
    END LOOP;
END $$;

-- ── usage ───────────────────────────────────────────────────────────────────────────────────────────────

-- What is known of a run's usage. spent: its spend rows; known: per attempt, the larger of what its result said and
-- what was reported while it ran, which the result repeats; tallied: attempts known by such reports alone.
CREATE FUNCTION wakeful.known_usage(company text, run uuid, OUT spent numeric, OUT known numeric, OUT tallied bigint, OUT estimated boolean)
LANGUAGE sql STABLE
AS $$
SELECT coalesce(sum(s.amount), 0), coalesce(sum(greatest(m.money, s.sure)), 0),
       count(*) FILTER (WHERE s.attempt > 0 AND NOT s.vague AND m.whole IS NOT TRUE),
       coalesce(bool_or(m.estimated OR s.estimated), false)
FROM (SELECT u.attempt, sum(u.money) AS money, bool_and(u.money IS NOT NULL) AS whole,
             bool_or(u.money IS NOT NULL AND u.provenance = 'estimated') AS estimated
      FROM wakeful.usage u WHERE u.company = $1 AND u.run = $2 GROUP BY u.attempt) AS m
FULL JOIN (SELECT p.attempt, sum(p.amount) AS amount, sum(p.amount) FILTER (WHERE p.provenance <> 'unknown') AS sure,
                  bool_or(p.provenance = 'unknown') AS vague, bool_or(p.provenance = 'estimated') AS estimated
           FROM wakeful.spend p WHERE p.company = $1 AND p.run = $2 GROUP BY p.attempt) AS s USING (attempt)
$$;

-- The money of ended runs; part of settle_runs. One spend row a run brings its spend to what is known, or to the most
-- it reserved while any attempt's usage is unknown. Reservations of runs that executed nothing are released.
CREATE FUNCTION wakeful.settle_money(company text, runs uuid[]) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    c CONSTANT text := settle_money.company;
    live CONSTANT text[] := ARRAY['reserved', 'in_flight', 'indeterminate'];
    settled_runs uuid[];
    amounts numeric[];
    projects text[];
    r record;
BEGIN
    IF NOT EXISTS (SELECT FROM wakeful.reservation v WHERE v.company = c AND v.run = ANY (runs) AND v.state = ANY (live))
       AND NOT EXISTS (SELECT FROM wakeful.usage m WHERE m.company = c AND m.run = ANY (runs)) THEN
        RETURN;
    END IF;
    WITH settled AS (
        INSERT INTO wakeful.spend (company, amount, agent, project, issue, run, attempt, provenance)
        SELECT c, t.total - k.spent, u.agent, u.project, u.issue, u.id, u.attempt,
               CASE WHEN x.unknown THEN 'unknown' WHEN k.estimated THEN 'estimated' ELSE 'reported' END
        FROM wakeful.run u
        CROSS JOIN LATERAL wakeful.known_usage(c, u.id) AS k
        CROSS JOIN LATERAL (SELECT u.attempt > u.metered + k.tallied AS unknown) AS x
        CROSS JOIN LATERAL (
            SELECT CASE WHEN x.unknown THEN greatest(k.known, max(v.amount)) ELSE k.known END AS total
            FROM wakeful.reservation v WHERE v.company = c AND v.run = u.id AND v.state = ANY (live)) AS t
        WHERE u.company = c AND u.id = ANY (runs) AND t.total > k.spent
        RETURNING run, amount, project)
    SELECT array_agg(s.run), array_agg(s.amount), array_agg(s.project) FILTER (WHERE s.project IS NOT NULL)
    INTO settled_runs, amounts, projects FROM settled s;
    FOR r IN
        WITH ended AS (
            UPDATE wakeful.reservation v
            SET ended_at = wakeful.now(), state = CASE
                WHEN u.attempt > u.metered
                     OR (SELECT m.run FROM wakeful.usage m WHERE m.company = c AND m.run = u.id LIMIT 1) IS NOT NULL
                     OR (SELECT s.run FROM wakeful.spend s WHERE s.company = c AND s.run = u.id LIMIT 1) IS NOT NULL
                    THEN 'settled' ELSE 'released' END
            FROM wakeful.run u
            WHERE u.company = c AND u.id = ANY (runs) AND v.company = c AND v.run = u.id AND v.state = ANY (live)
            RETURNING v.policy, v.run, v.amount)
        -- Reservation and reports counted side by side until now, so what is given back is more than what is added here.
        SELECT e.policy, sum(e.amount) > coalesce((SELECT sum(s.amount) FROM unnest(settled_runs, amounts) AS s (run, amount)
                                                   WHERE s.run = ANY (array_agg(e.run))), 0) AS opened
        FROM ended e GROUP BY e.policy ORDER BY e.policy LOOP
        IF r.opened THEN
            PERFORM wakeful.notify_gate(c, 'budget', r.policy);
        END IF;
        IF r.policy LIKE 'project:%' THEN
            projects := projects || substr(r.policy, 9);
        END IF;
    END LOOP;
    -- Last in the lock order.
    FOR r IN SELECT DISTINCT b.scope_id AS project FROM wakeful.budget b
             WHERE b.company = c AND b.id = ANY (SELECT 'project:' || p FROM unnest(projects) AS p) ORDER BY 1 LOOP
        PERFORM wakeful.check_project_budget(c, r.project);
    END LOOP;
END $$;

-- Whether a run holds a reservation under a policy that stops it when its spend reaches that. Then the run's row is
-- locked, so that of several reports at once one sees all others.
CREATE FUNCTION wakeful.lock_overrun(company text, run uuid) RETURNS boolean LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM FROM wakeful.reservation v
    JOIN wakeful.budget b ON b.company = v.company AND b.id = v.policy AND b.on_overrun = 'stop'
    WHERE v.company = lock_overrun.company AND v.run = lock_overrun.run AND v.state IN ('reserved', 'in_flight', 'indeterminate');
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM FROM wakeful.run u WHERE u.company = lock_overrun.company AND u.id = lock_overrun.run FOR NO KEY UPDATE;
    RETURN true;
END $$;

-- Asks a run to stop, once, when its spend has reached what it reserved under a policy that says so.
CREATE FUNCTION wakeful.stop_overrun(company text, run uuid) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE spent numeric;
BEGIN
    SELECT sum(s.amount) INTO spent FROM wakeful.spend s WHERE s.company = stop_overrun.company AND s.run = stop_overrun.run;
    PERFORM FROM wakeful.reservation v
    JOIN wakeful.budget b ON b.company = v.company AND b.id = v.policy AND b.on_overrun = 'stop'
    WHERE v.company = stop_overrun.company AND v.run = stop_overrun.run
      AND v.state IN ('reserved', 'in_flight', 'indeterminate') AND spent > 0 AND spent >= v.amount;
    IF FOUND THEN
        PERFORM wakeful.stop_run(company, run, 'run.overrun', 'system:budget');
    END IF;
END $$;

-- ── result readers ──────────────────────────────────────────────────────────────────────────────────────

-- {"kind": name of the reader, ...}; the rest is the reader's own.
CREATE FUNCTION wakeful.check_reader(reader jsonb) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF reader IS NOT NULL AND (jsonb_typeof(reader) = 'object' AND jsonb_typeof(reader -> 'kind') = 'string'
                               AND length(reader ->> 'kind') BETWEEN 1 AND 200) IS NOT TRUE THEN
        PERFORM wakeful.refuse('WK422', format('%s configures no result reader', left(reader::text, 200)),
            'as in {"kind": "json_lines", "rules": [...]}');
    END IF;
    IF octet_length(reader::text) > 65536 THEN
        PERFORM wakeful.refuse('WK422', format('the result reader''s configuration has %s bytes; the limit is 65536 bytes (64 KiB)',
            octet_length(reader::text)));
    END IF;
END $$;

SELECT wakeful.close_functions();
GRANT EXECUTE ON FUNCTION wakeful.session_for(text, text, text, uuid, uuid), wakeful.keep_sessions(text, uuid[], text[]),
    wakeful.settle_money(text, uuid[]) TO wakeful_scheduler;
GRANT EXECUTE ON FUNCTION wakeful.known_usage(text, uuid) TO wakeful_scheduler, wakeful_viewer;
