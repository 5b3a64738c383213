-- What the demo's reader asks of the rows. Reads only.

-- name: runs
-- Every run of the company, oldest first, with what its end left.
SELECT r.id::text, r.state, r.generation, r.attempt, r.claimed_by, r.host, r.wake::text, r.retry_of::text, r.exit_code,
       r.end_class, r.evidence, r.reason, r.directory, r.stdout_tail, r.stdout_bytes, r.created_at, r.started_at, r.ended_at
FROM wakeful.run r WHERE r.company = %(company)s ORDER BY r.id

-- name: wakes
-- Every wake of the company, oldest first, with what it waits for.
SELECT w.id::text, w.kind, w.state, w.key, w.wait_gate, w.wait_key, w.wait_reason, w.opens_on, w.run::text, w.certified_run::text
FROM wakeful.wake w WHERE w.company = %(company)s ORDER BY w.id

-- name: keys
-- Which wake each idempotency key answers with.
SELECT k.key, k.wake::text FROM wakeful.wake_key k WHERE k.company = %(company)s ORDER BY k.key

-- name: audit
-- What was done, by whom, in order.
SELECT a.at, a.actor, a.verb, a.target FROM wakeful.audit a WHERE a.company = %(company)s ORDER BY a.id
