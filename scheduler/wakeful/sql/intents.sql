-- Status intents: claimed in one transaction, dispatched in the next. A claim that is lost writes nothing.
-- Lock order: issues ascending, then wakes, then the company's limits lock.

-- name: due
-- What one pass by hand may take: due intents, the first of each company before the second of any.
WITH RECURSIVE whose AS (
    (SELECT w.company FROM wakeful.wake w
     WHERE w.owner = 'native_status' AND w.due_at IS NOT NULL AND w.state IN ('deferred', 'queued', 'claimed', 'error')
     ORDER BY w.company LIMIT 1)
    UNION ALL
    SELECT n.company FROM whose CROSS JOIN LATERAL (
        SELECT w.company FROM wakeful.wake w
        WHERE w.owner = 'native_status' AND w.due_at IS NOT NULL AND w.state IN ('deferred', 'queued', 'claimed', 'error')
          AND w.company > whose.company
        ORDER BY w.company LIMIT 1) AS n)
SELECT x.company, x.id
FROM whose CROSS JOIN LATERAL (
    SELECT w.company, w.id, row_number() OVER (ORDER BY w.priority, w.due_at, w.id) AS place FROM wakeful.wake w
    WHERE w.owner = 'native_status' AND w.company = whose.company AND w.due_at <= wakeful.now()
      AND w.kind = 'native_status' AND w.state IN ('queued', 'claimed', 'error')
    ORDER BY w.priority, w.due_at, w.id LIMIT %(limit)s) AS x
WHERE %(company)s::text IS NULL OR x.company = %(company)s
ORDER BY x.place, x.company LIMIT %(limit)s

-- name: claim
-- Takes what is due by its stored deadline as it stands under the lock, for 60 s; what somebody holds is left to them.
WITH moment AS (SELECT wakeful.wall() AS at), taken AS (
    SELECT w.id FROM wakeful.wake w
    WHERE w.company = %(company)s AND w.id = ANY (%(ids)s) AND w.kind = 'native_status'
      AND w.state IN ('queued', 'claimed', 'error') AND w.due_at <= wakeful.now()
    ORDER BY w.id FOR NO KEY UPDATE SKIP LOCKED)
UPDATE wakeful.wake w
SET state = 'claimed', claimed_at = moment.at, claimed_by = %(claimer)s, due_at = moment.at + interval '60 seconds',
    examined_at = moment.at
FROM moment, taken
WHERE w.company = %(company)s AND w.id = taken.id
RETURNING w.id, w.claimed_at

-- name: unclaimed
-- Why an intent could not be claimed: its deadline moved, somebody holds its row, or it has ended.
SELECT w.id, w.ended_at IS NOT NULL AS gone, w.due_at, coalesce(w.due_at <= wakeful.now(), false) AS due
FROM wakeful.wake w WHERE w.company = %(company)s AND w.id = ANY (%(ids)s)

-- name: lock_issues
-- Locks the issues of claimed intents, ascending, in a statement of its own: the judgement is the next one.
SELECT i.id FROM wakeful.issue i
WHERE i.company = %(company)s
  AND i.id = ANY (ARRAY(SELECT w.issue::text FROM wakeful.wake w WHERE w.company = %(company)s AND w.id = ANY (%(ids)s)))
ORDER BY i.id FOR NO KEY UPDATE

-- name: lock
-- Locks the intents whose claim is still this one.
SELECT w.id FROM wakeful.wake w
WHERE w.company = %(company)s AND w.id = ANY (%(ids)s) AND w.state = 'claimed'
  AND w.claimed_by = %(claimer)s AND w.claimed_at = %(claimed_at)s
ORDER BY w.id FOR NO KEY UPDATE SKIP LOCKED

-- name: halted
-- Whether nothing may be admitted.
SELECT wakeful.setting_value('draining', 'false') = 'true'
       OR wakeful.setting_value('scheduler_enabled', 'true') = 'false' AS halted

-- name: free
-- Gives claims back whose work has settled without a dispatch: the intents are as they were before.
UPDATE wakeful.wake w SET state = 'queued', claimed_at = NULL, claimed_by = NULL, due_at = wakeful.now()
WHERE w.company = %(company)s AND w.id = ANY (%(ids)s) AND w.state = 'claimed' AND w.claimed_by = %(claimer)s
  AND w.claimed_at = %(claimed_at)s
RETURNING w.id

-- name: save_dispatch
-- The receipts that own admissions which a gate does not let through yet, each with the wait of its leading intent.
INSERT INTO wakeful.wake (company, id, kind, priority, agent, issue, project, source, actor_kind, actor, payload, requested_at,
                          due_at, effect_root, review, estimate, wait_gate, wait_key, wait_reason, wait_message, wait_since,
                          grace_from, opens_on, reopens_at)
SELECT w.company, u.dispatch, 'dispatch', w.priority, w.agent, w.issue, w.project, w.source, w.actor_kind, w.actor, w.payload,
       w.requested_at, u.due_at, u.dispatch, w.review, w.estimate, u.gate, u.key, u.reason, u.message, wakeful.wall(),
       wakeful.wall(), u.opens_on, u.reopens_at
FROM unnest(%(wakes)s::uuid[], %(dispatches)s::uuid[], %(gates)s::text[], %(keys)s::text[], %(reasons)s::text[],
            %(messages)s::text[], %(opens_on)s::text[], %(reopens_at)s::timestamptz[], %(due_at)s::timestamptz[])
     AS u (wake, dispatch, gate, key, reason, message, opens_on, reopens_at, due_at)
JOIN wakeful.wake w ON w.company = %(company)s AND w.id = u.wake
ON CONFLICT (company, id) DO NOTHING

-- name: end
-- Intents that end without a run of their own; of the locked ones only.
UPDATE wakeful.wake w
SET state = u.state, reason = u.reason, wait_message = nullif(u.message, ''), coalesced_into = u.into, run = u.run, due_at = NULL,
    ended_at = wakeful.now(), version = w.version + 1, error = NULL, error_at = NULL
FROM unnest(%(wakes)s::uuid[], %(states)s::text[], %(reasons)s::text[], %(messages)s::text[], %(into)s::uuid[], %(runs)s::uuid[])
     AS u (wake, state, reason, message, "into", run)
WHERE w.company = %(company)s AND w.id = u.wake AND w.state = 'claimed'

-- name: fail
-- A dispatch that failed: its error in the row, and the next try 30 s later, whatever backs off besides.
WITH moment AS (SELECT wakeful.wall() AS at)
UPDATE wakeful.wake w
SET state = 'error', error = %(error)s, error_at = moment.at, failures = w.failures + 1,
    due_at = moment.at + interval '30 seconds', examined_at = moment.at
FROM moment
WHERE w.company = %(company)s AND w.id = ANY (%(ids)s) AND w.state = 'claimed' AND w.claimed_by = %(claimer)s
  AND w.claimed_at = %(claimed_at)s
RETURNING w.id, w.due_at

-- name: tell
-- Deadlines that a pass by hand has stored: the scheduler that is at work does not know of them.
SELECT wakeful.notify_wake(w.company, w.id, w.owner, w.due_at)
FROM wakeful.wake w
WHERE w.company = %(company)s AND w.id = ANY (%(ids)s) AND w.ended_at IS NULL AND w.due_at IS NOT NULL
