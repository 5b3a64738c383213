-- What owners read: deadlines near and overdue, and receipts parked on a gate. No locks.

-- name: overdue
-- Overdue receipts, fairly: at most `share` per (company, priority), companies after `start` first. `rows`, and those of
-- `companies`, are left out: somebody else holds them.
WITH RECURSIVE pair AS (
    (SELECT w.company, w.priority FROM wakeful.wake w
     WHERE w.owner = %(owner)s AND w.due_at IS NOT NULL AND w.state IN ('deferred', 'queued', 'claimed', 'error')
     ORDER BY w.company, w.priority LIMIT 1)
    UNION ALL
    SELECT n.company, n.priority FROM pair
    CROSS JOIN LATERAL (
        SELECT w.company, w.priority FROM wakeful.wake w
        WHERE w.owner = %(owner)s AND w.due_at IS NOT NULL AND w.state IN ('deferred', 'queued', 'claimed', 'error')
          AND (w.company, w.priority) > (pair.company, pair.priority)
        ORDER BY w.company, w.priority LIMIT 1) AS n)
SELECT x.company, x.id, x.due_at, wakeful.wall() AS now
FROM (SELECT * FROM pair WHERE pair.company <> ALL (%(companies)s::text[])
      ORDER BY pair.company <= %(start)s, pair.company, pair.priority) AS p
CROSS JOIN LATERAL (
    SELECT w.company, w.id, w.due_at FROM wakeful.wake w
    WHERE w.owner = %(owner)s AND w.company = p.company AND w.priority = p.priority AND w.due_at <= wakeful.now()
      AND w.state IN ('deferred', 'queued', 'claimed', 'error') AND w.id <> ALL (%(rows)s::uuid[])
    ORDER BY w.due_at, w.id LIMIT %(share)s) AS x
WHERE (hashtextextended(x.company, 0) & 15)::smallint = ANY (%(shards)s)
LIMIT %(limit)s

-- name: upcoming
-- The nearest deadlines of the held shards; the last one is the window's horizon. Leaves out the same as `overdue`.
SELECT x.company, x.id, x.due_at, wakeful.wall() AS now
FROM unnest(%(shards)s::smallint[]) AS s (shard)
CROSS JOIN LATERAL (
    SELECT w.company, w.id, w.due_at FROM wakeful.wake w
    WHERE w.owner = %(owner)s AND w.shard = s.shard AND w.due_at IS NOT NULL
      AND w.state IN ('deferred', 'queued', 'claimed', 'error') AND w.id <> ALL (%(rows)s::uuid[])
      AND w.company <> ALL (%(companies)s::text[])
    ORDER BY w.due_at, w.company, w.id LIMIT %(limit)s) AS x
ORDER BY x.due_at, x.company, x.id LIMIT %(limit)s

-- name: parked
-- One page of what is parked on a gate, over an immutable key; and of the chats' retries that would have to pass it, which
-- wait for their action and not for a gate.
SELECT x.id FROM (
    (SELECT w.id FROM wakeful.wake w
     WHERE w.company = %(company)s AND w.wait_gate = %(gate)s AND w.wait_key = %(key)s
       AND w.state IN ('deferred', 'queued', 'claimed', 'error') AND w.id > %(after)s
     ORDER BY w.id LIMIT %(limit)s)
    UNION ALL
    (SELECT w.id FROM wakeful.wake w
     WHERE w.company = %(company)s AND w.wait_gate = 'chat' AND w.state = 'deferred' AND w.id > %(after)s
       AND wakeful.gate_concerns(w.company, %(gate)s, %(key)s, w.agent, w.issue, w.project)
     ORDER BY w.id LIMIT %(limit)s)) AS x
ORDER BY x.id LIMIT %(limit)s

-- name: waiting_on_issue
-- One page of an issue's parked receipts, whatever they are parked on: the issue itself changed.
SELECT w.id FROM wakeful.wake w
WHERE w.company = %(company)s AND w.issue = %(key)s AND w.wait_gate IS NOT NULL
  AND w.state IN ('deferred', 'queued', 'claimed', 'error') AND w.id > %(after)s
ORDER BY w.id LIMIT %(limit)s

-- name: waiting_for_agent
-- One page of an agent's parked receipts, whatever they are parked on: the agent itself changed.
SELECT w.id FROM wakeful.wake w
WHERE w.company = %(company)s AND w.agent = %(key)s AND w.wait_gate IS NOT NULL
  AND w.state IN ('deferred', 'queued', 'claimed', 'error') AND w.id > %(after)s
ORDER BY w.id LIMIT %(limit)s

-- name: gates
-- One page of the distinct gates that wakes are parked on, each with the receipt that is let through first: of a
-- budget the cheapest (among the first ten thousand), of an issue one of its assignee's, else the oldest.
WITH RECURSIVE gate AS (
    (SELECT w.company, w.wait_gate, w.wait_key FROM wakeful.wake w
     WHERE w.wait_gate IS NOT NULL AND w.state IN ('deferred', 'queued', 'claimed', 'error')
       AND (w.company, w.wait_gate, w.wait_key) > (%(company)s, %(gate)s, %(key)s)
     ORDER BY w.company, w.wait_gate, w.wait_key LIMIT 1)
    UNION ALL
    SELECT n.* FROM gate CROSS JOIN LATERAL (
        SELECT w.company, w.wait_gate, w.wait_key FROM wakeful.wake w
        WHERE w.wait_gate IS NOT NULL AND w.state IN ('deferred', 'queued', 'claimed', 'error')
          AND (w.company, w.wait_gate, w.wait_key) > (gate.company, gate.wait_gate, gate.wait_key)
        ORDER BY w.company, w.wait_gate, w.wait_key LIMIT 1) AS n)
SELECT g.company, g.wait_gate AS gate, g.wait_key AS key, CASE g.wait_gate
    WHEN 'budget' THEN (
        SELECT f.id FROM (
            SELECT w.id, w.estimate, w.agent FROM wakeful.wake w
            WHERE w.company = g.company AND w.wait_gate = g.wait_gate AND w.wait_key = g.wait_key
              AND w.state IN ('deferred', 'queued', 'claimed', 'error')
            ORDER BY w.id LIMIT 10000) AS f
        JOIN wakeful.agent a ON a.company = g.company AND a.id = f.agent
        LEFT JOIN wakeful.budget b ON b.company = g.company AND b.id = g.wait_key
        ORDER BY coalesce(f.estimate, a.estimate, b.estimate, 0), f.id LIMIT 1)
    WHEN 'issue' THEN (
        SELECT w.id FROM wakeful.wake w
        LEFT JOIN wakeful.issue i ON i.company = w.company AND i.id = w.issue
        WHERE w.company = g.company AND w.wait_gate = g.wait_gate AND w.wait_key = g.wait_key
          AND w.state IN ('deferred', 'queued', 'claimed', 'error')
        ORDER BY (i.assignee_kind = 'agent' AND i.assignee = w.agent) IS TRUE DESC, w.id LIMIT 1)
    ELSE (
        SELECT w.id FROM wakeful.wake w
        WHERE w.company = g.company AND w.wait_gate = g.wait_gate AND w.wait_key = g.wait_key
          AND w.state IN ('deferred', 'queued', 'claimed', 'error')
        ORDER BY w.id LIMIT 1) END AS first
FROM (SELECT * FROM gate LIMIT %(limit)s) AS g

-- name: owners
-- Owners with deadlines that are none of the known ones; from one distinct owner to the next.
WITH RECURSIVE owner AS (
    (SELECT w.owner FROM wakeful.wake w
     WHERE w.due_at IS NOT NULL AND w.state IN ('deferred', 'queued', 'claimed', 'error') ORDER BY w.owner LIMIT 1)
    UNION ALL
    SELECT n.owner FROM owner CROSS JOIN LATERAL (
        SELECT w.owner FROM wakeful.wake w
        WHERE w.due_at IS NOT NULL AND w.state IN ('deferred', 'queued', 'claimed', 'error') AND w.owner > owner.owner
        ORDER BY w.owner LIMIT 1) AS n)
SELECT o.owner FROM owner o WHERE o.owner <> ALL (%(known)s::text[]) LIMIT 20
