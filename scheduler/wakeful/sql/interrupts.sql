-- Saved receipts that cancelled runs name: what an owner looks for after a start.

-- name: named
-- One page of runs whose cancellation releases a receipt that is neither due nor behind a gate, over an immutable key.
-- What waits behind a gate stays there, and is found by the look at all gates that each start takes.
SELECT r.company, r.id AS run, w.id AS wake
FROM wakeful.run r JOIN wakeful.wake w ON w.company = r.company AND w.id = r.named_wake
WHERE r.named_wake IS NOT NULL AND r.state = 'cancelled' AND (r.company, r.id) > (%(company)s, %(run)s)
  AND w.state = 'deferred' AND w.owner <> 'settlement' AND w.wait_gate IS NULL
  AND (w.due_at IS NULL OR w.due_at > wakeful.now())
ORDER BY r.company, r.id LIMIT %(limit)s
