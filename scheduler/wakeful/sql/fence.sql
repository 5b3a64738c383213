-- The fence: a writer's check, inside its own transaction, that its (run, generation) is current.

-- name: enter
-- The first lock of a writer's transaction: the runs at exactly these generations and not yet ended, ascending.
-- Conflicts with the bump of a generation, which waits; leaves foreign keys and readers alone.
SELECT r.id, r.generation, r.state, r.stop_at IS NOT NULL AS stopped, r.attempt,
       current_setting('transaction_isolation') AS isolation
FROM unnest(%(runs)s::uuid[], %(generations)s::integer[]) AS c (run, generation)
JOIN wakeful.run r ON r.company = %(company)s AND r.id = c.run AND r.generation = c.generation
    AND r.state IN ('queued', 'starting', 'running', 'suspended', 'stopping')
ORDER BY r.id FOR NO KEY UPDATE OF r

-- name: read_committed
-- Whatever the session's default is: each statement after the fence must see what was committed before it.
SET TRANSACTION ISOLATION LEVEL READ COMMITTED
