-- The control session: LISTEN, the owners' lock, the empty keep-alive. Never inside a transaction.

-- name: listen
-- Producers' signals arrive on this channel.
LISTEN wakeful

-- name: end_when_frozen
-- A session that sends nothing for this long loses its locks: its process is dead or frozen.
SELECT set_config('idle_session_timeout', %(timeout)s, false)

-- name: try_owners_lock
-- One lock stands for all sixteen shards; taken by one session at a time, freed with the session.
SELECT pg_try_advisory_lock(hashtextextended('wakeful owners', 0)) AS held
