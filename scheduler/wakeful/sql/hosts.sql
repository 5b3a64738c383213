-- Hosts as rows.

-- name: is_dead
-- Whether somebody declared this host dead since it registered.
SELECT EXISTS (SELECT FROM wakeful.host h WHERE h.id = %(host)s AND h.dead_at IS NOT NULL) AS dead

-- name: register
-- This host, as it starts: its machine and labels. Returns what stood there before. A host that is declared dead and
-- starts again lives.
WITH former AS (SELECT h.machine, h.dead_at, h.seen_at FROM wakeful.host h WHERE h.id = %(host)s)
INSERT INTO wakeful.host AS h (id, machine, labels) VALUES (%(host)s, %(machine)s, %(labels)s)
ON CONFLICT (id) DO UPDATE
SET machine = excluded.machine, labels = excluded.labels, seen_at = wakeful.now(), dead_at = NULL, dead_by = NULL
RETURNING (SELECT f.machine FROM former f) AS machine, (SELECT f.dead_at FROM former f) AS dead_at,
          (SELECT f.seen_at FROM former f) AS seen_at, wakeful.now() AS now,
          -- Its other schedulers may claim again.
          (SELECT pg_notify('wakeful', json_build_object('t', 'settings', 's', 'hosts')::text)
           FROM former f WHERE f.dead_at IS NOT NULL) AS told
