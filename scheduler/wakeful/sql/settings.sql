-- Instance settings as the scheduler reads them.

-- name: cached_plans
-- For a transaction that judges: planning costs more than running, and its statements leave a planner nothing to choose
-- but the keys.
SELECT set_config('plan_cache_mode', 'force_generic_plan', true) AS plans, set_config('enable_seqscan', 'off', true) AS scans

-- name: all
-- Every stored setting, with the database's time.
SELECT s.name, s.value FROM wakeful.setting s ORDER BY s.name

-- name: now
-- The database's time.
SELECT wakeful.now() AS now

-- name: halted
-- Whether a stored setting forbids claims at this moment, or somebody's word that this host is dead.
SELECT wakeful.setting_value('scheduler_enabled', 'true') <> 'true'
       OR wakeful.setting_value('draining', 'false') = 'true'
       OR EXISTS (SELECT FROM wakeful.host h WHERE h.id = %(host)s AND h.dead_at IS NOT NULL) AS halted
