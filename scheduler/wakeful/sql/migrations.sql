-- What migrations keep account of, and how they take turns.

-- name: has_journal
-- Whether any migration was ever applied here.
SELECT to_regclass('wakeful.migration') IS NOT NULL AS found

-- name: applied
-- Every step that is in this schema.
SELECT m.plugin, m.version FROM wakeful.migration m

-- name: take_turn
-- One migrates at a time; the others wait here until it has committed.
SELECT pg_advisory_xact_lock(hashtextextended('wakeful migrate', 0))

-- name: give_up_after
-- How long the transaction waits for each lock that it needs.
SELECT set_config('lock_timeout', %(timeout)s, true)

-- name: record
-- A step is in this schema from the commit of its own changes on.
INSERT INTO wakeful.migration (plugin, version, name) VALUES (%(plugin)s, %(version)s, %(name)s)
