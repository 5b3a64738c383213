-- Claims of queued runs by one host, per company. Lock order: runs (SKIP LOCKED), then their issues ascending.

-- name: companies
-- Companies with a claimable run, by recursive skip over the index.
WITH RECURSIVE c AS (
    (SELECT r.company FROM wakeful.run r WHERE r.state = 'queued' AND r.wait_gate IS NULL ORDER BY r.company LIMIT 1)
    UNION ALL
    SELECT (SELECT r.company FROM wakeful.run r WHERE r.state = 'queued' AND r.wait_gate IS NULL AND r.company > c.company
            ORDER BY r.company LIMIT 1)
    FROM c WHERE c.company IS NOT NULL)
SELECT company FROM c WHERE company IS NOT NULL

-- name: waiting_gates
-- The distinct gates that queued runs wait on, with the earliest moment the clock opens one.
SELECT r.company, r.wait_gate, r.wait_key, min(r.reopens_at) AS reopens_at
FROM wakeful.run r WHERE r.state = 'queued' AND r.wait_gate IS NOT NULL
GROUP BY r.company, r.wait_gate, r.wait_key

-- name: lock_claimable
-- Queued runs this host may take: its own, or nobody's whose labels it meets.
SELECT r.id FROM wakeful.run r
WHERE r.company = %(company)s AND r.state = 'queued' AND r.wait_gate IS NULL AND r.kind = 'agent'
  AND (r.host = %(host)s OR r.host IS NULL AND r.labels <@ %(labels)s)
  AND (SELECT a.executor FROM wakeful.agent a WHERE a.company = r.company AND a.id = r.agent) = ANY (%(executors)s)
ORDER BY r.priority, r.queued_at, r.id LIMIT %(limit)s
FOR NO KEY UPDATE OF r SKIP LOCKED

-- name: lock_waiting
-- Queued runs that wait on a gate that may have opened (any gate, where their issue or their agent itself changed).
SELECT r.id FROM wakeful.run r
WHERE r.company = %(company)s AND r.state = 'queued' AND r.wait_gate IS NOT NULL AND r.kind = 'agent'
  AND (r.host = %(host)s OR r.host IS NULL AND r.labels <@ %(labels)s)
  AND (r.wait_gate = %(gate)s AND r.wait_key = %(key)s
       OR %(gate)s = 'issue' AND r.issue = %(key)s OR %(gate)s = 'agent' AND r.agent = %(key)s)
  AND (SELECT a.executor FROM wakeful.agent a WHERE a.company = r.company AND a.id = r.agent) = ANY (%(executors)s)
ORDER BY r.priority, r.queued_at, r.id LIMIT %(limit)s
FOR NO KEY UPDATE OF r SKIP LOCKED

-- name: take_turn
-- One scheduler at a time lets runs start behind an account; nobody waits for it.
SELECT pg_try_advisory_xact_lock(hashtextextended('wakeful turn ' || %(company)s || ' ' || %(account)s, 0)) AS mine

-- name: ramp
-- The ramp of an account that has just reopened, and how many runs have started on it, as admission counts them.
SELECT t.ramp_from, x.rate, x.period, wakeful.wall() AS now,
       (SELECT count(*)::integer FROM wakeful.run r
        WHERE r.company = p.company AND r.account = p.id AND r.created_at >= t.ramp_from)
       + (SELECT count(*)::integer FROM wakeful.run r
          WHERE r.company = p.company AND r.account = p.id AND r.claimed_at >= t.ramp_from AND r.created_at < t.ramp_from)
       AS started
FROM wakeful.provider_account p
CROSS JOIN LATERAL (SELECT (wakeful.setting_value('ramp_starts', '1') #>> '{}')::float8 AS rate,
                           (wakeful.setting_value('ramp_doubles', '10') #>> '{}')::float8 AS period) AS x
CROSS JOIN LATERAL (SELECT CASE WHEN p.closed_at IS NULL THEN p.ramp_from
                                WHEN p.resuming = 'auto' AND p.closed_until <= wakeful.now() THEN p.closed_until
                                END AS ramp_from) AS t
WHERE p.company = %(company)s AND p.id = %(account)s AND t.ramp_from > wakeful.now() - make_interval(secs => 12 * x.period)

-- name: wait_for_turn
-- The account is open again: what waited for that waits for its turn.
UPDATE wakeful.run r
SET wait_gate = 'rate', wait_key = %(account)s, wait_reason = 'rate.ramp', wait_since = wakeful.wall(), reopens_at = NULL,
    wait_message = 'account ' || %(account)s || ' starts its sleepers one after another', opens_on = 'its turn, by the clock'
FROM (SELECT q.id FROM wakeful.run q WHERE q.company = %(company)s AND q.state = 'queued' AND q.wait_gate = 'provider'
      AND q.wait_key = %(account)s ORDER BY q.id FOR NO KEY UPDATE SKIP LOCKED) AS u
WHERE r.company = %(company)s AND r.id = u.id

-- name: left_behind
-- Whether a run this host may take was left out because somebody held its row: it is looked at again in a moment.
SELECT EXISTS (
    SELECT FROM wakeful.run r
    WHERE r.company = %(company)s AND r.state = 'queued' AND r.kind = 'agent'
      AND (r.host = %(host)s OR r.host IS NULL AND r.labels <@ %(labels)s) AND r.id <> ALL (%(ids)s::uuid[])
      AND CASE WHEN %(gate)s::text IS NULL THEN r.wait_gate IS NULL
               ELSE r.wait_gate = %(gate)s AND r.wait_key = %(key)s
                    OR %(gate)s = 'issue' AND r.wait_gate IS NOT NULL AND r.issue = %(key)s
                    OR %(gate)s = 'agent' AND r.wait_gate IS NOT NULL AND r.agent = %(key)s END
      AND (SELECT a.executor FROM wakeful.agent a WHERE a.company = r.company AND a.id = r.agent) = ANY (%(executors)s)
    ) AS yes

-- name: lock_issues
-- The issues of the runs about to start, ascending.
SELECT i.id FROM wakeful.issue i
WHERE i.company = %(company)s
  AND i.id = ANY (ARRAY(SELECT r.issue::text FROM wakeful.run r WHERE r.company = %(company)s AND r.id = ANY (%(ids)s)))
ORDER BY i.id FOR NO KEY UPDATE

-- name: facts
-- What a claim judges again, in the order of receipts.Fact: all that the admission read unlocked.
SELECT r.company, r.id, r.kind, r.state, r.generation, r.priority, r.agent, r.issue, coalesce(i.project, r.project),
       'system', 'dispatcher', r.created_at, r.queued_at, r.wait_gate, r.wait_key, r.wait_reason, r.attempt,
       NULL::uuid, NULL::integer, r.estimate,
       c.state, c.panic_at IS NOT NULL OR wakeful.setting_value('panic', 'false') = 'true',
       a.state, a.pause_reason, p.pause_reason, p.archived_at IS NOT NULL,
       i.status, i.assignee_kind, i.assignee, NULL::uuid, NULL::uuid, NULL::text, NULL::integer, NULL::uuid, NULL::uuid,
       r.issue IS NOT NULL AND i.status = 'cancelled' AND wakeful.only_held(r.company, r.issue),
       o.root, o.mode,
       (SELECT x.id FROM wakeful.recovery_action x WHERE x.company = r.company AND x.issue = r.issue AND x.state = 'open'
        ORDER BY x.id LIMIT 1),
       CASE WHEN EXISTS (SELECT FROM wakeful.issue_block x WHERE x.company = r.company AND x.issue = r.issue)
            THEN wakeful.open_blocker(r.company, r.issue) END,
       (SELECT x.id FROM wakeful.environment_lease x WHERE x.company = r.company AND x.issue = r.issue AND x.state = 'active'
        ORDER BY x.id LIMIT 1),
       k.signature,
       CASE WHEN a.provider IS NOT NULL THEN a.provider || '/' || coalesce(a.account, 'default') END,
       'dispatcher', NULL::text, NULL::jsonb,
       (SELECT w.review FROM wakeful.wake w WHERE w.company = r.company AND w.id = r.wake), i.reviewer, wakeful.wall()
FROM wakeful.run r
CROSS JOIN LATERAL (SELECT * FROM wakeful.company x WHERE x.company = r.company LIMIT 1) AS c
CROSS JOIN LATERAL (SELECT * FROM wakeful.agent x WHERE x.company = r.company AND x.id = r.agent LIMIT 1) AS a
LEFT JOIN LATERAL (SELECT * FROM wakeful.issue x WHERE x.company = r.company AND x.id = r.issue LIMIT 1) AS i ON true
LEFT JOIN LATERAL (SELECT * FROM wakeful.project x
                   WHERE x.company = r.company AND x.id = coalesce(i.project, r.project) LIMIT 1) AS p ON true
LEFT JOIN LATERAL (SELECT * FROM wakeful.circuit x
                   WHERE x.company = r.company AND x.agent = r.agent AND x.opened_at IS NOT NULL LIMIT 1) AS k ON true
LEFT JOIN LATERAL (SELECT * FROM wakeful.hold_over(r.company, r.issue)
                   WHERE EXISTS (SELECT FROM wakeful.hold h WHERE h.company = %(company)s AND h.state = 'active')
                   LIMIT 1) AS o ON true
WHERE r.company = %(company)s AND r.id = ANY (%(ids)s)
ORDER BY r.priority, r.queued_at, r.id

-- name: policies
-- The budgets that apply to the runs, as admission reads them.
SELECT b.id, b.amount, b.hard_stop, b.estimate,
       coalesce(wakeful.spent(b.company, b.scope, b.scope_id, wakeful.window_start(b.period)), 0) AS spent,
       coalesce(wakeful.reserved(b.company, b.id), 0) AS reserved,
       CASE WHEN b.period = 'month' THEN
           (date_trunc('month', wakeful.now() AT TIME ZONE 'UTC') + interval '1 month') AT TIME ZONE 'UTC' END AS window_ends
FROM wakeful.budget b
WHERE b.company = %(company)s
  AND (b.scope = 'company'
       OR b.scope = 'agent' AND b.scope_id IN (
           SELECT r.agent FROM wakeful.run r WHERE r.company = %(company)s AND r.id = ANY (%(ids)s))
       OR b.scope = 'project' AND b.scope_id IN (
           SELECT coalesce(i.project, r.project) FROM wakeful.run r
           LEFT JOIN wakeful.issue i ON i.company = r.company AND i.id = r.issue
           WHERE r.company = %(company)s AND r.id = ANY (%(ids)s)))

-- name: agents
-- The agents' estimates; concurrency was judged when the run was admitted.
SELECT a.id, 0 AS live, NULL::integer AS limit, a.estimate, a.max_attempts
FROM (SELECT DISTINCT r.agent FROM wakeful.run r WHERE r.company = %(company)s AND r.id = ANY (%(ids)s)) AS u
CROSS JOIN LATERAL (SELECT * FROM wakeful.agent x WHERE x.company = %(company)s AND x.id = u.agent LIMIT 1) AS a

-- name: accounts
-- The provider accounts of the runs: closed or not. Ramp and rate were judged when they were admitted.
SELECT p.id, p.closed_at IS NOT NULL, p.closed_until, p.reason, p.resuming = 'ask', NULL::timestamptz, 0, 0, 0, NULL::numeric
FROM wakeful.provider_account p
WHERE p.company = %(company)s
  AND p.id IN (SELECT r.account FROM wakeful.run r WHERE r.company = %(company)s AND r.id = ANY (%(ids)s))

-- name: reservations
-- The runs' own live reservations, which a claim leaves out of what others hold.
SELECT v.run, v.policy, v.amount FROM wakeful.reservation v
WHERE v.company = %(company)s AND v.run = ANY (%(ids)s) AND v.state IN ('reserved', 'in_flight', 'indeterminate')

-- name: claim
-- The claim counts the attempt and captures the generation and the session; the issue is stamped now that its run starts.
WITH claimed AS (
    UPDATE wakeful.run r
    SET state = 'starting', attempt = r.attempt + 1, host = %(host)s, claimed_by = %(claimer)s, claimed_at = wakeful.wall(),
        executor = (SELECT a.executor FROM wakeful.agent a WHERE a.company = r.company AND a.id = r.agent),
        renew_by = wakeful.wall() + make_interval(secs => %(lease)s), wait_gate = NULL, wait_key = NULL, wait_reason = NULL,
        wait_message = NULL, wait_since = NULL, opens_on = NULL, reopens_at = NULL,
        (session_key, session) = (SELECT s.key, s.token FROM wakeful.session_for(r.company, r.agent, r.issue, r.wake, r.retry_of) AS s)
    WHERE r.company = %(company)s AND r.id = ANY (%(ids)s) AND r.state = 'queued'
    RETURNING r.id, r.generation, r.attempt, r.issue
), stamped AS (
    UPDATE wakeful.issue i SET execution_run = claimed.id, execution_locked_at = wakeful.wall()
    FROM claimed WHERE i.company = %(company)s AND i.id = claimed.issue
)
SELECT id, generation, attempt FROM claimed

-- name: wait
-- Closed and able to reopen: the run stays queued and says why.
UPDATE wakeful.run r
SET wait_gate = u.gate, wait_key = u.key, wait_reason = u.reason, wait_message = u.message, opens_on = u.opens_on,
    reopens_at = u.reopens_at,
    wait_since = CASE WHEN r.wait_reason IS NOT DISTINCT FROM u.reason THEN r.wait_since ELSE wakeful.wall() END
FROM unnest(%(runs)s::uuid[], %(gates)s::text[], %(keys)s::text[], %(reasons)s::text[], %(messages)s::text[],
            %(opens_on)s::text[], %(reopens_at)s::timestamptz[]) AS u (run, gate, key, reason, message, opens_on, reopens_at)
WHERE r.company = %(company)s AND r.id = u.run AND r.state = 'queued'
  AND (r.wait_gate, r.wait_key, r.wait_reason, r.wait_message, r.reopens_at)
      IS DISTINCT FROM (u.gate, u.key, u.reason, u.message, u.reopens_at)

-- name: work
-- Everything each of a few runs is given: its agent's contract, its wake, its issue, and what the run it retries left.
-- Durations are cut to what every driver can represent; JSON that a host gave is read by us, not by the driver, since a
-- value that Python cannot hold must fail its own run only.
SELECT r.company, r.id AS run, r.generation, r.attempt, r.state AS run_state, r.agent, r.issue, r.retry_of,
       coalesce(r.executor, a.executor) AS executor, a.command, a.cwd, a.env_allow, a.env_values::text AS env_values,
       CASE WHEN a.max_runtime IS NOT NULL THEN least(a.max_runtime, interval '10 years') END AS max_runtime,
       CASE WHEN a.silence_limit IS NOT NULL THEN least(a.silence_limit, interval '10 years') END AS silence_limit,
       least(a.stop_grace, interval '1 day') AS stop_grace, a.max_attempts,
       w.id AS wake, w.kind AS wake_kind, w.source AS wake_source, w.payload::text AS payload, w.effect_root,
       w.requested_at, i.title, i.body, s.result AS retried_result, s.state AS retried_state, s.end_class AS retried_class,
       s.exit_code AS retried_exit_code, s.message AS retried_message, r.session, r.authority,
       CASE WHEN r.comments <> '{}' THEN (
           SELECT jsonb_agg(jsonb_build_object('id', m.id, 'author', m.author_kind || ':' || m.author, 'body', m.body,
                                               'created_at', m.created_at) ORDER BY o.place)::text
           FROM unnest(r.comments) WITH ORDINALITY AS o (id, place)
           JOIN wakeful.comment m ON m.company = r.company AND m.id = o.id AND m.deleted_at IS NULL) END AS comments,
       CASE WHEN w.card IS NOT NULL THEN (
           SELECT jsonb_build_array(jsonb_build_object('id', k.id, 'kind', k.kind, 'question', k.question, 'status', k.status,
                                                       'answer', k.answer, 'answered_by', k.answered_by))::text
           FROM wakeful.card k WHERE k.company = w.company AND k.id = w.card) END AS cards,
       (SELECT e.number FROM wakeful.epoch e) AS epoch,
       wakeful.wall() + least(a.max_runtime, interval '10 years') AS deadline
FROM unnest(%(runs)s::uuid[], %(generations)s::integer[]) AS u (run, generation)
CROSS JOIN LATERAL (SELECT * FROM wakeful.run x WHERE x.company = %(company)s AND x.id = u.run LIMIT 1) AS r
CROSS JOIN LATERAL (SELECT * FROM wakeful.agent x WHERE x.company = r.company AND x.id = r.agent LIMIT 1) AS a
LEFT JOIN LATERAL (SELECT * FROM wakeful.wake x WHERE x.company = r.company AND x.id = r.wake LIMIT 1) AS w ON true
LEFT JOIN LATERAL (SELECT * FROM wakeful.issue x WHERE x.company = r.company AND x.id = r.issue LIMIT 1) AS i ON true
LEFT JOIN LATERAL (SELECT * FROM wakeful.run x WHERE x.company = r.company AND x.id = r.retry_of LIMIT 1) AS s ON true
WHERE r.generation = u.generation AND r.state IN ('starting', 'running', 'stopping')

-- name: started
-- Executors' news: the commands run.
UPDATE wakeful.run r SET state = 'running', started_at = u.at
FROM unnest(%(runs)s::uuid[], %(generations)s::integer[], %(at)s::timestamptz[]) AS u (run, generation, at)
WHERE r.company = %(company)s AND r.id = u.run AND r.generation = u.generation AND r.state = 'starting'

-- name: last_errors
-- What ended the last attempt of each run.
SELECT r.id, r.error FROM wakeful.run r WHERE r.company = %(company)s AND r.id = ANY (%(ids)s)

-- name: announce_claims
-- Lets the other schedulers of the host, and the owners, look after this claim if its claimer dies.
SELECT pg_notify('wakeful', json_build_object('t', 'renewal', 'h', %(host)s::text, 'o', %(claimer)s::text,
                                              'at', extract('epoch' FROM wakeful.wall()) + %(lease)s)::text)
