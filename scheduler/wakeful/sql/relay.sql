-- What somebody who brings agents' events into the database has to know of runs.

-- name: companies
-- Every company, so that one can be told by the hash that names its files.
SELECT c.company AS id FROM wakeful.company c ORDER BY c.company

-- name: runs
-- Where each of these runs stands, and whose it is.
SELECT r.id, r.generation, r.state, r.ended_at IS NOT NULL AS ended, r.agent, r.issue, r.project FROM wakeful.run r
WHERE r.company = %(company)s AND r.id = ANY (%(runs)s)

-- name: recorded
-- Whether an event was recorded: its id is the key of what became of it.
SELECT EXISTS (SELECT FROM wakeful.spend s WHERE s.company = %(company)s AND s.key = %(key)s)
    OR EXISTS (SELECT FROM wakeful.comment m WHERE m.company = %(company)s AND m.key = %(key)s)
    OR EXISTS (SELECT FROM wakeful.status_decision d WHERE d.company = %(company)s AND d.key = %(key)s) AS recorded
