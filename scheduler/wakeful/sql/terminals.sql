-- The one funnel through which claimed runs end or go back, under the fence. Lock order: the runs at their
-- generation (the fence), their issues ascending, their sessions; then settle_runs, and the accounts last.

-- name: lock_issues
-- The issues of the ending runs, and those they took besides, ascending.
SELECT i.id FROM wakeful.issue i
WHERE i.company = %(company)s
  AND i.id = ANY (ARRAY(SELECT r.issue::text FROM wakeful.run r WHERE r.company = %(company)s AND r.id = ANY (%(runs)s)
                        UNION
                        SELECT x.id::text FROM wakeful.issue x
                        WHERE x.company = %(company)s AND x.execution_run = ANY (%(runs)s)))
ORDER BY i.id FOR NO KEY UPDATE

-- name: finish
-- The final record of each run, with whether its attempt had been given a session. An attempt's usage is known
-- (metered) by its result, or because it executed nothing.
UPDATE wakeful.run r
SET state = u.state, ended_at = wakeful.now(), started_at = coalesce(r.started_at, u.started_at), exit_code = u.exit_code,
    exit_signal = u.exit_signal, end_class = u.end_class, evidence = u.evidence, reason = u.reason, message = u.message,
    error = u.error, result = u.result, directory = u.directory, survivors = u.survivors, processes = u.processes, renew_by = NULL,
    wait_gate = NULL, wait_key = NULL, wait_reason = NULL, wait_message = NULL, wait_since = NULL, opens_on = NULL,
    reopens_at = NULL, metered = r.metered + (u.metered AND r.state <> 'queued')::integer,
    stdout_bytes = u.stdout_bytes, stdout_sha256 = u.stdout_sha256, stdout_tail = u.stdout_tail,
    stdout_altered = u.stdout_altered, stdout_truncated = u.stdout_truncated,
    stderr_bytes = u.stderr_bytes, stderr_sha256 = u.stderr_sha256, stderr_tail = u.stderr_tail,
    stderr_altered = u.stderr_altered, stderr_truncated = u.stderr_truncated
FROM unnest(%(runs)s::uuid[], %(states)s::text[], %(started_at)s::timestamptz[], %(exit_codes)s::integer[],
            %(exit_signals)s::integer[], %(end_classes)s::text[], %(evidences)s::text[], %(reasons)s::text[],
            %(messages)s::text[], %(errors)s::text[], %(results)s::jsonb[], %(directories)s::text[], %(metered)s::boolean[],
            %(survivors)s::integer[], %(processes)s::integer[],
            %(stdout_bytes)s::bigint[], %(stdout_sha256)s::text[], %(stdout_tail)s::text[], %(stdout_altered)s::boolean[],
            %(stdout_truncated)s::boolean[], %(stderr_bytes)s::bigint[], %(stderr_sha256)s::text[], %(stderr_tail)s::text[],
            %(stderr_altered)s::boolean[], %(stderr_truncated)s::boolean[])
     AS u (run, state, started_at, exit_code, exit_signal, end_class, evidence, reason, message, error, result, directory,
           metered, survivors, processes, stdout_bytes, stdout_sha256, stdout_tail, stdout_altered, stdout_truncated,
           stderr_bytes, stderr_sha256, stderr_tail, stderr_altered, stderr_truncated)
WHERE r.company = %(company)s AND r.id = u.run
RETURNING r.id, r.session IS NOT NULL AS resumed

-- name: settle
-- Frees issues, settles reservations, signals; returns directories whose rows retention deleted.
SELECT host, directory FROM wakeful.settle_runs(%(company)s, %(runs)s)

-- name: save_behind_limits
-- What ended on a provider's limit closes its account and sleeps behind it; accounts in one order, since each is locked.
SELECT wakeful.save_behind_limit(%(company)s, l.run, l.until)
FROM (SELECT u.run, u.until FROM unnest(%(runs)s::uuid[], %(until)s::timestamptz[]) AS u (run, until)
      JOIN wakeful.run r ON r.company = %(company)s AND r.id = u.run ORDER BY r.account, r.id OFFSET 0) AS l

-- name: follow_up
-- The wake that a run's result asked for, in the transaction that ends the run.
INSERT INTO wakeful.wake (company, id, kind, priority, agent, issue, project, source, actor_kind, actor, payload, due_at, effect_root)
SELECT r.company, u.id, 'request', r.priority, r.agent, r.issue, r.project, 'timer', 'agent', r.agent,
       u.payload, u.at, u.id
FROM (SELECT %(run)s::uuid AS run, wakeful.uuid7() AS id, %(payload)s::jsonb AS payload, %(at)s::timestamptz AS at) AS u
JOIN wakeful.run r ON r.company = %(company)s AND r.id = u.run
RETURNING wakeful.notify_wake(company, id, owner, due_at)

-- name: post_comment
-- What a run said in its result, on its issue.
SELECT wakeful.post_comment(%(company)s, %(run)s, %(body)s)

-- name: post_card
-- What a run asks a person in its result, on its issue.
SELECT wakeful.post_card(%(company)s, %(run)s, %(question)s, %(kind)s)

-- name: free_taken
-- The issues that runs took besides their own.
SELECT wakeful.free_taken(%(company)s, %(runs)s)

-- name: requeue
-- A proven death without an exit record: one generation on, for the next claim, which counts the attempt.
WITH freed AS (
    UPDATE wakeful.issue i SET execution_run = NULL, execution_locked_at = NULL
    WHERE i.company = %(company)s AND i.execution_run = ANY (%(runs)s::uuid[])
)
UPDATE wakeful.run r
SET state = 'queued', generation = r.generation + 1, host = CASE WHEN r.host_fixed THEN r.host END, executor = NULL,
    claimed_by = NULL, claimed_at = NULL, renew_by = NULL, started_at = NULL, queued_at = wakeful.now(),
    uncertain_at = NULL, evidence = NULL, error = u.error, metered = r.metered + u.metered::integer
FROM unnest(%(runs)s::uuid[], %(errors)s::text[], %(metered)s::boolean[]) AS u (run, error, metered)
WHERE r.company = %(company)s AND r.id = u.run
RETURNING r.id

-- name: announce
-- Requeued runs reach the dispatchers with the commit.
SELECT wakeful.notify('dispatch', %(company)s, NULL, NULL)

-- name: refuse_report
-- A late report of an overtaken generation: refused, and kept as refused, once. A generation that ended by its own
-- report is not overtaken: the same report again changes nothing.
INSERT INTO wakeful.refused_report (company, run, generation, report)
SELECT r.company, r.id, %(generation)s, %(report)s FROM wakeful.run r
WHERE r.company = %(company)s AND r.id = %(run)s AND r.generation > %(generation)s
ON CONFLICT DO NOTHING
