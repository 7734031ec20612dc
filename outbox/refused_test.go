package outbox_test

import (
	"database/sql"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/outbox"
	outboxsql "github.com/postrider/postrider/sql"
	"github.com/postrider/postrider/test/parts"
)

var good = outbox.Event{AggregateType: "order", AggregateID: "17", Type: "OrderCreated", Payload: "{}"}

// What is found before anything is sent leaves the transaction as it was, and writes none of the events.
func TestEmit_RefusesEventsBeforeAnythingIsSent(t *testing.T) {
	_, conn := newOutbox(t, "14", outboxsql.Plain)
	with := func(change func(*outbox.Event)) outbox.Event {
		e := good
		change(&e)
		return e
	}
	plain := outbox.DefaultConfig()
	for want, c := range map[string]struct {
		cfg   outbox.Config
		event outbox.Event
	}{
		`Event.AggregateType is empty, and is needed for column "aggregate_type"`:                       {plain, with(func(e *outbox.Event) { e.AggregateType = "" })},
		`Event.AggregateID is empty, and is needed for column "aggregate_id"`:                           {plain, with(func(e *outbox.Event) { e.AggregateID = "" })},
		`the payload is not JSON: unexpected end of JSON input`:                                         {plain, with(func(e *outbox.Event) { e.Payload = `{"a": 1` })},
		`the payload is not JSON: invalid character`:                                                    {plain, with(func(e *outbox.Event) { e.Payload = []byte(`{}, "row": {}`) })},
		`pass a Go value to have it encoded`:                                                            {plain, with(func(e *outbox.Event) { e.Payload = "text" })},
		`the payload is not UTF-8: write bytes to a column of type bytea`:                               {plain, with(func(e *outbox.Event) { e.Payload = []byte("\"\xff\"") })},
		`json: unsupported type: chan int`:                                                              {plain, with(func(e *outbox.Event) { e.Payload = make(chan int) })},
		`Event.AggregateID: "\xff" is not UTF-8`:                                                        {plain, with(func(e *outbox.Event) { e.AggregateID = "\xff" })},
		`Event.Headers[h]: "\xff" is not UTF-8`:                                                         {plain, with(func(e *outbox.Event) { e.Headers = map[string]any{"h": "\xff"} })},
		`Event.SchemaVersion is set, and the table has no column for it: set Config.FieldSchemaVersion`: {plain, with(func(e *outbox.Event) { e.SchemaVersion = 2 })},
		`Event.PartitionKey is set, and the table has no column for it`:                                 {plain, with(func(e *outbox.Event) { e.PartitionKey = "5" })},
		`Event.Columns has "tenant", which is not in Config.Columns`:                                    {plain, with(func(e *outbox.Event) { e.Columns = map[string]any{"tenant": 5} })},
		`Event.Headers is set`:                                                                          {outbox.DebeziumConfig(), with(func(e *outbox.Event) { e.Headers = map[string]any{"a": "b"} })},
		`Event.OccurredAt is set`:                                                                       {outbox.DebeziumConfig(), with(func(e *outbox.Event) { e.OccurredAt = givenTime })},
		`Event.ID is set`:                                                                               {outbox.Config{Table: "outbox", FieldID: outbox.None}, with(func(e *outbox.Event) { e.ID = "1" })},
		`the year -1 has no form`:                                                                       {plain, with(func(e *outbox.Event) { e.OccurredAt = givenTime.AddDate(-2027, 0, 0) })},
		`and the column is of type text: write it to a column of type bytea`:                            {outbox.Config{Table: "outbox", PayloadType: outbox.Text}, with(func(e *outbox.Event) { e.Payload = []byte("\xff") })},
	} {
		emitter, err := outbox.New(c.cfg)
		require.NoError(t, err)
		inTx(t, conn, func(tx pgx.Tx) error {
			err := emitter.Emit(t.Context(), tx, good, c.event, good)
			require.ErrorContains(t, err, "outbox: event 2 of 3: ")
			require.ErrorContains(t, err, want)
			return nil // and the transaction commits
		})
	}
	require.Equal(t, []string{"0"}, rows(t, conn, "SELECT count(*)::text FROM outbox"))
}

func TestEmit_SaysWhatAnErrorOfTheServerMeans(t *testing.T) {
	db, conn := newOutbox(t, "14", outboxsql.Plain)
	db.Exec(t, `CREATE TABLE numbered (id bigint GENERATED ALWAYS AS IDENTITY, aggregate_type text, aggregate_id varchar(5), event_type text, payload bytea, tenant int NOT NULL)`)
	_, err := conn.Exec(t.Context(), "SELECT 1")
	require.NoError(t, err)
	numbered := outbox.Config{Table: "numbered", FieldID: outbox.None, PayloadType: outbox.Bytea, Columns: []string{"tenant"}}
	with := func(change func(*outbox.Config)) outbox.Config {
		c := numbered
		change(&c)
		return c
	}
	notUUID, noType, long := good, good, good
	notUUID.ID, noType.Type, long.AggregateID = "17", "", "123456"
	tenant := func(e outbox.Event) outbox.Event { e.Columns = map[string]any{"tenant": 1}; return e }
	for name, c := range map[string]struct {
		cfg   outbox.Config
		event outbox.Event
		want  []string
	}{
		"no table":      {outbox.Config{Table: "shop.outbox"}, good, []string{`insert into shop.outbox: ERROR: relation "shop.outbox" does not exist`, "postrider init", "Config.Table"}},
		"no column":     {outbox.Config{Table: "outbox", FieldType: "type"}, good, []string{`column "type" of relation "outbox" does not exist`, "Config names a column"}},
		"no UUID":       {outbox.DefaultConfig(), notUUID, []string{`invalid input syntax for type uuid: "17"`, "takes UUIDs"}},
		"no type":       {outbox.DefaultConfig(), noType, []string{`null value in column "event_type"`, "set the field of the event"}},
		"server's id":   {with(func(c *outbox.Config) { c.FieldID = "" }), tenant(good), []string{`into column "id"`, "set the field of Config to None"}},
		"other payload": {with(func(c *outbox.Config) { c.PayloadType = outbox.JSONB }), tenant(good), []string{`column "payload" is of type bytea but expression is of type jsonb`, "Config.PayloadType"}},
		"not null":      {numbered, good, []string{`null value in column "tenant"`, "Columns"}},
		"too long":      {numbered, tenant(long), []string{"value too long for type character varying(5)"}},
		"no integer":    {numbered, outbox.Event{AggregateType: "order", AggregateID: "1", Columns: map[string]any{"tenant": "one"}}, []string{`invalid input syntax for type integer: "one"`}},
		"NUL":           {outbox.DefaultConfig(), outbox.Event{AggregateType: "order", AggregateID: "1", Type: "a\x00b"}, []string{"22P05", "NUL"}},
	} {
		t.Run(name, func(t *testing.T) {
			emitter, err := outbox.New(c.cfg)
			require.NoError(t, err)
			tx, err := conn.Begin(t.Context())
			require.NoError(t, err)
			defer func() { require.NoError(t, tx.Rollback(t.Context())) }()
			err = emitter.Emit(t.Context(), tx, c.event, c.event)
			for _, want := range c.want {
				require.ErrorContains(t, err, want)
			}
			refused := new(pgconn.PgError)
			require.ErrorAs(t, err, &refused, "the driver's error is in it")
			require.ErrorContains(t, emitter.Emit(t.Context(), tx, c.event), "roll it back")
		})
	}
	inTx(t, conn, func(tx pgx.Tx) error {
		emitter, err := outbox.New(numbered)
		require.NoError(t, err)
		return emitter.Emit(t.Context(), tx, tenant(good))
	})
	require.Equal(t, []string{"0 1"}, rows(t, conn, "SELECT (SELECT count(*) FROM outbox) || ' ' || (SELECT count(*) FROM numbered)"))
}

type noTransaction struct{}

func TestEmit_RefusesWhatIsNoTransaction(t *testing.T) {
	db := parts.Postgres(t, "14")
	pool, err := sql.Open("pgx", db.DSN())
	require.NoError(t, err)
	defer func() { _ = pool.Close() }()
	for want, tx := range map[string]any{
		"*sql.DB is a pool of connections":                          pool,
		"outbox_test.poolOfPgx is a pool of connections":            poolOfPgx{},
		"the transaction is nil":                                    nil,
		"*pgx.Conn is in no transaction: begin one":                 db.Connect(t),
		"outbox_test.noTransaction is no transaction":               noTransaction{},
		"a *pgx.Batch, a *sql.Tx, or what has its ExecContext (sql": 17,
	} {
		require.ErrorContains(t, outbox.Emit(t.Context(), tx, good), want)
		require.ErrorContains(t, outbox.Message(t.Context(), tx, "outbox", good), want)
	}

	conn := db.Connect(t)
	closed, err := conn.Begin(t.Context())
	require.NoError(t, err)
	require.NoError(t, closed.Commit(t.Context()))
	require.ErrorContains(t, outbox.Message(t.Context(), closed, "outbox", good), "is in no transaction")
	_, err = conn.Exec(t.Context(), "BEGIN")
	require.NoError(t, err)
	require.NoError(t, outbox.Message(t.Context(), conn, "outbox", good), "a transaction that was begun by hand")
}

// poolOfPgx has what pgxpool.Pool has and no transaction of pgx.
type poolOfPgx struct{ *pgx.Conn }

func (poolOfPgx) Reset() {}
func (poolOfPgx) Close() {}

func TestNew_RefusesAConfigThatCannotBe(t *testing.T) {
	for want, cfg := range map[string]outbox.Config{
		"Table is empty":                   {},
		`PayloadType "xml" is none of`:     {Table: "outbox", PayloadType: "xml"},
		"Envelope needs FieldID":           {Table: "outbox", FieldID: outbox.None, Envelope: true},
		"cannot be None":                   {Table: "outbox", FieldPayload: outbox.None},
		`two options name the column "id"`: {Table: "outbox", FieldTimestamp: "id"},
		`RouteByField "topic" decides the topic, and no part of an event goes there`: {Table: "outbox", RouteByField: "topic", AggregateTypeColumn: "aggregate_type"},
	} {
		_, err := outbox.New(cfg)
		require.ErrorContains(t, err, "outbox: Config: ")
		require.ErrorContains(t, err, want)
	}
	_, err := outbox.New(outbox.Config{Table: "outbox", RouteByField: "topic", AggregateTypeColumn: "aggregate_type", Columns: []string{"topic"}})
	require.NoError(t, err)
}

func TestMessage_RefusesWhatARouterCouldNotRead(t *testing.T) {
	conn := parts.Postgres(t, "14").Connect(t)
	tombstone, noType := good, good
	tombstone.Payload, noType.Type = nil, ""
	for _, c := range []struct {
		cfg    outbox.Config
		prefix string
		event  outbox.Event
		want   string
	}{
		{outbox.DefaultConfig(), "", good, "the prefix is empty: write one of replication.messages"},
		{outbox.DefaultConfig(), "outbox", tombstone, `column "payload" has no value, and the router takes a member that is null for a column that does not exist`},
		{outbox.DefaultConfig(), "outbox", noType, `column "event_type" has no value`},
		{outbox.Config{Table: "outbox", PayloadType: outbox.Bytea}, "outbox", good, "has no form for bytes"},
		{outbox.Config{Table: "outbox", Columns: []string{"tenant"}}, "outbox", good, `column "tenant" has no value`},
		{outbox.Config{Table: "outbox", FieldID: outbox.None}, "outbox", good, "a logical message needs an id"},
	} {
		emitter, err := outbox.New(c.cfg)
		require.NoError(t, err)
		inTx(t, conn, func(tx pgx.Tx) error {
			require.ErrorContains(t, emitter.Message(t.Context(), tx, c.prefix, c.event), c.want)
			return nil
		})
	}
}
