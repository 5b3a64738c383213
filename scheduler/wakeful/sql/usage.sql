-- What runs used and which sessions they left: written in the transaction that ends them, read back for people.

-- name: keep
-- The lines of the ended runs' results, for the attempt that ended.
INSERT INTO wakeful.usage (company, run, attempt, line, provider, model, tokens_in, tokens_out, tokens_cached, money, provenance)
SELECT r.company, r.id, r.attempt, u.line, u.provider, u.model, u.tokens_in, u.tokens_out, u.tokens_cached, u.money, u.provenance
FROM unnest(%(runs)s::uuid[], %(lines)s::integer[], %(providers)s::text[], %(models)s::text[], %(tokens_in)s::bigint[],
            %(tokens_out)s::bigint[], %(tokens_cached)s::bigint[], %(money)s::numeric[], %(provenances)s::text[])
     AS u (run, line, provider, model, tokens_in, tokens_out, tokens_cached, money, provenance)
JOIN wakeful.run r ON r.company = %(company)s AND r.id = u.run

-- name: keep_sessions
-- The sessions of the ended runs: renewed, counted, or dropped because they were lost.
SELECT wakeful.keep_sessions(%(company)s, %(runs)s::uuid[], %(tokens)s::text[])

-- name: of_run
-- How many attempts of a run there were, of how many the usage is known, and the money that is known and counted.
SELECT r.attempt AS attempts, least(r.attempt, r.metered + k.tallied) AS known_attempts, k.known, k.spent, k.estimated
FROM wakeful.run r CROSS JOIN LATERAL wakeful.known_usage(r.company, r.id) AS k
WHERE r.company = %(company)s AND r.id = %(run)s

-- name: lines
-- What the results of a run's attempts said, in order.
SELECT u.attempt, u.provider, u.model, u.tokens_in, u.tokens_out, u.tokens_cached, u.money, u.provenance
FROM wakeful.usage u WHERE u.company = %(company)s AND u.run = %(run)s ORDER BY u.attempt, u.line

-- name: readers
-- The result readers of the runs' agents, where they name one.
SELECT r.id, a.reader FROM wakeful.run r JOIN wakeful.agent a ON a.company = r.company AND a.id = r.agent
WHERE r.company = %(company)s AND r.id = ANY (%(runs)s) AND a.reader IS NOT NULL
