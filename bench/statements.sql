-- What the bench sends by hand: what it fills databases with, and the limits the product is held against.

-- name: agents
-- `many` agents of one company, which end at once.
SELECT count(wakeful.add_agent(company => %(company)s, agent => 'agent' || n, command => '{true}', executor => 'instant',
                               max_concurrent_runs => %(at_once)s))
FROM generate_series(1, %(many)s::integer) AS n

-- name: projects
SELECT count(wakeful.add_project(company => %(company)s, project => 'project' || n))
FROM generate_series(1, %(many)s::integer) AS n

-- name: company
SELECT wakeful.add_company(company => %(company)s)

-- name: budget
-- A hard stop that every run reserves under, far from exhausted.
SELECT wakeful.set_budget(company => %(company)s, policy => 'company', amount => 1000000, estimate => 0.01)

-- name: issues
-- One issue a wake, each in one of ten projects.
INSERT INTO wakeful.issue (company, id, title, project, assignee_kind, assignee)
SELECT %(company)s, %(prefix)s::text || n, 'an issue', 'project' || (n %% 10 + 1), 'agent', 'agent' || (n %% %(agents)s::integer + 1)
FROM generate_series(1, %(many)s::integer) AS n

-- name: age
-- What has run so far becomes history.
UPDATE wakeful.issue SET status = 'done' WHERE company = %(company)s

-- name: paid
-- What the history's runs reserved and spent.
WITH settled AS (
    INSERT INTO wakeful.reservation (company, run, policy, amount, state, ended_at)
    SELECT r.company, r.id, 'company', 0.01, 'settled', wakeful.now() FROM wakeful.run r WHERE r.company = %(company)s)
INSERT INTO wakeful.spend (company, amount, agent, issue, run, provenance)
SELECT r.company, 0.01, r.agent, r.issue, r.id, 'reported' FROM wakeful.run r WHERE r.company = %(company)s

-- name: due
-- One due wake an issue.
INSERT INTO wakeful.wake (company, kind, agent, issue, actor_kind, actor, due_at, effect_root)
SELECT i.company, 'request', i.assignee, i.id, 'user', 'bench', wakeful.now(), wakeful.uuid7()
FROM wakeful.issue i WHERE i.company = %(company)s AND i.status = 'todo' ORDER BY i.id

-- name: sleeping
-- Wakes that sleep for a day and more.
INSERT INTO wakeful.wake (company, kind, agent, actor_kind, actor, due_at, effect_root)
SELECT %(company)s, 'request', 'agent1', 'user', 'bench', wakeful.now() + make_interval(days => 1, secs => n), wakeful.uuid7()
FROM generate_series(1, %(many)s::integer) AS n

-- name: parked
-- Wakes that have waited longer than their grace for one paused agent.
INSERT INTO wakeful.wake (company, kind, agent, actor_kind, actor, effect_root, wait_gate, wait_key, wait_reason,
                          wait_message, wait_since, grace_from, opens_on)
SELECT %(company)s, 'request', 'agent2', 'user', 'bench', wakeful.uuid7(), 'agent', 'agent2', 'agent.paused_manual',
       'agent agent2 is paused (manual)', wakeful.wall() - interval '1 hour', wakeful.wall() - interval '1 hour',
       'wakeful resume agent agent2'
FROM generate_series(1, %(many)s::integer) AS n

-- name: park_one
-- A wake that has long waited for a paused agent, saved without a signal.
INSERT INTO wakeful.wake (company, kind, agent, issue, actor_kind, actor, effect_root, wait_gate, wait_key, wait_reason,
                          wait_message, wait_since, grace_from, opens_on)
VALUES (%(company)s, 'request', %(agent)s::text, %(issue)s, 'user', 'bench', wakeful.uuid7(), 'agent', %(agent)s::text,
        'agent.paused_manual', 'the agent is paused (manual)', wakeful.wall() - interval '1 hour',
        wakeful.wall() - interval '1 hour', 'wakeful resume agent')

-- name: pause
SELECT outcome FROM wakeful.pause_agent(company => %(company)s, agent => %(agent)s)

-- name: resume
SELECT outcome FROM wakeful.resume_agent(company => %(company)s, agent => %(agent)s)

-- name: request
SELECT wake FROM wakeful.request_wake(company => %(company)s, agent => %(agent)s, issue => %(issue)s, at => %(at)s)

-- name: request_later
-- A request for a moment after the database's present time.
SELECT r.wake, t.at FROM (SELECT clock_timestamp() + make_interval(secs => %(after)s) AS at) AS t
CROSS JOIN LATERAL wakeful.request_wake(company => %(company)s, agent => %(agent)s, at => t.at) AS r

-- name: request_stream
-- One request every `step` seconds, from `after` seconds on.
SELECT count(r.wake) FROM generate_series(1, %(many)s::integer) AS n
CROSS JOIN LATERAL wakeful.request_wake(company => %(company)s, agent => 'agent' || (n %% 10 + 1),
    at => wakeful.now() + make_interval(secs => %(after)s + n * %(step)s)) AS r

-- name: clock
SELECT extract('epoch' FROM clock_timestamp())::float8

-- name: backend
-- The server process of the newest session of that name.
SELECT pid FROM pg_catalog.pg_stat_activity WHERE datname = current_database() AND application_name = %(name)s
ORDER BY backend_start DESC LIMIT 1

-- name: wait_state
SELECT wait_gate, state FROM wakeful.wake WHERE company = %(company)s AND id = %(wake)s

-- name: pending
-- Whether anything is still pending or alive.
SELECT EXISTS (SELECT FROM wakeful.wake WHERE company = %(company)s AND state = 'deferred' AND due_at <= wakeful.now())
    OR EXISTS (SELECT FROM wakeful.run WHERE company = %(company)s
               AND ended_at IS NULL)

-- name: ended
-- How many runs succeeded, and when the last one ended.
SELECT count(*), extract('epoch' FROM max(ended_at))::float8 FROM wakeful.run
WHERE company = %(company)s AND state = 'succeeded' AND issue LIKE 'issue%%'

-- name: runs
-- Which wake each run carries, and when its row was written, in the order of writing.
SELECT wake, extract('epoch' FROM created_at)::float8 FROM wakeful.run WHERE company = %(company)s ORDER BY created_at, id

-- name: deadlines
SELECT id, extract('epoch' FROM due_at)::float8 FROM wakeful.wake
WHERE company = %(company)s AND state = 'deferred' AND due_at < wakeful.now() + interval '1 hour'

-- name: vacuum
VACUUM (ANALYZE) wakeful.wake, wakeful.run, wakeful.issue, wakeful.agent, wakeful.project, wakeful.company,
    wakeful.spend, wakeful.reservation

-- name: batch_admit
-- The ungated hand-written batch: a hundred due wakes become runs,
WITH due AS (
    SELECT w.company, w.id, w.agent, w.issue FROM wakeful.wake w
    WHERE w.company = %(company)s AND w.owner = 'request' AND w.state = 'deferred' AND w.due_at <= wakeful.now()
    ORDER BY w.due_at, w.id LIMIT %(limit)s FOR NO KEY UPDATE SKIP LOCKED
), made AS (
    INSERT INTO wakeful.run (company, agent, issue, wake) SELECT company, agent, issue, id FROM due RETURNING id, wake
)
UPDATE wakeful.wake w SET state = 'linked', run = made.id, due_at = NULL, ended_at = wakeful.now(), version = w.version + 1
FROM made WHERE w.company = %(company)s AND w.id = made.wake
RETURNING w.run

-- name: batch_claim
-- are claimed by a worker,
UPDATE wakeful.run r SET state = 'starting', attempt = r.attempt + 1, host = 'bench', claimed_at = wakeful.wall()
WHERE r.company = %(company)s AND r.id = ANY (%(runs)s)

-- name: batch_finish
-- and finished.
UPDATE wakeful.run r SET state = 'succeeded', ended_at = wakeful.now(), evidence = 'contained', exit_code = 0
WHERE r.company = %(company)s AND r.id = ANY (%(runs)s)

-- name: bare_enqueue
-- The bare INSERT of what a request saves, and its NOTIFY.
WITH saved AS (
    INSERT INTO wakeful.wake (company, kind, agent, issue, actor_kind, actor, payload, due_at, effect_root)
    VALUES (%(company)s, 'request', %(agent)s, %(issue)s, 'user', 'bench', %(payload)s, %(at)s, wakeful.uuid7())
    RETURNING id)
SELECT pg_notify('wakeful', json_build_object('t', 'eligibility', 'c', %(company)s::text, 'w', id)::text) FROM saved

-- name: enqueue
SELECT outcome, wake, state, run
FROM wakeful.request_wake(company => %(company)s, agent => %(agent)s, issue => %(issue)s, payload => %(payload)s, at => %(at)s)

-- name: tell_spend_function
-- Says on a channel of the bench's own that spend was committed, and under which key.
CREATE FUNCTION public.tell_spend() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$ BEGIN PERFORM pg_notify('bench', NEW.key); RETURN NULL; END $$

-- name: tell_spend
CREATE TRIGGER tell_spend AFTER INSERT ON wakeful.spend FOR EACH ROW EXECUTE FUNCTION public.tell_spend()

-- name: spend_by_hand
INSERT INTO wakeful.spend (company, amount, key, provenance, at)
VALUES (%(company)s, %(amount)s, %(key)s, 'reported', wakeful.now())
