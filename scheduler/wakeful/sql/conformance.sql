-- What the conformance suite asks and does around the producers, to put an owner's receipts into every situation.

-- name: state_of
-- One receipt as its row tells.
SELECT w.state, w.owner, w.version, w.due_at, w.wait_gate, w.wait_key, w.wait_reason, w.error, w.failures, w.reason
FROM wakeful.wake w WHERE w.company = %(company)s AND w.id = %(wake)s

-- name: runs_on
-- The runs of one issue.
SELECT r.id, r.state, r.generation, r.retry_of FROM wakeful.run r
WHERE r.company = %(company)s AND r.issue = %(issue)s AND r.id <> ALL (%(except)s) ORDER BY r.id

-- name: pending
-- What is pending on the issues of this test, without what a receipt that recurs has left for later.
SELECT w.id, w.issue, w.state, w.wait_gate, w.wait_key, w.wait_reason, w.error FROM wakeful.wake w
WHERE w.company = %(company)s AND w.ended_at IS NULL AND w.issue = ANY (%(issues)s)
  AND (w.due_at IS NULL OR w.due_at < wakeful.now() + interval '1 minute') ORDER BY w.id

-- name: overloaded
-- Issues that have more than one run, or none.
SELECT i.issue, count(r.id)::integer AS runs FROM unnest(%(issues)s::text[]) AS i (issue)
LEFT JOIN wakeful.run r ON r.company = %(company)s AND r.issue = i.issue AND r.id <> ALL (%(except)s)
GROUP BY i.issue HAVING count(r.id) <> 1 ORDER BY i.issue LIMIT 5

-- name: all_runs
SELECT r.id FROM wakeful.run r WHERE r.company = %(company)s

-- name: unended
SELECT count(*)::integer AS runs FROM wakeful.run r WHERE r.company = %(company)s AND r.ended_at IS NULL

-- name: move
-- Moves a stored deadline, as an edit does.
UPDATE wakeful.wake w SET due_at = wakeful.now() + make_interval(secs => %(seconds)s)
WHERE w.company = %(company)s AND w.id = ANY (%(wakes)s) AND w.ended_at IS NULL

-- name: tie
-- Gives all receipts the same deadline.
UPDATE wakeful.wake w SET due_at = (SELECT min(x.due_at) FROM wakeful.wake x WHERE x.company = w.company AND x.id = ANY (%(wakes)s))
WHERE w.company = %(company)s AND w.id = ANY (%(wakes)s) AND w.due_at IS NOT NULL

-- name: send_elsewhere
-- Only a host that is not there may claim this run.
UPDATE wakeful.run r SET host = 'elsewhere', host_fixed = true WHERE r.company = %(company)s AND r.id = %(run)s

-- name: start_run
UPDATE wakeful.run r SET state = 'starting' WHERE r.company = %(company)s AND r.id = %(run)s

-- name: requeue_run
UPDATE wakeful.run r SET state = 'queued', generation = r.generation + 1 WHERE r.company = %(company)s AND r.id = %(run)s

-- name: break_writes
-- From now on no receipt can be linked or coalesced: an infrastructure error.
SET LOCAL ROLE wakeful_owner;
CREATE FUNCTION wakeful.conformance_fault() RETURNS trigger LANGUAGE plpgsql
AS $$ BEGIN RAISE EXCEPTION 'the conformance suite breaks this write'; END $$;
CREATE TRIGGER conformance_fault BEFORE UPDATE OF state ON wakeful.wake FOR EACH ROW
    WHEN (NEW.state IN ('linked', 'coalesced', 'settled')) EXECUTE FUNCTION wakeful.conformance_fault();
RESET ROLE

-- name: mend_writes
SET LOCAL ROLE wakeful_owner;
DROP TRIGGER conformance_fault ON wakeful.wake;
DROP FUNCTION wakeful.conformance_fault();
RESET ROLE

-- name: take_owners_lock
-- As another scheduler holds it.
SELECT pg_advisory_lock(hashtextextended('wakeful owners', 0))
