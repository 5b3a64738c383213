-- What `wakeful doctor` asks the server. Probes take only locks of their own and leave nothing behind.

-- name: server
-- Which server this is, and the time on its clock.
SELECT current_setting('server_version') AS version, current_setting('server_version_num')::integer AS number,
       clock_timestamp() AS at

-- name: login
-- What this login may: whether row-level security binds it, and which of wakeful's roles it has.
SELECT r.rolsuper OR r.rolbypassrls AS unbound,
       ARRAY(SELECT m.rolname::text FROM pg_catalog.pg_roles m
             WHERE m.rolname IN ('wakeful_owner', 'wakeful_scheduler', 'wakeful_host', 'wakeful_viewer')
             ORDER BY 1) AS roles,
       ARRAY(SELECT m.rolname::text FROM pg_catalog.pg_roles m
             WHERE m.rolname IN ('wakeful_owner', 'wakeful_scheduler', 'wakeful_host', 'wakeful_viewer')
               AND pg_has_role(r.oid, m.oid, 'USAGE') ORDER BY 1) AS held
FROM pg_catalog.pg_roles r WHERE r.rolname = current_user

-- name: unforced
-- Tables of wakeful whose row-level security is not forced; there must be none.
SELECT c.relname::text AS name FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = 'wakeful' AND c.relkind IN ('r', 'p') AND NOT (c.relrowsecurity AND c.relforcerowsecurity)
ORDER BY 1

-- name: listen
-- A channel of the probe's own.
LISTEN wakeful_doctor

-- name: ping
-- Answered on the listening session, if notifications arrive at all.
SELECT pg_notify('wakeful_doctor', %(token)s)

-- name: try_lock
-- A session lock of the probe's own.
SELECT pg_try_advisory_lock(hashtextextended(%(token)s, 0)) AS held

-- name: unlock
-- Gives the probe's lock back; false if this session does not hold it any more.
SELECT pg_advisory_unlock(hashtextextended(%(token)s, 0)) AS freed

-- name: hold_row
-- Locks the one row of the epoch for a moment; nobody else locks it while a scheduler works.
SELECT e.number FROM wakeful.epoch e FOR NO KEY UPDATE

-- name: skip_row
-- Finds no row while another session has it.
SELECT e.number FROM wakeful.epoch e FOR NO KEY UPDATE SKIP LOCKED

-- name: queue
-- How full the server's queue of notifications is: 0 to 1.
SELECT pg_notification_queue_usage() AS usage

-- name: owners_lock
-- The sessions that hold the owners' lock in this database.
SELECT count(*)::integer AS holders FROM pg_catalog.pg_locks l
WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
  AND l.database = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = current_database())
  AND (l.classid::bigint << 32) | l.objid::bigint = hashtextextended('wakeful owners', 0)

-- name: hosts
-- Hosts that still have runs nobody renews.
SELECT r.host, count(*)::integer AS runs FROM wakeful.run r
WHERE r.state IN ('starting', 'running', 'stopping') AND coalesce(r.renew_by < wakeful.now(), true)
GROUP BY 1 ORDER BY 1
