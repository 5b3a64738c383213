-- What a viewer may not read: the values of agents' environments, which may be secrets. Every other column is granted
-- one by one, so a migration that adds a column to the table of agents grants it too.

REVOKE SELECT ON wakeful.agent FROM wakeful_viewer;
DO $$
DECLARE columns text;
BEGIN
    SELECT string_agg(quote_ident(a.attname), ', ') INTO columns FROM pg_catalog.pg_attribute a
    WHERE a.attrelid = 'wakeful.agent'::regclass AND a.attnum > 0 AND NOT a.attisdropped AND a.attname <> 'env_values';
    EXECUTE format('GRANT SELECT (%s) ON wakeful.agent TO wakeful_viewer', columns);
END $$;
