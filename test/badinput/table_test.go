package badinput

import "testing"

var tableMistakes = []mistake{
	{
		name: "table-missing", about: "the outbox table does not exist",
		make: func(t *testing.T, s *site) { s.sql(t, s.database, `ALTER TABLE outbox RENAME TO outbox_old`) },
		run:  78, check: 78, advised: []string{"public.outbox", "does not exist", "replication.tables", "postrider init"},
		heal: func(_ *testing.T, s *site, _ string) { s.set("replication", `tables = ["public.outbox_old"]`) },
	},
	{
		name: "column-missing", about: "the table has no column to route by",
		make: func(t *testing.T, s *site) { s.sql(t, s.database, `ALTER TABLE outbox RENAME aggregate_type TO kind`) },
		run:  78, check: 78, advised: []string{"public.outbox", `"aggregate_type"`, "router.route.by.field", "kind"},
		heal: func(_ *testing.T, s *site, _ string) { s.set("router", `route.by.field = "kind"`) },
	},
	{
		name: "column-misspelt", about: "a configured column does not exist",
		make: func(_ *testing.T, s *site) { s.set("router", `table.field.event.payload = "paylaod"`) },
		run:  78, check: 78, advised: []string{"public.outbox", `"paylaod"`, "router.table.field.event.payload"},
		heal: func(_ *testing.T, s *site, _ string) { s.set("router", `table.field.event.payload = "payload"`) },
	},
	{
		name: "column-of-cloudevents-missing", about: "the records are to be CloudEvents, and the table has no column with their type",
		make: func(t *testing.T, s *site) {
			s.sql(t, s.database, `ALTER TABLE outbox RENAME event_type TO kind`)
			s.set("format", `cloudevents = "binary"`)
		},
		run: 78, check: 78, advised: []string{"public.outbox", `"event_type"`, "router.table.field.event.type", "kind", "format.cloudevents"},
		heal: func(_ *testing.T, s *site, _ string) { s.set("router", `table.field.event.type = "kind"`) },
	},
	{
		name: "columns-ambiguous", about: "the table has both names that are looked for",
		make: func(t *testing.T, s *site) { s.sql(t, s.database, `ALTER TABLE outbox ADD aggregatetype text`) },
		run:  78, check: 78, advised: []string{"public.outbox", `"aggregate_type"`, `"aggregatetype"`, "router.route.by.field"},
		heal: func(_ *testing.T, s *site, _ string) { s.set("router", `route.by.field = "aggregate_type"`) },
	},
	{
		name: "partition-of-wrong-type", about: "the column placed as partition is no integer",
		make: func(_ *testing.T, s *site) {
			s.set("router", `table.fields.additional.placement = "event_type:partition"`)
		},
		run: 78, check: 78, advised: []string{"public.outbox", `"event_type"`, "text", "router.table.fields.additional.placement", "integer"},
	},
	{
		name: "timestamp-of-wrong-type", about: "the column of the record's timestamp is no time",
		make: func(_ *testing.T, s *site) { s.set("router", `table.field.event.timestamp = "event_type"`) },
		run:  78, check: 78, advised: []string{"public.outbox", `"event_type"`, "text", "router.table.field.event.timestamp", "timestamp"},
		heal: func(_ *testing.T, s *site, _ string) { s.set("router", `table.field.event.timestamp = "created_at"`) },
	},
}
