-- Roles are cluster-wide, so they are made under a guard; two databases may migrate at the same moment.
-- The migrating login becomes a member of all four: it migrates, schedules, produces and reads. Give other
-- logins less: GRANT wakeful_host TO your_application.
DO $$
DECLARE role text;
BEGIN
    FOREACH role IN ARRAY ARRAY['wakeful_owner', 'wakeful_scheduler', 'wakeful_host', 'wakeful_viewer'] LOOP
        BEGIN
            IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = role) THEN
                EXECUTE format('CREATE ROLE %I NOLOGIN', role);
            END IF;
        EXCEPTION WHEN duplicate_object OR unique_violation THEN
            RAISE DEBUG 'role % was made by a concurrent migration', role;
        END;
        -- From PostgreSQL 16 on, creating a role grants its administration but not its use.
        IF NOT (pg_catalog.pg_has_role(session_user, role, 'USAGE')
                AND (current_setting('server_version_num')::integer < 160000
                     OR pg_catalog.pg_has_role(session_user, role, 'SET'))) THEN
            BEGIN
                EXECUTE format('GRANT %I TO %I', role, session_user);
            EXCEPTION WHEN unique_violation OR internal_error THEN
                RAISE DEBUG 'membership of % was granted by a concurrent migration', role;
            END;
        END IF;
    END LOOP;
END $$;

CREATE SCHEMA IF NOT EXISTS wakeful AUTHORIZATION wakeful_owner;
GRANT USAGE ON SCHEMA wakeful TO wakeful_scheduler, wakeful_host, wakeful_viewer;
SET LOCAL ROLE wakeful_owner;
CREATE TABLE IF NOT EXISTS wakeful.migration (
    plugin text NOT NULL DEFAULT '',
    version integer NOT NULL,
    name text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT pg_catalog.now(),
    PRIMARY KEY (plugin, version)
);
