-- What a forecast asks beyond what admission reads.

-- name: has_budget
-- Whether a company has a policy.
SELECT EXISTS (SELECT FROM wakeful.budget b WHERE b.company = %(company)s AND b.id = %(policy)s) AS found
