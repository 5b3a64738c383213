-- Why a wake or a run stands where it stands: single records by identity, never their payloads or output.

-- name: find
-- What an id, or the beginning of one, may mean: a range of the primary keys, company by company.
SELECT m.kind, m.company, m.id
FROM wakeful.company c
CROSS JOIN LATERAL (
    (SELECT 'wake' AS kind, w.company, w.id FROM wakeful.wake w
     WHERE w.company = c.company AND w.id BETWEEN %(low)s AND %(high)s ORDER BY w.id LIMIT %(limit)s)
    UNION ALL
    (SELECT 'run', r.company, r.id FROM wakeful.run r
     WHERE r.company = c.company AND r.id BETWEEN %(low)s AND %(high)s ORDER BY r.id LIMIT %(limit)s)) AS m
WHERE %(company)s::text IS NULL OR c.company = %(company)s
ORDER BY m.kind DESC, m.id
LIMIT %(limit)s

-- name: find_by_end
-- What the end of an id may mean. Ids made within hours begin alike and end apart, so people read and say the end.
SELECT m.kind, m.company, m.id
FROM (SELECT 'wake' AS kind, w.company, w.id FROM wakeful.wake w
      UNION ALL
      SELECT 'run', r.company, r.id FROM wakeful.run r) AS m
WHERE (%(company)s::text IS NULL OR m.company = %(company)s)
  AND right(replace(m.id::text, '-', ''), length(%(end)s::text)) = %(end)s::text
ORDER BY m.kind DESC, m.id
LIMIT %(limit)s

-- name: wake
-- One wake, the run that carries it, the wake it was re-armed as; of an interrupted one, the run that was to stop.
SELECT w.company, w.id, w.kind, w.state, w.agent, w.issue, coalesce(i.project, w.project) AS project,
       w.created_at, w.due_at, w.ended_at, w.claimed_at, w.claimed_by,
       w.wait_gate, w.wait_key, w.wait_reason, w.wait_message, w.wait_since, w.opens_on, w.reopens_at,
       w.reason, w.error, w.error_at, w.failures, w.coalesced_into, w.rearm_of, w.run, r.state AS run_state,
       coalesce(r.comments, w.comments) AS comments, w.card, w.card_status,
       r.host AS run_host, r.started_at AS run_started_at, r.ended_at AS run_ended_at, r.end_class AS run_end_class,
       (SELECT n.id FROM wakeful.wake n WHERE n.company = w.company AND n.rearm_of = w.id) AS rearmed_by,
       w.interrupt_by, w.interrupt_at, w.interrupted_run, x.state AS interrupted_state, x.ended_at AS interrupted_ended_at,
       x.evidence AS interrupted_evidence, x.teardowns,
       CASE WHEN w.interrupt_at IS NOT NULL AND w.ended_at IS NULL
            THEN wakeful.queue_authority(w.company, w.id) END AS queue_authority,
       CASE WHEN w.wait_reason = 'execution.live_run' THEN i.execution_run END AS holder,
       wakeful.now() AS now
FROM wakeful.wake w
LEFT JOIN wakeful.issue i ON i.company = w.company AND i.id = w.issue
LEFT JOIN wakeful.run r ON r.company = w.company AND r.id = w.run
LEFT JOIN wakeful.run x ON x.company = w.company AND x.id = w.interrupted_run
WHERE w.company = %(company)s AND w.id = %(id)s

-- name: run
-- One run, the host it is bound to, its open recovery action, and what retries it.
SELECT r.company, r.id, r.kind, r.state, r.generation, r.attempt, a.max_attempts, r.agent, r.issue, r.project,
       r.wake, r.retry_of, r.comments, r.authority, a.executor, r.labels, r.host, r.host_fixed, r.claimed_at, r.renew_by,
       r.queued_at, r.started_at, r.ended_at,
       r.wait_gate, r.wait_key, r.wait_reason, r.wait_message, r.wait_since, r.opens_on, r.reopens_at,
       r.stop_at, r.stop_by, r.stop_reason, r.uncertain_at,
       r.exit_code, r.exit_signal, r.end_class, r.evidence, r.reason, r.message, r.error,
       h.id IS NOT NULL AS host_known, h.seen_at AS host_seen_at, h.dead_at AS host_dead_at,
       EXISTS (SELECT FROM wakeful.host f WHERE f.dead_at IS NULL AND r.labels <@ f.labels
               AND (r.host IS NULL OR f.id = r.host)) AS host_fits,
       v.id AS recovery, v.cause AS recovery_cause,
       (SELECT n.id FROM wakeful.run n WHERE n.company = r.company AND n.retry_of = r.id
        ORDER BY n.id DESC LIMIT 1) AS retried_by,
       (SELECT w.id FROM wakeful.wake w WHERE w.company = r.company AND w.certified_run = r.id
        AND w.kind = 'task_retry' AND (w.state = 'deferred' OR w.run IS NOT NULL)) AS retry_wake,
       wakeful.now() AS now
FROM wakeful.run r
JOIN wakeful.agent a ON a.company = r.company AND a.id = r.agent
LEFT JOIN wakeful.host h ON h.id = r.host
LEFT JOIN wakeful.recovery_action v ON v.company = r.company AND v.run = r.id AND v.state = 'open'
WHERE r.company = %(company)s AND r.id = %(id)s

-- name: brakes
-- What keeps everything from moving: settings that differ from their defaults, and that nobody holds the owners' lock.
SELECT s.name FROM wakeful.setting s
WHERE s.name IN ('draining', 'panic') AND s.value = 'true'
   OR s.name IN ('scheduler_enabled', 'owners_enabled') AND s.value = 'false'
UNION ALL
SELECT 'unowned' WHERE NOT EXISTS (
    SELECT FROM pg_catalog.pg_locks l
    WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
      AND l.database = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = current_database())
      AND (l.classid::bigint << 32) | l.objid::bigint = hashtextextended('wakeful owners', 0))
ORDER BY 1
