package relay_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/embedded"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/replication"
)

// The slot is rewound after the last transaction was published, and what is read was changed meanwhile. That it is the same history is seen all the same.
func TestExactlyOnce_KnowsTheStoredTransactionWhateverIsReadNow(t *testing.T) {
	t.Parallel()
	const message = `SELECT pg_logical_emit_message(%t, 'outbox', '{"id": 7, "aggregatetype": "Order", "aggregateid": "key", "payload": "the last"}')`
	row := `INSERT INTO outbox VALUES (7, 'Order', 'key', 'the last')`
	change := map[string]struct {
		last  string // what is published last
		sql   string
		now   func(x *setup)
		since string // version
	}{
		"messages": {last: fmt.Sprintf(message, true), now: func(x *setup) {
			x.replication.Messages, x.router.MessagePrefixes = nil, nil
		}},
		"messages outside of transactions, and all": {last: fmt.Sprintf(message, false), now: func(x *setup) {
			x.replication.Messages, x.router.MessagePrefixes = nil, nil
		}},
		"messages outside of transactions": {last: fmt.Sprintf(message, false), now: func(x *setup) { x.replication.TransactionalOnly = true }},
		"the prefix":                       {last: fmt.Sprintf(message, true), now: func(x *setup) { x.router.MessagePrefixes = []string{"another"} }},
		"the table in the publication":     {last: row, sql: "ALTER PUBLICATION postrider SET TABLE other"},
		"the row filter":                   {last: row, sql: "ALTER PUBLICATION postrider SET TABLE outbox WHERE (id > 100), other", since: "15"},
		"the publication, made anew":       {last: row, sql: "DROP PUBLICATION postrider; CREATE PUBLICATION postrider FOR TABLE other"},
		"the table, which is dropped":      {last: row, sql: "DROP TABLE outbox; ALTER PUBLICATION postrider ADD TABLE other"},
		"the tables in the configuration": {last: row, sql: "ALTER PUBLICATION postrider ADD TABLE other", now: func(x *setup) {
			x.router.Tables = []string{"public.other"}
		}},
		"nothing, and the transaction comes": {last: row, sql: "ALTER PUBLICATION postrider ADD TABLE other"},
	}
	for _, version := range embedded.Versions() {
		for name, c := range change {
			if version < c.since {
				continue
			}
			t.Run(version+"/"+name, func(t *testing.T) {
				x := newSetupOn(t, version)
				l := &ledger{}
				x.exactlyOnce(l)
				x.replication.Witness = true
				x.replication.Messages, x.router.MessagePrefixes = []string{"outbox"}, []string{"outbox"}
				x.exec(`CREATE TABLE other (LIKE outbox)`)
				rewound := x.slot + "_rewound"
				x.exec(`SELECT pg_create_logical_replication_slot('` + rewound + `', 'pgoutput')`)
				x.insert(1, 3)
				x.exec(c.last)
				r := x.run()
				require.Eventually(t, func() bool { return strings.HasSuffix(strings.Join(l.seen(), ";"), "the last") }, patience, 1e6)
				r.stop()
				require.NoError(t, r.end())
				stored := l.stored

				for sql := range strings.SplitSeq(c.sql, "; ") {
					x.exec(sql)
				}
				x.router.Tables = []string{"public.outbox", "public.other"}
				if c.now != nil {
					c.now(x)
				}
				x.slot = rewound
				if strings.Contains(c.sql, "other") {
					x.exec(`INSERT INTO other VALUES (8, 'Order', 'key', 'and on')`)
				} else {
					x.exec(`INSERT INTO outbox VALUES (8, 'Order', 'key', 'and on')`)
				}
				r = x.run()
				require.Eventually(t, func() bool {
					return strings.HasSuffix(strings.Join(l.seen(), ";"), "and on") || len(r.ended) > 0
				}, patience, 1e6)
				r.stop()
				require.NoError(t, r.end())
				require.Equal(t, 1, strings.Count(strings.Join(l.seen(), ","), "the last"))
				require.Equal(t, 1, strings.Count(strings.Join(l.seen(), ","), "event 2"))
				require.Greater(t, l.stored.LSN, stored.LSN)
				require.GreaterOrEqual(t, x.confirmed(), stored.LSN)
			})
		}
	}
}

// Another publication may leave out the stored transaction. Then nothing is confirmed, and the relay reports which one shows it.
func TestExactlyOnce_NamesThePublicationThatShowsTheStoredTransaction(t *testing.T) {
	x := newSetup(t)
	l := &ledger{}
	x.exactlyOnce(l)
	x.replication.Witness = true
	x.parts.Source.Events = "postrider+messages"
	x.exec(`CREATE TABLE other (LIKE outbox)`)
	x.exec(`CREATE PUBLICATION another FOR TABLE other`)
	rewound := x.slot + "_rewound"
	x.exec(`SELECT pg_create_logical_replication_slot('` + rewound + `', 'pgoutput')`)
	x.exec(`INSERT INTO other VALUES (1, 'Order', 'key', 'not ours yet')`)
	x.insert(1, 3)
	r := x.run()
	require.Eventually(t, func() bool { return len(l.seen()) == 1 }, patience, 1e6)
	r.stop()
	require.NoError(t, r.end())
	require.Equal(t, "postrider+messages", l.stored.Source.Events)

	x.slot, x.replication.Publication, x.parts.Source.Events = rewound, "another", "another"
	x.router.Tables = []string{"public.other"}
	before := x.confirmed()
	x.exec(`INSERT INTO other VALUES (2, 'Order', 'key', 'and on')`)
	var stored *relay.StoredPositionError
	require.ErrorAs(t, x.run().end(), &stored)
	require.Equal(t, replication.Diverged, stored.Descent)
	_, fix := stored.Advice()
	require.Contains(t, fix, `replication.publication = "postrider"`)
	require.Equal(t, before, x.confirmed())
	require.Len(t, l.seen(), 1)

	x.replication.Publication, x.parts.Source.Events, x.router.Tables = "postrider", "postrider", []string{"public.outbox"}
	x.insert(4, 4)
	r = x.run()
	require.Eventually(t, func() bool { return len(l.seen()) == 2 }, patience, 1e6)
	r.stop()
	require.NoError(t, r.end())
	require.Equal(t, []string{"event 1,event 2,event 3", "event 4"}, l.seen())
}
