-- A function that writes one event, for applications that call SQL. Run with psql as the owner of the outbox table, after
-- outbox.sql or outbox_partitioned.sql:
--
--   psql -v ON_ERROR_STOP=1 -f sql/outbox_emit.sql
--
-- The application calls it in the transaction that makes the change:
--
--   SELECT public.outbox_emit('order', '17', 'OrderCreated', '{"total": 12.50}');
--
-- It returns the id of the event. Run again, the script replaces the function and changes nothing else.

-- Names without a schema mean those of PostgreSQL itself, whatever somebody has made in public.
BEGIN;
SET LOCAL search_path = pg_catalog, pg_temp;

DO $check$
DECLARE
    missing text;
    other   text;
BEGIN
    IF to_regclass('public.outbox') IS NULL THEN
        RAISE EXCEPTION USING MESSAGE = 'table public.outbox does not exist',
            HINT = 'Run sql/outbox.sql or sql/outbox_partitioned.sql first.';
    END IF;
    SELECT string_agg(format('%I %s', c.name, c.type), ', ') INTO missing
    FROM (VALUES ('id', 'uuid'), ('aggregate_type', 'text'), ('aggregate_id', 'text'), ('event_type', 'text'),
        ('payload', 'jsonb'), ('headers', 'jsonb'), ('created_at', 'timestamptz')) c (name, type)
    WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_attribute a
        WHERE a.attrelid = to_regclass('public.outbox')::oid AND a.attname::text = c.name AND a.attnum > 0 AND NOT a.attisdropped);
    IF missing IS NOT NULL THEN
        RAISE EXCEPTION USING MESSAGE = 'public.outbox has no column for: ' || missing,
            HINT = 'This function writes the columns of sql/outbox.sql. Add them, or use INSERT for a table of another shape.';
    END IF;
    -- A call could mean a function of the same name with other parameters, and would run the code of its owner.
    SELECT string_agg(p.oid::regprocedure::text, ', ') INTO other
    FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
    WHERE n.nspname::text = (parse_ident('public.outbox_emit'))[1] AND p.proname::text = (parse_ident('public.outbox_emit'))[2]
        AND p.proowner <> (SELECT r.oid FROM pg_catalog.pg_roles r WHERE r.rolname = current_user);
    IF other IS NOT NULL THEN
        RAISE EXCEPTION USING MESSAGE = 'function of this name exists and belongs to another role: ' || other,
            HINT = 'Run the script as that role, or drop the function.';
    END IF;
END
$check$;

-- It has the rights of the session that calls it: INSERT on the table is enough, since nothing is read.
CREATE OR REPLACE FUNCTION public.outbox_emit(
    aggregate_type text,                     -- chooses the topic
    aggregate_id   text,                     -- the key: events of one aggregate keep their order
    event_type     text,                     -- what happened
    payload        jsonb       DEFAULT NULL, -- the value
    headers        jsonb       DEFAULT NULL, -- an object, whose members become headers if that is configured
    id             uuid        DEFAULT NULL, -- NULL: a new one, a UUIDv7 from PostgreSQL 18 on
    created_at     timestamptz DEFAULT NULL  -- NULL: the time of the transaction
) RETURNS uuid
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $emit$
#variable_conflict use_variable
BEGIN
    IF id IS NULL THEN
        -- Each expression is parsed when it is first evaluated: servers before 18 never see uuidv7.
        IF current_setting('server_version_num')::int >= 180000 THEN
            id := uuidv7();
        ELSE
            id := gen_random_uuid();
        END IF;
    END IF;
    INSERT INTO public.outbox (id, aggregate_type, aggregate_id, event_type, payload, headers, created_at)
    VALUES (id, aggregate_type, aggregate_id, event_type, payload, headers, coalesce(created_at, now()));
    RETURN id;
END
$emit$;

COMMENT ON FUNCTION public.outbox_emit(text, text, text, jsonb, jsonb, uuid, timestamptz)
    IS 'Writes an event to public.outbox in the transaction of the caller, and returns its id.';

-- A function that another role has made since the first look is still its own.
DO $function$
BEGIN
    IF EXISTS (SELECT FROM pg_catalog.pg_proc
            WHERE oid = 'public.outbox_emit(text, text, text, jsonb, jsonb, uuid, timestamptz)'::regprocedure::oid
            AND proowner <> (SELECT oid FROM pg_catalog.pg_roles WHERE rolname = current_user)) THEN
        RAISE EXCEPTION 'function of this name exists and belongs to another role: run the script as that role';
    END IF;
END
$function$;
COMMIT;
