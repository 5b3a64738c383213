-- What a panic has to report: what still lives, what has ended, and whom it holds.

-- name: live_runs
-- How many runs have processes, or may have: by state and host, and whether the host's scheduler answers for them.
SELECT r.state, r.host, r.uncertain_at IS NOT NULL AS uncertain,
       coalesce(r.renew_by < wakeful.now(), true) AS unanswered, count(*)::integer AS runs
FROM wakeful.run r
WHERE (%(company)s::text IS NULL OR r.company = %(company)s) AND r.state IN ('starting', 'running', 'stopping')
GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4

-- name: ended_by_panic
-- The runs that were stopped by the present panic and have ended, by what proves it, with the processes that were ended.
SELECT r.evidence, count(*)::integer AS runs, coalesce(sum(r.processes), 0)::integer AS processes
FROM wakeful.company c
JOIN wakeful.run r ON r.company = c.company AND r.ended_at >= c.panic_at AND r.stop_at >= c.panic_at
WHERE (%(company)s::text IS NULL OR c.company = %(company)s) AND c.panic_at IS NOT NULL
GROUP BY 1 ORDER BY 1

-- name: panicked_companies
-- The companies that a panic stopped, and whether a person had paused them as well.
SELECT c.company, c.state FROM wakeful.company c WHERE c.panic_at IS NOT NULL ORDER BY c.company
