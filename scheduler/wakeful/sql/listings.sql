-- Pages of records in a total order, for people and machines. Keyset, so that a page costs the same anywhere.
-- No block reads a payload, a result, an issue's body or a run's output.

-- name: enter_company
-- Makes a company the session's tenant, and says whether it exists.
SELECT EXISTS (SELECT FROM wakeful.company c WHERE c.company = t.tenant) AS known
FROM (SELECT set_config('wakeful.company', %(company)s, false) AS tenant) AS t

-- name: first_companies
-- Enough to tell none, one, and several apart.
SELECT c.company FROM wakeful.company c ORDER BY c.company LIMIT 2

-- name: companies
-- By id.
SELECT c.company, c.name, c.state, c.paused_at, c.pause_reason, c.panic_at, c.panic_by, c.created_at
FROM wakeful.company c
WHERE (%(company)s::text IS NULL OR c.company = %(company)s)
  AND (%(after_key)s::text IS NULL OR c.company > %(after_key)s)
  AND (%(states)s::text[] IS NULL OR c.state = ANY (%(states)s))
ORDER BY c.company LIMIT %(limit)s

-- name: projects
-- By id.
SELECT p.company, p.id, p.name,
       CASE WHEN p.archived_at IS NOT NULL THEN 'archived' WHEN p.paused_at IS NOT NULL THEN 'paused' ELSE 'active' END AS state,
       p.paused_at, p.pause_reason, p.archived_at, p.created_at
FROM wakeful.project p
WHERE p.company = %(company)s AND (%(id)s::text IS NULL OR p.id = %(id)s)
  AND (%(after_key)s::text IS NULL OR p.id > %(after_key)s)
  AND (%(states)s::text[] IS NULL OR %(states)s::text[] && ARRAY[
       CASE WHEN p.archived_at IS NOT NULL THEN 'archived' WHEN p.paused_at IS NOT NULL THEN 'paused' ELSE 'active' END])
ORDER BY p.id LIMIT %(limit)s

-- name: agents
-- By id. Environment values may be secrets: only their names are read, and a viewer may read no more.
SELECT a.company, a.id, a.name, a.state, a.paused_at, a.pause_reason, a.reports_to, a.max_concurrent_runs,
       a.executor, a.command, a.cwd, a.env_allow, a.env_names AS env_values,
       a.max_runtime, a.silence_limit, a.stop_grace, a.max_attempts, a.estimate, a.provider, a.account, a.labels,
       a.host, a.session_policy, a.reader, a.created_at
FROM wakeful.agent a
WHERE a.company = %(company)s AND (%(id)s::text IS NULL OR a.id = %(id)s)
  AND (%(after_key)s::text IS NULL OR a.id > %(after_key)s)
  AND (%(states)s::text[] IS NULL OR a.state = ANY (%(states)s))
ORDER BY a.id LIMIT %(limit)s

-- name: issues
-- By id, with the live run of each.
SELECT i.company, i.id, i.title, i.parent, i.project, i.assignee_kind || ':' || i.assignee AS assignee, i.reviewer,
       i.status AS state, i.status_version, i.execution_run, i.execution_locked_at, i.created_at
FROM wakeful.issue i
WHERE i.company = %(company)s AND (%(id)s::text IS NULL OR i.id = %(id)s)
  AND (%(after_key)s::text IS NULL OR i.id > %(after_key)s)
  AND (%(states)s::text[] IS NULL OR i.status = ANY (%(states)s))
ORDER BY i.id LIMIT %(limit)s

-- name: budgets
-- By id, with what the window has spent and what admitted runs still hold.
SELECT b.company, b.id, b.amount,
       coalesce(wakeful.spent(b.company, b.scope, b.scope_id, wakeful.window_start(b.period)), 0) AS spent,
       coalesce(wakeful.reserved(b.company, b.id), 0) AS reserved,
       b.period, b.warn_percent, b.hard_stop, b.estimate, b.on_overrun, b.changed_at
FROM wakeful.budget b
WHERE b.company = %(company)s AND (%(after_key)s::text IS NULL OR b.id > %(after_key)s)
ORDER BY b.id LIMIT %(limit)s

-- name: spend
-- Newest first; ids begin with the time they were made.
SELECT s.company, s.id, s.amount, s.agent, s.project, s.issue, s.run, s.key, s.provenance, s.at
FROM wakeful.spend s
WHERE s.company = %(company)s AND (%(after_id)s::uuid IS NULL OR s.id < %(after_id)s)
ORDER BY s.id DESC LIMIT %(limit)s

-- name: audit
-- Newest first; ids begin with the time they were made.
SELECT a.company, a.id, a.at, a.actor, a.authenticated, a.verb, a.target
FROM wakeful.audit a
WHERE a.company = %(company)s AND (%(after_id)s::uuid IS NULL OR a.id < %(after_id)s)
ORDER BY a.id DESC LIMIT %(limit)s

-- name: recoveries
-- Newest first; ids begin with the time they were made.
SELECT a.company, a.id, a.state, a.issue, a.run, a.cause, a.opened_at, a.resolved_at, a.resolved_by, a.outcome
FROM wakeful.recovery_action a
WHERE a.company = %(company)s AND (%(after_id)s::uuid IS NULL OR a.id < %(after_id)s)
  AND (%(states)s::text[] IS NULL OR a.state = ANY (%(states)s))
ORDER BY a.id DESC LIMIT %(limit)s

-- name: chats
-- Chat actions, newest first; ids begin with the time they were made, and are those of their wakes.
SELECT a.company, a.id, a.kind, a.state, a.agent, a.issue, a.source_run, a.actor, a.run, a.error, a.created_at,
       a.settled_at, a.settled_by
FROM wakeful.chat_action a
WHERE a.company = %(company)s AND (%(id)s::uuid IS NULL OR a.id = %(id)s)
  AND (%(after_id)s::uuid IS NULL OR a.id < %(after_id)s)
  AND (%(states)s::text[] IS NULL OR a.state = ANY (%(states)s))
ORDER BY a.id DESC LIMIT %(limit)s

-- name: decisions
-- Decisions on the status of issues, newest first; ids begin with the time they were made.
SELECT d.company, d.id, d.issue, d.former, d.status, d.version, d.review, d.reason, d.actor, d.key, d.at
FROM wakeful.status_decision d
WHERE d.company = %(company)s AND (%(issue)s::text IS NULL OR d.issue = %(issue)s)
  AND (%(after_id)s::uuid IS NULL OR d.id < %(after_id)s)
ORDER BY d.id DESC LIMIT %(limit)s

-- name: limits
-- Providers' accounts by id.
SELECT p.company, p.id, p.closed_at, p.closed_until, p.reason, p.resuming, p.starts_per_second
FROM wakeful.provider_account p
WHERE p.company = %(company)s AND (%(after_key)s::text IS NULL OR p.id > %(after_key)s)
ORDER BY p.id LIMIT %(limit)s

-- name: settings
-- By name: those that were ever set.
SELECT s.name, s.value, s.changed_at, s.changed_by
FROM wakeful.setting s
WHERE %(after_key)s::text IS NULL OR s.name > %(after_key)s
ORDER BY s.name LIMIT %(limit)s

-- name: hosts
-- By id.
SELECT h.id, h.labels, h.seen_at, h.dead_at, h.dead_by
FROM wakeful.host h
WHERE %(after_key)s::text IS NULL OR h.id > %(after_key)s
ORDER BY h.id LIMIT %(limit)s

-- name: wakes
-- Newest first (ids begin with the time they were made); or by end, the pending ones before all ended ones, so
-- that a wake which ends while somebody pages moves to a place that is still to come.
SELECT w.company, w.id, w.kind, w.state, w.owner, w.priority, w.agent, w.issue, w.project, w.source,
       w.actor_kind || ':' || w.actor AS actor, w.key, w.created_at, w.due_at, w.ended_at,
       w.wait_gate, w.wait_key, w.wait_reason, w.wait_message, w.wait_since, w.opens_on, w.reopens_at,
       w.reason, w.error, w.error_at, w.failures, w.run, w.coalesced_into, w.rearm_of, w.certified_run AS retry_of,
       w.interrupt_by, w.interrupt_at, w.interrupted_run, x.state AS interrupted_state, x.evidence AS interrupted_evidence,
       r.state AS run_state
FROM ((SELECT x.id FROM wakeful.wake x
       WHERE x.company = %(company)s AND (NOT %(by_end)s OR x.ended_at IS NULL)
         AND (NOT %(by_end)s OR %(after_at)s::timestamptz IS NULL)
         AND (%(after_id)s::uuid IS NULL OR x.id < %(after_id)s)
         AND (%(states)s::text[] IS NULL OR x.state = ANY (%(states)s))
         AND (%(agent)s::text IS NULL OR x.agent = %(agent)s)
         AND (%(issue)s::text IS NULL OR x.issue = %(issue)s)
         AND (%(gate)s::text IS NULL OR x.wait_gate = %(gate)s)
         AND (%(key)s::text IS NULL OR x.wait_key = %(key)s)
       ORDER BY x.id DESC LIMIT %(limit)s)
      UNION ALL
      (SELECT x.id FROM wakeful.wake x
       WHERE %(by_end)s AND x.company = %(company)s AND x.ended_at IS NOT NULL
         AND (%(after_at)s::timestamptz IS NULL OR (x.ended_at, x.id) < (%(after_at)s, %(after_id)s::uuid))
         AND (%(states)s::text[] IS NULL OR x.state = ANY (%(states)s))
         AND (%(agent)s::text IS NULL OR x.agent = %(agent)s)
         AND (%(issue)s::text IS NULL OR x.issue = %(issue)s)
         AND (%(gate)s::text IS NULL OR x.wait_gate = %(gate)s)
         AND (%(key)s::text IS NULL OR x.wait_key = %(key)s)
       ORDER BY x.ended_at DESC, x.id DESC LIMIT %(limit)s)) AS picked
JOIN wakeful.wake w ON w.company = %(company)s AND w.id = picked.id
LEFT JOIN wakeful.run r ON r.company = w.company AND r.id = w.run
LEFT JOIN wakeful.run x ON x.company = w.company AND x.id = w.interrupted_run
ORDER BY CASE WHEN %(by_end)s THEN w.ended_at END DESC NULLS FIRST, w.id DESC LIMIT %(limit)s

-- name: runs
-- Newest first (ids begin with the time they were made); or by end, the live ones before all ended ones, so
-- that a run which ends while somebody pages moves to a place that is still to come.
SELECT r.company, r.id, r.kind, r.state, r.generation, r.attempt, r.agent, r.issue, r.project, r.wake, r.retry_of,
       r.host, r.queued_at, r.started_at, r.ended_at,
       r.wait_gate, r.wait_key, r.wait_reason, r.wait_message, r.wait_since, r.opens_on, r.reopens_at,
       r.stop_at, r.stop_by, r.stop_reason, r.uncertain_at, r.exit_code, r.exit_signal, r.end_class, r.evidence,
       r.reason, r.message, r.error, r.stdout_bytes, r.stderr_bytes
FROM ((SELECT x.id FROM wakeful.run x
       WHERE x.company = %(company)s AND (%(id)s::uuid IS NULL OR x.id = %(id)s)
         AND (NOT %(by_end)s OR x.ended_at IS NULL)
         AND (NOT %(by_end)s OR %(after_at)s::timestamptz IS NULL)
         AND (%(after_id)s::uuid IS NULL OR x.id < %(after_id)s)
         AND (%(states)s::text[] IS NULL OR x.state = ANY (%(states)s))
         AND (%(agent)s::text IS NULL OR x.agent = %(agent)s)
         AND (%(issue)s::text IS NULL OR x.issue = %(issue)s)
       ORDER BY x.id DESC LIMIT %(limit)s)
      UNION ALL
      (SELECT x.id FROM wakeful.run x
       WHERE %(by_end)s AND x.company = %(company)s AND x.ended_at IS NOT NULL
         AND (%(after_at)s::timestamptz IS NULL OR (x.ended_at, x.id) < (%(after_at)s, %(after_id)s::uuid))
         AND (%(states)s::text[] IS NULL OR x.state = ANY (%(states)s))
         AND (%(agent)s::text IS NULL OR x.agent = %(agent)s)
         AND (%(issue)s::text IS NULL OR x.issue = %(issue)s)
       ORDER BY x.ended_at DESC, x.id DESC LIMIT %(limit)s)) AS picked
JOIN wakeful.run r ON r.company = %(company)s AND r.id = picked.id
ORDER BY CASE WHEN %(by_end)s THEN r.ended_at END DESC NULLS FIRST, r.id DESC LIMIT %(limit)s

-- name: issue_body
-- The one long text of an issue, for who asks for that issue.
SELECT i.body FROM wakeful.issue i WHERE i.company = %(company)s AND i.id = %(id)s

-- name: run_detail
-- What only a look at one run reads: its result, and where its output lies.
SELECT r.result, r.directory, r.stdout_sha256, r.stdout_altered, r.stdout_truncated,
       r.stderr_sha256, r.stderr_altered, r.stderr_truncated
FROM wakeful.run r WHERE r.company = %(company)s AND r.id = %(id)s

-- name: run_output
-- What the database keeps of one run's output, and whose files have the rest.
SELECT r.state, r.generation, r.host, r.directory, r.ended_at,
       r.stdout_bytes, r.stdout_tail, r.stdout_altered, r.stdout_truncated,
       r.stderr_bytes, r.stderr_tail, r.stderr_altered, r.stderr_truncated, a.executor
FROM wakeful.run r JOIN wakeful.agent a ON a.company = r.company AND a.id = r.agent
WHERE r.company = %(company)s AND r.id = %(id)s
