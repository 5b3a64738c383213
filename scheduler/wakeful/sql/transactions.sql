-- How a transaction behaves, said before its first statement.

-- name: snapshot
-- For a transaction that only reads: all that it reads is of one instant.
SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY

-- name: end_when_idle
-- Where a pooler took no options: a transaction that says nothing for 10 s is ended by the server.
SET LOCAL idle_in_transaction_session_timeout = 10000
