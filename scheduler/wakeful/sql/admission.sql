-- One admission pass over receipts of one company: lock, judge in the next statement, write, look again.
-- Lock order: issues ascending, then wakes, then the company's limits lock, then project.

-- name: lock_issues
-- Locks the issues of the candidates, ascending. A statement of its own: a judgement in the same one would
-- see the snapshot from before the wait. Intents among them have a claim of their own first. Keys in an array, found one
-- by one: a join may read every issue, and every pending wake, where there are no statistics yet.
SELECT i.id FROM wakeful.issue i
WHERE i.company = %(company)s
  AND i.id = ANY (ARRAY(
      SELECT x.issue::text FROM unnest(%(ids)s::uuid[]) AS u (id)
      CROSS JOIN LATERAL (SELECT w.issue, w.state FROM wakeful.wake w WHERE w.company = %(company)s AND w.id = u.id LIMIT 1) AS x
      WHERE x.state = 'deferred'))
ORDER BY i.id FOR NO KEY UPDATE

-- name: lock_wakes
-- Locks what is still pending and what nobody else holds; the rest comes back a second later.
SELECT w.id FROM wakeful.wake w
WHERE w.company = %(company)s AND w.id = ANY (%(ids)s) AND w.state = 'deferred'
ORDER BY w.id FOR NO KEY UPDATE SKIP LOCKED

-- name: facts
-- Everything the judgement of each receipt may depend on, in one snapshot, in the order of receipts.Fact. Each lookup
-- is a LIMIT 1 of its own, so that every plan, a cached one too, goes by the keys whatever the statistics say. What is
-- looked at before its own deadline, because a gate opened, goes in the order in which it was asked for.
SELECT w.company, w.id, w.kind, w.state, w.version, w.priority, w.agent, w.issue, coalesce(i.project, w.project),
       w.actor_kind, w.actor, w.created_at, w.due_at, w.wait_gate, w.wait_key, w.wait_reason, w.failures,
       w.certified_run, w.certified_generation, w.estimate,
       c.state, c.panic_at IS NOT NULL OR wakeful.setting_value('panic', 'false') = 'true',
       a.state, a.pause_reason, p.pause_reason, p.archived_at IS NOT NULL,
       i.status, i.assignee_kind, i.assignee,
       l.id, CASE WHEN i.execution_run IS DISTINCT FROM l.id THEN i.execution_run END,
       s.state, s.generation,
       CASE WHEN w.certified_run IS NULL THEN NULL
            WHEN w.issue IS NULL THEN (SELECT n.id FROM wakeful.run n WHERE n.company = w.company
                AND n.retry_of = w.certified_run ORDER BY n.id DESC LIMIT 1)
            ELSE (SELECT n.id FROM wakeful.run n WHERE n.company = w.company AND n.issue = w.issue
                  AND n.agent = w.agent AND n.id > w.certified_run ORDER BY n.id DESC LIMIT 1) END,
       CASE WHEN w.kind = 'task_retry' AND w.issue IS NOT NULL THEN wakeful.newer_input(w.company, w.id) END,
       w.issue IS NOT NULL AND i.status = 'cancelled' AND wakeful.only_held(w.company, w.issue),
       o.root, o.mode,
       (SELECT x.id FROM wakeful.recovery_action x WHERE x.company = w.company AND x.issue = w.issue AND x.state = 'open'
        ORDER BY x.id LIMIT 1),
       CASE WHEN EXISTS (SELECT FROM wakeful.issue_block x WHERE x.company = w.company AND x.issue = w.issue)
            THEN wakeful.open_blocker(w.company, w.issue) END,
       (SELECT x.id FROM wakeful.environment_lease x WHERE x.company = w.company AND x.issue = w.issue AND x.state = 'active'
        ORDER BY x.id LIMIT 1),
       k.signature,
       CASE WHEN a.provider IS NOT NULL THEN a.provider || '/' || coalesce(a.account, 'default') END,
       w.owner, CASE WHEN w.kind = ANY (%(payload_kinds)s) THEN w.payload::text END,
       CASE WHEN w.comments <> '{}' OR w.card IS NOT NULL OR w.interrupt_at IS NOT NULL OR w.chat_action IS NOT NULL
                 OR w.kind IN ('saved_comments', 'card') THEN wakeful.saved_input(w.company, w.id) END,
       w.review, i.reviewer, wakeful.wall()
FROM wakeful.wake w
CROSS JOIN LATERAL (SELECT * FROM wakeful.company x WHERE x.company = w.company LIMIT 1) AS c
CROSS JOIN LATERAL (SELECT * FROM wakeful.agent x WHERE x.company = w.company AND x.id = w.agent LIMIT 1) AS a
LEFT JOIN LATERAL (SELECT * FROM wakeful.issue x WHERE x.company = w.company AND x.id = w.issue LIMIT 1) AS i ON true
LEFT JOIN LATERAL (SELECT * FROM wakeful.project x
                   WHERE x.company = w.company AND x.id = coalesce(i.project, w.project) LIMIT 1) AS p ON true
LEFT JOIN LATERAL (SELECT * FROM wakeful.run x WHERE x.company = w.company AND x.id = w.certified_run LIMIT 1) AS s ON true
LEFT JOIN LATERAL ((SELECT x.id FROM wakeful.run x WHERE x.company = w.company AND x.issue = w.issue AND x.wave_slot IS NULL
                    AND x.state IN ('queued', 'starting', 'running', 'suspended', 'stopping') LIMIT 1)
                   UNION ALL
                   (SELECT x.id FROM wakeful.run x WHERE x.company = w.company AND x.id = i.execution_run
                    AND x.state IN ('queued', 'starting', 'running', 'suspended', 'stopping') LIMIT 1)
                   LIMIT 1) AS l ON true
LEFT JOIN LATERAL (SELECT * FROM wakeful.circuit x
                   WHERE x.company = w.company AND x.agent = w.agent AND x.opened_at IS NOT NULL LIMIT 1) AS k ON true
LEFT JOIN LATERAL (SELECT * FROM wakeful.hold_over(w.company, w.issue)
                   WHERE EXISTS (SELECT FROM wakeful.hold h WHERE h.company = %(company)s AND h.state = 'active')
                   LIMIT 1) AS o ON true
WHERE w.company = %(company)s AND w.id = ANY (%(ids)s)
ORDER BY w.priority, CASE WHEN w.due_at <= wakeful.now() THEN w.due_at END NULLS LAST, w.requested_at, w.id

-- name: policies
-- The budgets that apply to the candidates, with what their window has spent and live reservations hold.
SELECT b.id, b.amount, b.hard_stop, b.estimate,
       coalesce(wakeful.spent(b.company, b.scope, b.scope_id, wakeful.window_start(b.period)), 0) AS spent,
       coalesce(wakeful.reserved(b.company, b.id), 0) AS reserved,
       CASE WHEN b.period = 'month' THEN
           (date_trunc('month', wakeful.now() AT TIME ZONE 'UTC') + interval '1 month') AT TIME ZONE 'UTC' END AS window_ends
FROM wakeful.budget b
WHERE b.company = %(company)s
  AND (b.scope = 'company'
       OR b.scope = 'agent' AND b.scope_id IN (
           SELECT w.agent FROM wakeful.wake w WHERE w.company = %(company)s AND w.id = ANY (%(ids)s))
       OR b.scope = 'project' AND b.scope_id IN (
           SELECT coalesce(i.project, w.project) FROM wakeful.wake w
           LEFT JOIN wakeful.issue i ON i.company = w.company AND i.id = w.issue
           WHERE w.company = %(company)s AND w.id = ANY (%(ids)s)))

-- name: agents
-- The agents' live runs against their limits; counted only where there is a limit.
SELECT a.id, CASE WHEN a.max_concurrent_runs IS NULL THEN 0 ELSE (
           SELECT count(*)::integer FROM wakeful.run r WHERE r.company = a.company AND r.agent = a.id
           AND r.ended_at IS NULL AND r.state <> 'suspended') END AS live,
       a.max_concurrent_runs AS limit, a.estimate
FROM (SELECT DISTINCT w.agent FROM wakeful.wake w WHERE w.company = %(company)s AND w.id = ANY (%(ids)s)) AS u
CROSS JOIN LATERAL (SELECT * FROM wakeful.agent x WHERE x.company = %(company)s AND x.id = u.agent LIMIT 1) AS a

-- name: accounts
-- The provider accounts of the candidates: closed or not, and where their ramp and rate stand.
SELECT p.id, p.closed_at IS NOT NULL, p.closed_until, p.reason, p.resuming = 'ask', t.ramp_from,
       (SELECT count(*)::integer FROM wakeful.run r
        WHERE t.ramp_from IS NOT NULL AND r.company = p.company AND r.account = p.id AND r.created_at >= t.ramp_from)
       + (SELECT count(*)::integer FROM wakeful.run r
          WHERE t.ramp_from IS NOT NULL AND r.company = p.company AND r.account = p.id AND r.claimed_at >= t.ramp_from
            AND r.created_at < t.ramp_from),
       (SELECT count(*)::integer FROM wakeful.run r
        WHERE p.starts_per_second IS NOT NULL AND r.company = p.company AND r.account = p.id
          AND r.created_at > wakeful.now() - interval '1 second'),
       (SELECT count(*)::integer FROM wakeful.wake q
        WHERE t.ramp_from IS NOT NULL AND q.company = p.company AND q.wait_gate = 'rate' AND q.wait_key = p.id
          AND q.state = 'deferred' AND q.due_at > wakeful.now() AND q.id <> ALL (%(ids)s)),
       p.starts_per_second, x.rate, x.period
FROM wakeful.provider_account p
CROSS JOIN LATERAL (SELECT (wakeful.setting_value('ramp_starts', '1') #>> '{}')::float8 AS rate,
                           (wakeful.setting_value('ramp_doubles', '10') #>> '{}')::float8 AS period) AS x
CROSS JOIN LATERAL (SELECT CASE
    WHEN p.closed_at IS NOT NULL AND p.resuming = 'auto' AND p.closed_until <= wakeful.now() THEN p.closed_until
    ELSE p.ramp_from END AS since) AS s
CROSS JOIN LATERAL (SELECT CASE WHEN s.since > wakeful.now() - make_interval(secs => 12 * x.period)
                                THEN s.since END AS ramp_from) AS t
WHERE p.company = %(company)s
  AND p.id IN (SELECT a.provider || '/' || coalesce(a.account, 'default') FROM wakeful.wake w
               JOIN wakeful.agent a ON a.company = w.company AND a.id = w.agent
               WHERE w.company = %(company)s AND w.id = ANY (%(ids)s) AND a.provider IS NOT NULL)

-- name: company_runs
-- The company's live runs against its limit; counted only where there is a limit.
SELECT CASE WHEN c.max_concurrent_runs IS NULL THEN 0 ELSE (
           SELECT count(*)::integer FROM wakeful.run r WHERE r.company = c.company
           AND r.ended_at IS NULL AND r.state <> 'suspended') END AS live,
       c.max_concurrent_runs AS limit
FROM wakeful.company c WHERE c.company = %(company)s

-- name: lock_limits
-- Serialises budgets, concurrency and rates of one company until the commit.
SELECT wakeful.lock_limits(%(company)s)

-- name: admit
-- One queued run a wake, and the wake linked to it. A wake whose issue has a live run after all returns no row.
WITH chosen AS (
    SELECT u.wake, u.retry_of, u.comments, u.authority, u.place
    FROM unnest(%(wakes)s::uuid[], %(retry_of)s::uuid[], %(comments)s::jsonb[], %(authorities)s::text[])
         WITH ORDINALITY AS u (wake, retry_of, comments, authority, place)
), made AS (
    INSERT INTO wakeful.run (company, agent, issue, project, wake, retry_of, estimate, labels, host, host_fixed, priority, account,
                             comments, authority)
    SELECT w.company, w.agent, w.issue, coalesce(i.project, w.project), w.id, chosen.retry_of, w.estimate, a.labels, a.host,
           a.host IS NOT NULL, w.priority,
           CASE WHEN a.provider IS NOT NULL THEN a.provider || '/' || coalesce(a.account, 'default') END,
           CASE WHEN chosen.comments IS NULL THEN '{}'
                ELSE ARRAY(SELECT jsonb_array_elements_text(chosen.comments)) END,
           coalesce(chosen.authority, w.actor_kind || ':' || w.actor)
    FROM chosen
    JOIN wakeful.wake w ON w.company = %(company)s AND w.id = chosen.wake
    JOIN wakeful.agent a ON a.company = w.company AND a.id = w.agent
    LEFT JOIN wakeful.issue i ON i.company = w.company AND i.id = w.issue
    ORDER BY chosen.place
    ON CONFLICT DO NOTHING
    RETURNING id, wake
)
UPDATE wakeful.wake w
SET state = 'linked', run = made.id, due_at = NULL, ended_at = wakeful.now(), version = w.version + 1,
    error = NULL, error_at = NULL
FROM made WHERE w.company = %(company)s AND w.id = made.wake
RETURNING w.id, w.run

-- name: reserve
-- What each admitted run may spend, held against its policies until it ends.
INSERT INTO wakeful.reservation (company, run, policy, amount)
SELECT r.company, r.id, u.policy, u.amount
FROM unnest(%(wakes)s::uuid[], %(policies)s::text[], %(amounts)s::numeric[]) AS u (wake, policy, amount)
JOIN wakeful.run r ON r.company = %(company)s AND r.wake = u.wake

-- name: park
-- A first or a changed reason: one new wait, one grace.
UPDATE wakeful.wake w
SET wait_gate = u.gate, wait_key = u.key, wait_reason = u.reason, wait_message = u.message, opens_on = u.opens_on,
    wait_since = wakeful.wall(), grace_from = wakeful.wall(), reopens_at = u.reopens_at, due_at = u.due_at,
    examined_at = wakeful.now(), version = w.version + 1, error = NULL, error_at = NULL, failures = 0
FROM unnest(%(wakes)s::uuid[], %(gates)s::text[], %(keys)s::text[], %(reasons)s::text[], %(messages)s::text[],
            %(opens_on)s::text[], %(reopens_at)s::timestamptz[], %(due_at)s::timestamptz[])
     AS u (wake, gate, key, reason, message, opens_on, reopens_at, due_at)
WHERE w.company = %(company)s AND w.id = u.wake AND w.state = 'deferred'
RETURNING w.id

-- name: settle_down
-- The same reason once its grace is over: only the deadline moves, to the gate's own clock or to silence.
UPDATE wakeful.wake w SET due_at = u.due_at, reopens_at = u.due_at, examined_at = wakeful.now()
FROM unnest(%(wakes)s::uuid[], %(due_at)s::timestamptz[]) AS u (wake, due_at)
WHERE w.company = %(company)s AND w.id = u.wake AND w.state = 'deferred'
RETURNING w.id

-- name: end
-- Receipts that end without a run of their own. One whose chat has settled ends as its settlement pass would end it.
UPDATE wakeful.wake w
SET state = u.state, reason = u.reason, wait_message = coalesce(nullif(u.message, ''), w.wait_message),
    run = CASE WHEN u.state = 'settled' AND w.chat_action IS NOT NULL THEN u.into ELSE w.run END,
    chat_outcome = CASE WHEN u.state = 'settled' AND w.chat_action IS NOT NULL
                        THEN CASE WHEN u.into IS NULL THEN 'failed' ELSE 'processed' END ELSE w.chat_outcome END,
    coalesced_into = u.into, due_at = NULL, ended_at = wakeful.now(), version = w.version + 1
FROM unnest(%(wakes)s::uuid[], %(states)s::text[], %(reasons)s::text[], %(messages)s::text[], %(into)s::uuid[])
     AS u (wake, state, reason, message, "into")
WHERE w.company = %(company)s AND w.id = u.wake AND w.state = 'deferred'
RETURNING w.id

-- name: succeed
-- The next wakes of receipts that recur, in the transaction that links or ends those. A receipt that repeats one whose
-- successor was saved already, because it was re-armed or met its provider's limit, gets no second one.
WITH fresh AS (
    INSERT INTO wakeful.wake (company, id, kind, priority, agent, issue, project, source, actor_kind, actor, payload, key,
                              due_at, effect_root, estimate, follows)
    SELECT w.company, u.id, w.kind, w.priority, w.agent, w.issue, w.project, w.source, w.actor_kind, w.actor,
           coalesce(u.payload, w.payload), w.key, u.due_at, u.id, w.estimate, w.effect_root
    FROM (SELECT x.*, wakeful.uuid7() AS id
          FROM unnest(%(wakes)s::uuid[], %(due_at)s::timestamptz[], %(payloads)s::jsonb[]) AS x (wake, due_at, payload)) AS u
    JOIN wakeful.wake w ON w.company = %(company)s AND w.id = u.wake
    ON CONFLICT (company, follows) WHERE follows IS NOT NULL DO NOTHING
    RETURNING company, id, key, owner, due_at
), repointed AS (
    UPDATE wakeful.wake_key k
    SET wake = fresh.id, expires_at = greatest(fresh.due_at, wakeful.now())
            + make_interval(days => (wakeful.setting_value('dedup_days', '7') #>> '{}')::integer)
    FROM fresh WHERE k.company = fresh.company AND k.key = fresh.key AND k.wake = ANY (%(wakes)s)
)
SELECT wakeful.notify_wake(company, id, owner, due_at) FROM fresh

-- name: set_aside
-- A receipt that cannot be judged now: its error and its next try, in the row.
UPDATE wakeful.wake w
SET error = %(error)s, error_at = wakeful.now(), failures = w.failures + 1, examined_at = wakeful.now(),
    due_at = wakeful.now() + make_interval(secs => %(delay)s)
WHERE w.company = %(company)s AND w.id = %(id)s AND w.state = 'deferred'
RETURNING w.due_at

-- name: failures
-- How often a receipt has been set aside in a row.
SELECT w.failures FROM wakeful.wake w WHERE w.company = %(company)s AND w.id = %(id)s

-- name: stored
-- Where one wake stands, and whether anything may be admitted at all.
SELECT w.state, w.owner, w.run, w.ended_at, wakeful.setting_value('draining', 'false') = 'true' AS draining
FROM wakeful.wake w WHERE w.company = %(company)s AND w.id = %(id)s

-- name: note_release
-- Somebody asks for a pending wake by hand: kept before it is tried, whatever comes of it.
INSERT INTO wakeful.audit (company, actor, authenticated, verb, target, before)
SELECT w.company, coalesce(%(actor)s, 'system:' || session_user), 'database login ' || session_user, 'release', 'wake:' || w.id, jsonb_build_object('due', w.due_at)
FROM wakeful.wake w WHERE w.company = %(company)s AND w.id = %(id)s AND w.ended_at IS NULL

-- name: check_project_budgets
-- The project-budget rule: last in the lock order, projects ascending by the order that all others lock them in.
SELECT wakeful.check_project_budget(%(company)s, p.project)
FROM (SELECT u.project FROM unnest(%(projects)s::text[]) AS u (project) ORDER BY 'project:' || u.project OFFSET 0) AS p

-- name: announce
-- Queued runs reach the dispatchers with the commit.
SELECT wakeful.notify('dispatch', %(company)s, NULL, NULL)
