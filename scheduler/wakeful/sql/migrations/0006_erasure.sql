-- Erasing what people wrote and agents printed, while every journal keeps its hash.
--
-- Finals and journals never change, with one exception: the columns that hold people's words may be replaced by
-- their hash. Everything else of the row must stay as it is, and the guards still see to that.

CREATE FUNCTION wakeful.refuse_change_but_erasure() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog
AS $$
-- Generated columns are not computed yet when this runs; nobody can write them anyway.
DECLARE erasable CONSTANT text[] := string_to_array(TG_ARGV[1] || ' owner shard', ' ');
BEGIN
    IF TG_OP = 'UPDATE' AND to_jsonb(OLD) - erasable = to_jsonb(NEW) - erasable THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION USING ERRCODE = 'WK409', MESSAGE = format(TG_ARGV[0], TG_TABLE_NAME),
        HINT = 'rows that are final, and journals, never change';
END $$;

DROP TRIGGER wake_final ON wakeful.wake;
CREATE TRIGGER wake_final BEFORE UPDATE ON wakeful.wake FOR EACH ROW
    WHEN (OLD.state IN ('linked', 'coalesced', 'skipped', 'retired', 'settled', 'cancelled', 'failed'))
    EXECUTE FUNCTION wakeful.refuse_change_but_erasure('this %s is final', 'payload wait_message error');
DROP TRIGGER run_final ON wakeful.run;
CREATE TRIGGER run_final BEFORE UPDATE ON wakeful.run FOR EACH ROW
    WHEN (OLD.state IN ('succeeded', 'failed', 'cancelled', 'lost')
          AND NOT (OLD.kind = 'supervisor' AND OLD.state IN ('failed', 'cancelled')
                   AND NEW.state = 'queued' AND NEW.generation = OLD.generation + 1))
    EXECUTE FUNCTION wakeful.refuse_change_but_erasure('this %s is final',
        'message error result stdout_tail stderr_tail stop_reason directory session session_key');
DROP TRIGGER audit_journal ON wakeful.audit;
CREATE TRIGGER audit_journal BEFORE UPDATE OR DELETE ON wakeful.audit FOR EACH ROW
    EXECUTE FUNCTION wakeful.refuse_change_but_erasure('%s is a journal', 'before after');
DROP TRIGGER refused_report_journal ON wakeful.refused_report;
CREATE TRIGGER refused_report_journal BEFORE UPDATE OR DELETE ON wakeful.refused_report FOR EACH ROW
    EXECUTE FUNCTION wakeful.refuse_change_but_erasure('%s is a journal', 'report');

-- What stands in the place of something erased: enough to prove what it was, not what it said.
CREATE FUNCTION wakeful.erased(words text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
SELECT CASE WHEN $1 IS NULL OR $1 ~ '^erased sha256:[0-9a-f]{64}$' THEN $1
            ELSE 'erased sha256:' || pg_catalog.encode(pg_catalog.sha256(pg_catalog.convert_to($1, 'UTF8')), 'hex') END
$$;
CREATE FUNCTION wakeful.erased(document jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
SELECT CASE WHEN $1 IS NULL OR $1::text ~ '^{"erased": "sha256:[0-9a-f]{64}"}$' THEN $1
            ELSE pg_catalog.jsonb_build_object('erased', 'sha256:' ||
                pg_catalog.encode(pg_catalog.sha256(pg_catalog.convert_to($1::text, 'UTF8')), 'hex')) END
$$;

CREATE FUNCTION wakeful.archive_company(company text, actor text DEFAULT NULL)
RETURNS wakeful.receipt LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE former text := wakeful.enter_company(company); result wakeful.receipt; held wakeful.company;
BEGIN
    PERFORM wakeful.parse_actor(actor);
    SELECT * INTO held FROM wakeful.company c WHERE c.company = archive_company.company FOR NO KEY UPDATE;
    IF held.company IS NULL THEN
        PERFORM wakeful.refuse('WK404', format('company %L does not exist', archive_company.company));
    ELSIF held.state = 'archived' THEN
        result.outcome := 'existing';
    ELSE
        UPDATE wakeful.company c SET state = 'archived', paused_at = NULL, pause_reason = NULL WHERE c.company = held.company;
        PERFORM wakeful.record_audit(held.company, actor, 'archive', 'company', jsonb_build_object('state', held.state), '{"state": "archived"}');
        PERFORM wakeful.notify_gate(held.company, 'company', held.company);
        result.outcome := 'merged';
    END IF;
    result.state := 'archived';
    PERFORM wakeful.leave_company(former);
    RETURN result;
END $$;

-- Erases a company's words: payloads, titles, bodies, outputs, results, messages. Rows, states, times, money and
-- hashes stay. Only for an archived company, with no run alive. Files are the caller's to delete.
CREATE FUNCTION wakeful.erase_company(company text, actor text DEFAULT NULL)
RETURNS wakeful.receipt LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE former text := wakeful.enter_company(company); result wakeful.receipt; held wakeful.company; c CONSTANT text := erase_company.company;
BEGIN
    PERFORM wakeful.parse_actor(actor);
    SELECT * INTO held FROM wakeful.company x WHERE x.company = c FOR NO KEY UPDATE;
    IF held.company IS NULL THEN
        PERFORM wakeful.refuse('WK404', format('company %L does not exist', c));
    ELSIF held.state <> 'archived' THEN
        PERFORM wakeful.refuse('WK409', format('company %L is %s', c, held.state), format('first: wakeful company archive %s', c));
    ELSIF EXISTS (SELECT FROM wakeful.run u WHERE u.company = c AND u.ended_at IS NULL) THEN
        PERFORM wakeful.refuse('WK409', format('company %L has runs that have not ended', c), format('first: wakeful panic %s', c));
    END IF;
    UPDATE wakeful.wake w SET payload = wakeful.erased(w.payload), wait_message = wakeful.erased(w.wait_message), error = wakeful.erased(w.error)
    WHERE w.company = c;
    UPDATE wakeful.run u SET message = wakeful.erased(u.message), error = wakeful.erased(u.error), result = wakeful.erased(u.result),
        stdout_tail = wakeful.erased(u.stdout_tail), stderr_tail = wakeful.erased(u.stderr_tail), stop_reason = wakeful.erased(u.stop_reason),
        session = wakeful.erased(u.session), session_key = CASE WHEN u.session_key = '' THEN '' ELSE wakeful.erased(u.session_key) END
    WHERE u.company = c;
    DELETE FROM wakeful.session s WHERE s.company = c;
    UPDATE wakeful.comment m SET body = wakeful.erased(m.body) WHERE m.company = c;
    UPDATE wakeful.card k SET question = wakeful.erased(k.question), answer = wakeful.erased(k.answer) WHERE k.company = c;
    UPDATE wakeful.issue i SET title = wakeful.erased(i.title), body = wakeful.erased(i.body) WHERE i.company = c;
    UPDATE wakeful.agent a SET name = wakeful.erased(a.name), command = ARRAY['erased'], env_values = '{}', cwd = NULL, reader = NULL WHERE a.company = c;
    UPDATE wakeful.project p SET name = wakeful.erased(p.name) WHERE p.company = c;
    UPDATE wakeful.audit a SET before = wakeful.erased(a.before), after = wakeful.erased(a.after) WHERE a.company = c;
    UPDATE wakeful.refused_report r SET report = wakeful.erased(r.report) WHERE r.company = c;
    UPDATE wakeful.hold h SET reason = wakeful.erased(h.reason) WHERE h.company = c;
    UPDATE wakeful.chat_action a SET error = wakeful.erased(a.error) WHERE a.company = c;
    UPDATE wakeful.recovery_action a SET cause = wakeful.erased(a.cause) WHERE a.company = c;
    UPDATE wakeful.status_decision d SET reason = wakeful.erased(d.reason) WHERE d.company = c;
    UPDATE wakeful.provider_account p SET reason = wakeful.erased(p.reason) WHERE p.company = c;
    UPDATE wakeful.company x SET name = wakeful.erased(x.name) WHERE x.company = c;
    PERFORM wakeful.record_audit(c, actor, 'erase', 'company', NULL, NULL);
    result.outcome := 'merged';
    result.state := 'archived';
    PERFORM wakeful.leave_company(former);
    RETURN result;
END $$;

SELECT wakeful.close_functions();
GRANT EXECUTE ON FUNCTION wakeful.archive_company(text, text) TO wakeful_host, wakeful_scheduler;
-- Erasing is an operator's act, not a host application's.
GRANT EXECUTE ON FUNCTION wakeful.erase_company(text, text) TO wakeful_scheduler;
