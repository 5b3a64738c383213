-- The account wakeful logs in with, in an embedded server only: it owns its database and may make others
-- (tests do) and the roles of the schema, but is no superuser. Safe to repeat: a killed start is followed by another.
DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = 'wakeful') THEN
        CREATE ROLE wakeful LOGIN;
    END IF;
END
$$;
ALTER ROLE wakeful LOGIN INHERIT NOSUPERUSER CREATEDB CREATEROLE;
GRANT pg_monitor TO wakeful;
-- In the template, so that every database made later counts its statements too.
CREATE EXTENSION IF NOT EXISTS pg_stat_statements;
GRANT EXECUTE ON FUNCTION pg_stat_statements_reset TO wakeful;
