-- A company's rows, all of them, as JSON.

-- name: tables
-- Every table that has a company, in an order in which references point backwards, with the query for its rows.
SELECT
    c.relname AS name,
    format('SELECT to_jsonb(t) FROM wakeful.%%I AS t WHERE t.company = %%L', c.relname, %(company)s::text) AS query
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace AND n.nspname = 'wakeful'
JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attname = 'company' AND NOT a.attisdropped
WHERE c.relkind = 'r'
ORDER BY (c.relname <> 'company'), c.relname

-- name: directories
-- The run directories that rows name, with their hosts.
SELECT r.host, r.directory FROM wakeful.run r WHERE r.company = %(company)s AND r.directory IS NOT NULL ORDER BY r.id
