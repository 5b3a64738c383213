-- What was said on an issue: comments and cards in the order they were made, and what of them waits for a run.

-- name: comments
-- One page, oldest first, after the comment that `after` names. `queued`: it waits to be given to a run.
SELECT m.company, m.id, m.issue, m.author_kind || ':' || m.author AS author, m.run, m.revision, m.body,
       m.created_at, m.edited_at, m.deleted_at, m.awaits_assignee,
       wakeful.delivered(m.company, m.issue, m.id) AS delivered,
       EXISTS (SELECT FROM wakeful.wake w WHERE w.company = m.company AND w.issue = m.issue AND w.state = 'deferred'
               AND w.kind = 'saved_comments' AND m.id = ANY (w.comments))
       OR EXISTS (SELECT FROM wakeful.run r WHERE r.company = m.company AND r.issue = m.issue AND r.state = 'queued'
                  AND m.id = ANY (r.comments)) AS queued
FROM wakeful.comment m
WHERE m.company = %(company)s AND m.issue = %(issue)s
  AND (%(after)s::text IS NULL OR (m.created_at, m.id) > (
      SELECT x.created_at, x.id FROM wakeful.comment x WHERE x.company = %(company)s AND x.id = %(after)s AND x.issue = %(issue)s))
ORDER BY m.created_at, m.id LIMIT %(limit)s

-- name: queues
-- The receipts of comments that wait on an issue, and the queued run that carries one: what may still be changed.
SELECT q.company, q.queue, q.issue, q.agent, q.actor, q.state, q.run, q.wait_reason, q.wait_message, q.due_at,
       wakeful.queue_revision(q.company, q.comments) AS revision,
       (SELECT coalesce(jsonb_agg(jsonb_build_object('id', m.id, 'author', m.author_kind || ':' || m.author,
                                                     'revision', m.revision, 'body', m.body) ORDER BY u.place), '[]')
        FROM unnest(q.comments) WITH ORDINALITY AS u (id, place)
        JOIN wakeful.comment m ON m.company = q.company AND m.id = u.id) AS comments
FROM (SELECT w.company, w.id AS queue, w.issue, w.agent, w.actor_kind || ':' || w.actor AS actor, w.state, w.run,
             w.wait_reason, w.wait_message, w.due_at, w.comments
      FROM wakeful.wake w
      WHERE w.company = %(company)s AND w.issue = %(issue)s AND w.state = 'deferred' AND w.kind = 'saved_comments'
      UNION ALL
      SELECT r.company, w.id, r.issue, r.agent, w.actor_kind || ':' || w.actor, r.state, r.id,
             r.wait_reason, r.wait_message, NULL, r.comments
      FROM wakeful.run r JOIN wakeful.wake w ON w.company = r.company AND w.id = r.wake AND w.kind = 'saved_comments'
      WHERE r.company = %(company)s AND r.issue = %(issue)s AND r.state = 'queued' AND r.comments <> '{}') AS q
ORDER BY q.queue

-- name: cards
-- One page, oldest first, after the card that `after` names.
SELECT k.company, k.id, k.issue, k.agent, k.run, k.kind, k.question::text AS question, k.status AS state, k.answer::text AS answer,
       k.answered_by, k.created_at, k.ended_at
FROM wakeful.card k
WHERE k.company = %(company)s AND k.issue = %(issue)s
  AND (%(after)s::text IS NULL OR (k.created_at, k.id) > (
      SELECT x.created_at, x.id FROM wakeful.card x WHERE x.company = %(company)s AND x.id = %(after)s AND x.issue = %(issue)s))
ORDER BY k.created_at, k.id LIMIT %(limit)s

-- name: revision
-- A comment's present revision.
SELECT m.revision FROM wakeful.comment m WHERE m.company = %(company)s AND m.id = %(comment)s

-- name: queue
-- The issue of a receipt of comments.
SELECT w.issue FROM wakeful.wake w WHERE w.company = %(company)s AND w.id = %(queue)s AND w.kind = 'saved_comments'

-- name: generation
-- A run's present generation.
SELECT r.generation FROM wakeful.run r WHERE r.company = %(company)s AND r.id = %(run)s
