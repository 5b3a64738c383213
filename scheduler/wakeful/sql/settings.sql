-- Instance settings as the scheduler reads them.

-- name: all
-- Every stored setting, with the database's time.
SELECT s.name, s.value FROM wakeful.setting s ORDER BY s.name

-- name: now
-- The database's time.
SELECT wakeful.now() AS now
