-- Instance settings as the scheduler reads them.

-- name: all
-- Every stored setting, with the database's time.
SELECT s.name, s.value FROM wakeful.setting s ORDER BY s.name

-- name: now
-- The database's time.
SELECT wakeful.now() AS now

-- name: halted
-- Whether a stored setting forbids claims at this moment.
SELECT wakeful.setting_value('scheduler_enabled', 'true') <> 'true'
       OR wakeful.setting_value('draining', 'false') = 'true' AS halted
