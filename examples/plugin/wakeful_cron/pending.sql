-- The wakes that stand for the next tick of each schedule, soonest first.
SELECT w.id AS wake, w.agent, w.issue, w.key, w.payload ->> 'cron' AS cron, w.payload ->> 'zone' AS zone,
       w.payload ->> 'tick' AS tick, w.payload ->> 'catch_up' AS catch_up, coalesce(w.opens_on, w.wait_reason) AS waits_for
FROM wakeful.wake w
WHERE w.company = %(company)s AND w.kind = 'cron' AND w.state = 'deferred'
ORDER BY w.due_at NULLS LAST, w.id
LIMIT %(limit)s
