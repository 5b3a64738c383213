-- Whether the first start was finished.
SELECT EXISTS (SELECT FROM pg_catalog.pg_database WHERE datname = 'wakeful')
