-- Relations and types that stand in for those of PostgreSQL.
DO $names$
DECLARE c record; home CONSTANT text := pg_catalog.current_setting('traps.schema');
BEGIN
	FOR c IN SELECT relname FROM pg_catalog.pg_class WHERE relnamespace = 'pg_catalog'::regnamespace AND relkind IN ('r', 'v') LOOP
		EXECUTE pg_catalog.format('CREATE VIEW %I.%I AS SELECT pg_catalog.nextval(''traps.calls'') AS oid', home, c.relname);
	END LOOP;
	FOR c IN SELECT typname FROM pg_catalog.pg_type WHERE typnamespace = 'pg_catalog'::regnamespace AND typtype = 'b' AND typelem = 0 AND typname NOT LIKE '\_%' LOOP
		EXECUTE pg_catalog.format('CREATE DOMAIN %I.%I AS pg_catalog.int4', home, c.typname);
	END LOOP;
END $names$
