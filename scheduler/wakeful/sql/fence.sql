-- The fence: a writer's check, inside its own transaction, that its (run, generation) is current.

-- name: enter
-- The first lock of a writer's transaction: the runs at exactly these generations and not yet ended, ascending.
-- Conflicts with the bump of a generation, which waits; leaves foreign keys and readers alone.
SELECT r.id, r.generation, r.state, r.stopped, r.attempt, current_setting('transaction_isolation') AS isolation
FROM (SELECT u.run, u.generation FROM unnest(%(runs)s::uuid[], %(generations)s::integer[]) AS u (run, generation)
      ORDER BY u.run) AS c
CROSS JOIN LATERAL (
    SELECT x.id, x.generation, x.state, x.stop_at IS NOT NULL AS stopped, x.attempt FROM wakeful.run x
    WHERE x.company = %(company)s AND x.id = c.run AND x.generation = c.generation
      AND x.state IN ('queued', 'starting', 'running', 'suspended', 'stopping')
    FOR NO KEY UPDATE) AS r

-- name: read_committed
-- Whatever the session's default is: each statement after the fence must see what was committed before it.
SET TRANSACTION ISOLATION LEVEL READ COMMITTED
