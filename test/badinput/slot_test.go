package badinput

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var slotMistakes = []mistake{
	{
		name: "slot-missing", about: "slot.create is false, and there is no slot",
		make: func(_ *testing.T, s *site) { s.set("slot", "create = false") },
		run:  78, check: 78, advised: []string{"slot", "postrider", "slot.create", "postrider slot create postrider"},
		heal: createSlot,
	},
	{
		name: "slot-missing-for-a-used-table", about: "there is no slot, and the table has held rows: was the slot dropped?",
		make: func(t *testing.T, s *site) {
			s.sql(t, s.database, `INSERT INTO outbox (aggregate_type, aggregate_id, event_type) VALUES ('order', '1', 'OrderCreated')`)
		},
		run: 78, check: 78, advised: []string{"slot", "postrider", "public.outbox", "postrider slot create postrider"},
		heal: createSlot,
	},
	{
		name: "slot-of-another-plugin", about: "the slot was made for another output plugin",
		make: func(t *testing.T, s *site) {
			s.sql(t, s.database, `SELECT pg_create_logical_replication_slot('`+s.slot+`', 'test_decoding')`)
		},
		run: 78, check: 78, advised: []string{"slot", "postrider", "test_decoding", "pgoutput", "slot.name"},
		heal: anotherSlot,
	},
	{
		name: "slot-physical", about: "the slot is one for a standby",
		make: func(t *testing.T, s *site) {
			s.sql(t, s.database, `SELECT pg_create_physical_replication_slot('`+s.slot+`')`)
		},
		run: 78, check: 78, advised: []string{"slot", "postrider", "physical", "slot.name"},
		heal: anotherSlot,
	},
	{
		name: "slot-of-another-database", about: "the slot belongs to another database of the server",
		make: func(t *testing.T, s *site) {
			s.sql(t, "postgres", `SELECT pg_create_logical_replication_slot('`+s.slot+`', 'pgoutput')`)
		},
		run: 78, check: 78, advised: []string{"slot", "postrider", `"postgres"`, `"shop"`, "slot.name"},
		heal: anotherSlot,
	},
	{
		name: "slot-two-phase", about: "the slot was made with two_phase",
		make: func(t *testing.T, s *site) {
			s.sql(t, s.database, `SELECT pg_create_logical_replication_slot('`+s.slot+`', 'pgoutput', false, true)`)
		},
		run: 78, check: 78, advised: []string{"slot", "postrider", "two_phase"},
		heal: anotherSlot,
	},
	{
		name: "publication-missing", about: "the publication does not exist",
		make: func(t *testing.T, s *site) { s.sql(t, s.database, `DROP PUBLICATION postrider`) },
		run:  78, check: 78, advised: []string{"publication", "postrider", "does not exist", "CREATE PUBLICATION"},
		heal: func(t *testing.T, s *site, advice string) {
			s.sql(t, s.database, statement(t, advice, `CREATE PUBLICATION .*;`))
		},
	},
	{
		name: "publication-without-table", about: "the publication does not contain the outbox table",
		make: func(t *testing.T, s *site) { s.sql(t, s.database, `ALTER PUBLICATION postrider DROP TABLE outbox`) },
		run:  78, check: 78, advised: []string{"publication", "postrider", "public.outbox", "ADD TABLE"},
		heal: func(t *testing.T, s *site, advice string) {
			s.sql(t, s.database, statement(t, advice, `ALTER PUBLICATION .*;`))
		},
	},
	{
		name: "publication-without-inserts", about: "the publication publishes updates and deletes only",
		make: func(t *testing.T, s *site) {
			s.sql(t, s.database, `ALTER PUBLICATION postrider SET (publish = 'update, delete')`)
		},
		run: 78, check: 78, advised: []string{"publication", "postrider", "inserts", "publish = 'insert'"},
		heal: func(t *testing.T, s *site, advice string) {
			s.sql(t, s.database, statement(t, advice, `ALTER PUBLICATION .*;`))
		},
	},
	{
		name: "publication-of-partitions", about: "the table is partitioned, and the publication contains one of its partitions instead of it",
		make: func(t *testing.T, s *site) {
			s.sql(t, s.database, `DROP TABLE outbox; CREATE TABLE outbox (id uuid, aggregate_type text, aggregate_id text, payload jsonb) PARTITION BY HASH (id);
				CREATE TABLE outbox_0 PARTITION OF outbox FOR VALUES WITH (MODULUS 1, REMAINDER 0);
				ALTER PUBLICATION postrider SET (publish_via_partition_root = false); ALTER PUBLICATION postrider ADD TABLE outbox_0`)
		},
		run: 78, check: 78, advised: []string{"public.outbox", "partition", "publish_via_partition_root = true"},
		heal: func(t *testing.T, s *site, advice string) {
			s.sql(t, s.database, statement(t, advice, `ALTER PUBLICATION .*;`))
		},
	},
}

// createSlot types the command that the message ends with.
func createSlot(t *testing.T, s *site, advice string) {
	command := strings.Fields(statement(t, advice, `postrider slot create \S+`))
	out := s.exec(t, command[1:]...)
	require.Zero(t, out.code, out.stderr)
}

// anotherSlot is what to do about a slot that is somebody else's.
func anotherSlot(_ *testing.T, s *site, _ string) { s.set("slot", `name = "`+s.slot+`_own"`) }
