-- Hosts as rows.

-- name: register
-- This host, as it starts: its machine and labels.
INSERT INTO wakeful.host AS h (id, machine, labels) VALUES (%(host)s, %(machine)s, %(labels)s)
ON CONFLICT (id) DO UPDATE SET machine = excluded.machine, labels = excluded.labels, seen_at = wakeful.now()
RETURNING h.dead_at

-- name: other_machine
-- The machine that last used this host name, if it was another one.
SELECT h.machine FROM wakeful.host h WHERE h.id = %(host)s AND h.machine IS DISTINCT FROM %(machine)s
