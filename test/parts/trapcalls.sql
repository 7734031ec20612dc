-- Operators and functions that stand in for those of PostgreSQL. PL/pgSQL is not inlined, so that
-- plans name what is called.
DO $traps$
DECLARE
	home CONSTANT text := pg_catalog.current_setting('traps.schema');
	statements CONSTANT text := pg_catalog.current_setting('traps.statements');
	named CONSTANT text[] := ARRAY(SELECT DISTINCT m[1] FROM pg_catalog.regexp_matches(statements, '([a-z_0-9]+)\(', 'g') m);
	-- Those that LIKE, IN and BETWEEN stand for are not written as such.
	operators CONSTANT text[] := '{~~,!~~,=,<>,<=,>=}' || ARRAY(SELECT DISTINCT m[1] FROM pg_catalog.regexp_matches(statements, '([-+*/<>=~!@#%^&|]+)', 'g') m);
	types CONSTANT regtype[] := '{name,text,varchar,"\"char\"",smallint,integer,bigint,numeric,oid,regclass,regtype,regnamespace,xid,pg_lsn,date,timestamp,timestamptz,interval}';
	numbers CONSTANT regtype[] := '{smallint,integer,bigint,numeric,date,timestamp,timestamptz,interval,pg_lsn}';
	others CONSTANT regtype[] := '{boolean,float8,uuid,json,jsonb,bytea,bpchar,tid,xid8,bit,text[],name[],oid[],smallint[],bigint[],boolean[]}';
	a regtype; b regtype; o record; f record; i int; result text;
	trap CONSTANT text := ' LANGUAGE plpgsql IMMUTABLE AS $f$ BEGIN PERFORM pg_catalog.nextval(''traps.calls''); RETURN NULL; END $f$';
	arguments text;
BEGIN
	FOREACH a IN ARRAY types || others LOOP FOREACH b IN ARRAY types || others LOOP
		CONTINUE WHEN a <> b AND (a = ANY (others) OR b = ANY (others)) AND NOT (a IN ('text', 'name', 'integer') OR b IN ('text', 'name', 'integer'));
		FOREACH result IN ARRAY '{boolean,text,numeric,jsonb}'::text[] LOOP
			EXECUTE pg_catalog.format('CREATE FUNCTION %I.trap_%s(%s, %s) RETURNS %s', home, result, a, b, result) || trap;
		END LOOP;
		-- The result is that of the operator it stands in for, so that a statement is understood as before.
		FOR o IN SELECT names.oprname, names.result FROM (
				SELECT DISTINCT p.oprname, CASE WHEN p.oprname IN ('+', '-', '*', '/', '%') THEN 'numeric' WHEN p.oprname IN ('||', '->>', '#>>') THEN 'text'
					WHEN p.oprname IN ('->', '#>', '#-') THEN 'jsonb' ELSE 'boolean' END AS result
				FROM pg_catalog.pg_operator p WHERE p.oprnamespace = 'pg_catalog'::regnamespace AND p.oprkind = 'b'
					AND p.oprname = ANY (operators)) names
			WHERE (names.result <> 'numeric' OR a = ANY (numbers) AND b = ANY (numbers))
			  AND NOT EXISTS (SELECT FROM pg_catalog.pg_operator p WHERE p.oprname = names.oprname AND oprleft = a AND oprright = b AND oprnamespace = 'pg_catalog'::regnamespace)
		LOOP
			EXECUTE pg_catalog.format('CREATE OPERATOR %I.%s (LEFTARG = %s, RIGHTARG = %s, FUNCTION = %I.trap_%s)', home, o.oprname, a, b, home, o.result);
		END LOOP;
	END LOOP; END LOOP;
	-- Functions with one argument of another type, and with the same.
	FOR f IN SELECT DISTINCT p.proname, p.proargtypes::oid[] AS arguments, p.prorettype::regtype AS result, p.proretset FROM pg_catalog.pg_proc p
		WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.prokind IN ('f', 'a') AND p.pronargs <= 3 AND p.provariadic = 0
		  AND p.proname = ANY (named)
		  AND NOT EXISTS (SELECT FROM pg_catalog.unnest(p.proargtypes::oid[]) x WHERE x IN ('internal'::regtype, '"any"'::regtype, 'anyelement'::regtype, 'anyarray'::regtype,
			'anynonarray'::regtype, 'anyrange'::regtype, 'anymultirange'::regtype, 'anycompatible'::regtype, 'cstring'::regtype))
		  AND p.prorettype::regtype NOT IN ('record', 'internal', 'trigger', 'anyelement', 'anyarray', 'anycompatiblearray')
	LOOP
		FOR i IN 0..coalesce(pg_catalog.array_length(f.arguments, 1), 0) LOOP
			FOREACH a IN ARRAY CASE WHEN i = 0 THEN '{text}' ELSE types END LOOP
				SELECT coalesce(pg_catalog.string_agg((CASE WHEN u.place = i THEN a ELSE u.argument::regtype END)::text, ', ' ORDER BY u.place), '') INTO arguments
					FROM pg_catalog.unnest(f.arguments) WITH ORDINALITY u(argument, place);
				BEGIN
					EXECUTE pg_catalog.format('CREATE FUNCTION %I.%I(%s) RETURNS %s%s', home, f.proname, arguments, CASE WHEN f.proretset THEN 'SETOF ' ELSE '' END, f.result) ||
						CASE WHEN f.proretset THEN pg_catalog.replace(trap, 'RETURN NULL', 'RETURN') ELSE trap END;
				EXCEPTION WHEN duplicate_function OR invalid_function_definition THEN NULL;
				END;
			END LOOP;
		END LOOP;
	END LOOP;
END $traps$
