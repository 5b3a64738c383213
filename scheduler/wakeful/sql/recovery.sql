-- Liveness of claimed runs: stops, renewals, orphans. Evidence decides, never age.
--
-- A claim bears `<data id>/<scheduler id>`: the first part says whose files the run's are, under whatever host name.

-- name: mine
-- Claimed runs whose files lie in this data directory, whoever claimed them.
SELECT r.company, r.id AS run, r.generation, r.state, r.claimed_by, coalesce(r.executor, a.executor) AS executor,
       least(a.stop_grace, interval '1 day') AS stop_grace, r.renew_by < wakeful.wall() AS expired,
       r.uncertain_at IS NOT NULL AS uncertain
FROM wakeful.run r JOIN wakeful.agent a ON a.company = r.company AND a.id = r.agent
WHERE r.state IN ('starting', 'running', 'stopping') AND split_part(r.claimed_by, '/', 1) = %(data)s
ORDER BY r.company, r.id

-- name: stops
-- Stop rows that this data directory's dispatchers have to carry out. Doubt has moved the row one past its files.
SELECT r.company, r.id AS run, r.generation - (r.uncertain_at IS NOT NULL)::integer AS generation,
       least(a.stop_grace, interval '1 day') AS stop_grace
FROM wakeful.run r JOIN wakeful.agent a ON a.company = r.company AND a.id = r.agent
WHERE r.state = 'stopping' AND split_part(r.claimed_by, '/', 1) = %(data)s
ORDER BY r.company, r.id

-- name: adopt
-- From now on this scheduler renews them; of several successors each run goes to one.
UPDATE wakeful.run r SET claimed_by = %(claimer)s, host = %(host)s,
       renew_by = wakeful.wall() + make_interval(secs => %(lease)s)
FROM unnest(%(companies)s::text[], %(runs)s::uuid[], %(generations)s::integer[], %(formers)s::text[])
     AS u (company, run, generation, former)
WHERE r.company = u.company AND r.id = u.run AND r.generation = u.generation AND r.claimed_by = u.former
  AND r.state IN ('starting', 'running', 'stopping')
RETURNING r.company, r.id AS run, r.generation

-- name: renew
-- One statement per scheduler while its children run. A row that somebody works on is renewed next time.
WITH seen AS (
    UPDATE wakeful.host h SET seen_at = wakeful.now() WHERE h.id = %(host)s
), held AS (
    SELECT r.company, r.id FROM wakeful.run r
    WHERE r.claimed_by = %(claimer)s AND r.state IN ('starting', 'running', 'stopping')
    ORDER BY r.company, r.id FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE wakeful.run r SET renew_by = wakeful.wall() + make_interval(secs => %(lease)s)
FROM held WHERE r.company = held.company AND r.id = held.id

-- name: next_look
-- Seconds until claims of others have to be looked at: those whose files are here when they expire, the rest, for
-- an owner, a margin later. What is overdue already (its claimer lives, but does not renew) waits for one more lease.
SELECT extract('epoch' FROM min(CASE WHEN d.at > wakeful.wall() THEN d.at
                                     ELSE wakeful.wall() + make_interval(secs => %(lease)s) END)
                            - wakeful.wall())::float8 AS seconds
FROM (SELECT r.renew_by + make_interval(secs => CASE WHEN here.yes THEN 0 ELSE %(margin)s END) AS at
      FROM wakeful.run r, LATERAL (SELECT split_part(r.claimed_by, '/', 1) = %(data)s AS yes) AS here
      WHERE r.state IN ('starting', 'running', 'stopping') AND r.uncertain_at IS NULL
        AND r.claimed_by IS DISTINCT FROM %(claimer)s AND (here.yes OR %(everywhere)s)) AS d

-- name: expired_elsewhere
-- Runs whose files are not here and whose renewal has been overdue for the owners' margin.
SELECT r.company, r.id AS run, r.generation, r.host, r.renew_by FROM wakeful.run r
WHERE r.state IN ('starting', 'running', 'stopping') AND r.uncertain_at IS NULL
  AND split_part(r.claimed_by, '/', 1) IS DISTINCT FROM %(data)s
  AND r.renew_by < wakeful.wall() - make_interval(secs => %(margin)s)
ORDER BY r.company, r.id LIMIT 100

-- name: declare_uncertain
-- State unchanged, generation bumped so that its writes are refused, a recovery action opened, nothing replaced.
-- `overdue` says how long it must not have been renewed; NULL where its own host says that it can prove nothing.
WITH doubted AS (
    UPDATE wakeful.run r
    SET generation = r.generation + 1, uncertain_at = wakeful.wall(), error = %(reason)s
    WHERE r.company = %(company)s AND r.id = %(run)s AND r.generation = %(generation)s
      AND r.state IN ('starting', 'running', 'stopping') AND r.uncertain_at IS NULL
      AND (%(overdue)s::float8 IS NULL OR r.renew_by < wakeful.wall() - make_interval(secs => %(overdue)s::float8))
    RETURNING r.company, r.id, r.issue
)
INSERT INTO wakeful.recovery_action (company, run, issue, cause)
SELECT company, id, issue, %(reason)s FROM doubted
ON CONFLICT DO NOTHING
RETURNING id

-- name: on_dead_hosts
-- Claimed runs of hosts that somebody declared dead, whether they are in doubt or not.
SELECT r.company, r.id AS run, r.generation, r.host, h.dead_by
FROM wakeful.host h JOIN wakeful.run r ON r.host = h.id AND r.state IN ('starting', 'running', 'stopping')
WHERE h.dead_at IS NOT NULL ORDER BY r.company, r.host, r.id LIMIT 100

-- name: resolve_recovery
-- The proof came after all: the open action of a run that ended or was requeued is resolved, and its gate opens.
UPDATE wakeful.recovery_action a SET state = 'resolved', resolved_at = wakeful.now(), resolved_by = %(resolver)s, outcome = %(outcome)s
WHERE a.company = %(company)s AND a.run = ANY (%(runs)s) AND a.state = 'open'
RETURNING wakeful.notify_gate(a.company, 'recovery', a.id::text)
