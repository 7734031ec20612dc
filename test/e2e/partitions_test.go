package e2e

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

const partitionedSQL = `
CREATE TABLE outbox (
	id             bigint GENERATED ALWAYS AS IDENTITY,
	day            int NOT NULL DEFAULT 1,
	aggregate_type text NOT NULL,
	aggregate_id   text,
	event_type     text,
	payload        jsonb
) PARTITION BY LIST (day);
CREATE TABLE outbox_1 PARTITION OF outbox FOR VALUES IN (1);
CREATE TABLE unrelated (LIKE outbox);
CREATE TABLE dropped (id int);
`

// nextDay makes a partition for the rows from now on.
func nextDay(day string) string {
	return `CREATE TABLE outbox_` + day + ` PARTITION OF outbox FOR VALUES IN (` + day + `);
		ALTER TABLE outbox ALTER COLUMN day SET DEFAULT ` + day
}

// attachDay makes it from a table with another order of columns.
func attachDay(day string) string {
	return `CREATE TABLE outbox_` + day + ` (payload jsonb, gone text, event_type text, day int NOT NULL, aggregate_id text, aggregate_type text NOT NULL, id bigint NOT NULL);
		ALTER TABLE outbox_` + day + ` DROP COLUMN gone;
		ALTER TABLE outbox ATTACH PARTITION outbox_` + day + ` FOR VALUES IN (` + day + `);
		ALTER TABLE outbox ALTER COLUMN day SET DEFAULT ` + day
}

var offeredFor = regexp.MustCompile(`partitions = \["public\.outbox_3@[0-9]+ = public\.outbox"\]`)

// Debezium's own publication is one of all tables, in which rows come under the names of the partitions.
func TestPartitions_AreRoutedAsTheirTable(t *testing.T) {
	t.Parallel()
	servers := quietServers(t)
	for name, of := range map[string]string{"of the table": "FOR TABLE outbox, unrelated, dropped", "of all tables": "FOR ALL TABLES"} {
		t.Run(name, func(t *testing.T) {
			for _, server := range servers {
				version := server.name
				c := newCluster(t)
				topic := c.Topic(t, partitions)
				s := newShopOn(t, server, c, partitionedSQL+"CREATE PUBLICATION postrider "+of)
				s.configure(t, routeTo(topic, ""))
				unrelated := func() {
					s.do(t, `INSERT INTO unrelated (id, day, aggregate_type, aggregate_id) VALUES (1, 1, 'order', 'never')`)
				}
				r := s.run(t)
				ledger := newLedger()
				s.events(t, ledger, "outbox", "a", "b")
				unrelated()
				s.eventsAround(t, ledger, attachDay("2"), "outbox", "outbox", "a", "b")
				s.awaitConfirmed(t, r)
				r.Stop(t)

				// While it does not run: a partition that comes and goes, one that is renamed, and another table that goes.
				s.events(t, ledger, "outbox", "a", "b")
				s.do(t, attachDay("3"))
				s.events(t, ledger, "outbox", "a", "b")
				s.do(t, "INSERT INTO dropped VALUES (1)", "DROP TABLE dropped", "DROP TABLE outbox_3", nextDay("4"))
				s.events(t, ledger, "outbox", "a", "b")
				s.do(t, "ALTER TABLE outbox_4 RENAME TO fourth")
				unrelated()
				// Nobody saw the one that came and went.
				halted := s.launch(t)
				require.Equal(t, 78, halted.Wait(t), "exit code")
				require.Contains(t, halted.Log.String(), "public.outbox_3 (OID ")
				decision := offeredFor.FindString(halted.Log.String())
				require.NotEmpty(t, decision, "%s", halted.Log.String())
				s.configure(t, routeTo(topic, "[replication]\n"+decision+"\n"))
				r = s.run(t)
				s.events(t, ledger, "outbox", "a", "b")
				s.awaitConfirmed(t, r)
				r.Stop(t)

				// What waits when the publication is changed still has the names of the partitions. PostgreSQL 14 may send rows of the table
				// without its description then, so nothing may wait there.
				if version != "14" {
					s.events(t, ledger, "outbox", "a", "b")
				}
				s.do(t, "ALTER PUBLICATION postrider SET (publish_via_partition_root = true)")
				s.events(t, ledger, "outbox", "a", "b")
				unrelated()
				r = s.run(t)
				s.do(t, attachDay("5"))
				s.events(t, ledger, "outbox", "a", "b")
				s.awaitConfirmed(t, r)
				r.Stop(t)
				ledger.received(t, s.All(t, topic))
				ledger.requireExact(t, 18)
			}
		})
	}
}
