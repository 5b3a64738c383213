-- What the testing kit asks the server. Nothing here is run by the product.

-- name: lock_template
-- Serialises the makers and cleaners of test databases; held to the end of the session or unlock_template.
SELECT pg_advisory_lock(hashtextextended('wakeful test databases', 0))

-- name: unlock_template
SELECT pg_advisory_unlock(hashtextextended('wakeful test databases', 0))

-- name: hold_name
-- Says for the rest of this session that databases of this name are in use.
SELECT pg_advisory_lock_shared(hashtextextended(%(name)s, 0))

-- name: is_unused
-- Whether no session holds the name. An exclusive try that succeeds is given back at once.
SELECT CASE WHEN pg_try_advisory_lock(hashtextextended(%(name)s, 0))
            THEN pg_advisory_unlock(hashtextextended(%(name)s, 0)) ELSE false END

-- name: databases
-- All databases made by the testing kit.
SELECT datname FROM pg_catalog.pg_database WHERE datname ~ '^wakeful_(template|test)_'

-- name: end_sessions
-- Ends every client's session in the database `name`, and waits for it.
SELECT pg_terminate_backend(a.pid, 10000) FROM pg_catalog.pg_stat_activity a
WHERE a.datname = %(name)s AND a.backend_type = 'client backend'

-- name: may_forget_counts
SELECT to_regclass('pg_stat_statements') IS NOT NULL AND EXISTS (
    SELECT FROM pg_catalog.pg_proc p WHERE p.oid::regproc::text = 'pg_stat_statements_reset'
    AND has_function_privilege(p.oid, 'EXECUTE'))

-- name: forget_counts
SELECT pg_stat_statements_reset(0::oid, d.oid, 0) FROM pg_catalog.pg_database d WHERE d.datname = %(name)s

-- name: logins
-- All logins made by the testing kit, with the name that their maker holds.
SELECT rolname, substring(rolname FROM '^wakeful_test_[0-9a-f]+') FROM pg_catalog.pg_roles WHERE rolname ~ '^wakeful_test_[0-9a-f]+_'

-- name: database_oid
SELECT oid::bigint FROM pg_catalog.pg_database WHERE datname = %(name)s

-- name: install_clock
-- Both time functions read the one row of wakeful.clock, so every session of the database shares its time.
SET LOCAL ROLE wakeful_owner;
CREATE OR REPLACE FUNCTION wakeful.now() RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE
AS $$ SELECT pg_catalog.statement_timestamp() + (SELECT c.shift FROM wakeful.clock c) $$;
CREATE OR REPLACE FUNCTION wakeful.wall() RETURNS timestamptz LANGUAGE sql VOLATILE PARALLEL SAFE
AS $$ SELECT pg_catalog.clock_timestamp() + (SELECT c.shift FROM wakeful.clock c) $$;
RESET ROLE

-- name: as_owner
SET LOCAL ROLE wakeful_owner

-- name: shift_clock
UPDATE wakeful.clock SET shift = %(shift)s

-- name: blocked_behind
-- Sessions of this database that wait for a lock which the session `holder` has, with the kind of lock.
SELECT a.pid, l.locktype
FROM pg_catalog.pg_stat_activity a
JOIN pg_catalog.pg_locks l ON l.pid = a.pid AND NOT l.granted
WHERE a.datname = current_database() AND a.wait_event_type = 'Lock' AND %(holder)s = ANY (pg_blocking_pids(a.pid))

-- name: statement_tracking
-- Which statements are counted, `all` or `top`; null where nobody counts.
SELECT CASE WHEN to_regclass('pg_stat_statements') IS NOT NULL
            THEN current_setting('pg_stat_statements.track', true) END

-- name: statement_counts
-- Calls of each statement ever run in the database `dbid`, nested ones included.
SELECT s.userid::bigint, s.queryid, s.toplevel, s.calls, s.query FROM pg_stat_statements s WHERE s.dbid = %(dbid)s
