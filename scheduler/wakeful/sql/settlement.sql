-- Chat actions' outcomes folded into the retries that wait for them. Lock order: the wakes; actions are only read.

-- name: lock
-- Locks the receipts whose action's outcome has not been folded yet, and that nobody else holds.
SELECT w.id FROM wakeful.wake w
WHERE w.company = %(company)s AND w.id = ANY (%(ids)s) AND w.state = 'deferred' AND w.chat_action IS NOT NULL
  AND w.chat_outcome IS NULL
ORDER BY w.id FOR NO KEY UPDATE SKIP LOCKED

-- name: actions
-- What each receipt's action has come to; a receipt whose action does not bear it out has none. A statement of its own,
-- after the lock: one and the same would see the snapshot from before the wait.
SELECT w.id, coalesce(w.due_at <= wakeful.wall(), false) AS due, a.state, a.run, a.error
FROM wakeful.wake w
LEFT JOIN LATERAL wakeful.chat_action_of(w.company, w.id) AS a ON true
WHERE w.company = %(company)s AND w.id = ANY (%(ids)s) AND w.state = 'deferred' AND w.chat_action IS NOT NULL
  AND w.chat_outcome IS NULL
ORDER BY w.id

-- name: end
-- Nothing is left to run: the chat itself led to a run, or its action failed.
UPDATE wakeful.wake w
SET state = 'settled', chat_outcome = u.outcome, reason = u.reason,
    wait_message = coalesce(nullif(u.message, ''), w.wait_message), run = u.into, coalesced_into = u.into,
    due_at = NULL, ended_at = wakeful.now(), version = w.version + 1, error = NULL, error_at = NULL
FROM unnest(%(wakes)s::uuid[], %(outcomes)s::text[], %(reasons)s::text[], %(messages)s::text[], %(into)s::uuid[])
     AS u (wake, outcome, reason, message, "into")
WHERE w.company = %(company)s AND w.id = u.wake AND w.state = 'deferred'
RETURNING w.id

-- name: give_back
-- The chat is through with them and led to no run: ordinary retries from here on, due now.
UPDATE wakeful.wake w
SET chat_outcome = 'processed', wait_gate = NULL, wait_key = NULL, wait_reason = NULL, wait_message = NULL,
    wait_since = NULL, grace_from = NULL, opens_on = NULL, reopens_at = NULL, due_at = wakeful.now(),
    version = w.version + 1, error = NULL, error_at = NULL, failures = 0
WHERE w.company = %(company)s AND w.id = ANY (%(wakes)s) AND w.state = 'deferred'
RETURNING w.id
