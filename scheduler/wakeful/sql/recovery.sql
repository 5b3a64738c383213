-- Liveness of claimed runs: stops, renewals, orphans. Evidence decides, never age.

-- name: mine
-- Claimed runs of a host, whoever claimed them.
SELECT r.company, r.id AS run, r.generation, r.state, r.claimed_by, a.executor, a.stop_grace, r.renew_by,
       r.renew_by < wakeful.wall() AS expired, r.stop_at IS NOT NULL AS stopped,
       r.uncertain_at IS NOT NULL AS uncertain
FROM wakeful.run r JOIN wakeful.agent a ON a.company = r.company AND a.id = r.agent
WHERE r.host = %(host)s AND r.state IN ('starting', 'running', 'stopping')
ORDER BY r.company, r.id

-- name: stops
-- Stop rows of a host that its dispatcher has to carry out.
SELECT r.company, r.id AS run, r.generation, a.stop_grace
FROM wakeful.run r JOIN wakeful.agent a ON a.company = r.company AND a.id = r.agent
WHERE r.host = %(host)s AND r.state = 'stopping'

-- name: adopt
-- From now on this scheduler renews them.
UPDATE wakeful.run r SET claimed_by = %(claimer)s, renew_by = wakeful.wall() + make_interval(secs => %(lease)s)
FROM unnest(%(companies)s::text[], %(runs)s::uuid[], %(generations)s::integer[]) AS u (company, run, generation)
WHERE r.company = u.company AND r.id = u.run AND r.generation = u.generation AND r.state IN ('starting', 'running', 'stopping')

-- name: renew
-- One statement per scheduler while its children run.
UPDATE wakeful.run r SET renew_by = wakeful.wall() + make_interval(secs => %(lease)s)
WHERE r.host = %(host)s AND r.claimed_by = %(claimer)s AND r.state IN ('starting', 'running', 'stopping')

-- name: next_expiry
-- The earliest renewal that will be due, of this host's claims by others (an owner asks for every host's).
SELECT extract('epoch' FROM min(r.renew_by) - wakeful.wall())::float8 AS seconds FROM wakeful.run r
WHERE r.state IN ('starting', 'running', 'stopping') AND r.uncertain_at IS NULL
  AND (r.host = %(host)s AND r.claimed_by IS DISTINCT FROM %(claimer)s OR %(everywhere)s AND r.host IS DISTINCT FROM %(host)s)

-- name: expired_elsewhere
-- Runs of other hosts whose renewal has been overdue for the owners' margin.
SELECT r.company, r.id AS run, r.generation, r.host, r.renew_by FROM wakeful.run r
WHERE r.state IN ('starting', 'running', 'stopping') AND r.uncertain_at IS NULL AND r.host IS DISTINCT FROM %(host)s
  AND r.renew_by < wakeful.wall() - make_interval(secs => %(margin)s)
ORDER BY r.company, r.id LIMIT 100

-- name: declare_uncertain
-- State unchanged, generation bumped so that its writes are refused, a recovery action opened, nothing replaced.
WITH doubted AS (
    UPDATE wakeful.run r
    SET generation = r.generation + 1, uncertain_at = wakeful.wall(), error = %(reason)s
    WHERE r.company = %(company)s AND r.id = %(run)s AND r.generation = %(generation)s
      AND r.state IN ('starting', 'running', 'stopping') AND r.uncertain_at IS NULL
    RETURNING r.company, r.id, r.issue
)
INSERT INTO wakeful.recovery_action (company, run, issue, cause)
SELECT company, id, issue, %(reason)s FROM doubted
ON CONFLICT DO NOTHING
RETURNING id

-- name: resolve_recovery
-- The proof came after all: the open action of a run that ended or was requeued is resolved.
UPDATE wakeful.recovery_action a SET state = 'resolved', resolved_at = wakeful.now(), resolved_by = %(resolver)s, outcome = %(outcome)s
WHERE a.company = %(company)s AND a.run = ANY (%(runs)s) AND a.state = 'open'
