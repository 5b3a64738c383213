-- Agents' events that no producer took, and that an operator lets go.

-- Says that an operator dropped an agent's event: who did it, and why. The event itself is in a file, which is forgotten
-- after this was committed.
CREATE FUNCTION wakeful.drop_event(
    company text, event text, reason text, kind text DEFAULT NULL, instance text DEFAULT NULL, actor text DEFAULT NULL)
RETURNS wakeful.receipt LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    former text := wakeful.enter_company(company);
    c CONSTANT text := drop_event.company;
BEGIN
    PERFORM wakeful.parse_actor(actor);
    IF NOT EXISTS (SELECT FROM wakeful.company h WHERE h.company = c) THEN
        PERFORM wakeful.refuse('WK404', format('company %L does not exist', c));
    ELSIF (length(drop_event.event) BETWEEN 1 AND 200) IS NOT TRUE THEN
        PERFORM wakeful.refuse('WK422', 'the id of an event has 1 to 200 characters');
    ELSIF (octet_length(btrim(drop_event.reason)) BETWEEN 1 AND 65536) IS NOT TRUE THEN
        PERFORM wakeful.refuse('WK422', 'whoever drops an event says why, in at most 64 KiB');
    END IF;
    PERFORM wakeful.record_audit(c, actor, 'drop', 'event:' || drop_event.event, NULL, jsonb_build_object(
        'reason', drop_event.reason, 'type', left(drop_event.kind, 200), 'instance', left(drop_event.instance, 200)));
    PERFORM wakeful.leave_company(former);
    RETURN ('inserted', NULL, 'dropped', NULL)::wakeful.receipt;
END $$;

SELECT wakeful.close_functions();
SELECT wakeful.open_producers();
