package diagnosis

import (
	"context"
	"net"
	"net/url"
	"slices"
	"testing"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/embedded"
	"github.com/postrider/postrider/test/parts"
)

// onSharedServer are the conditions for which a database of its own is enough.
func onSharedServer() []condition {
	return slices.Concat(publications(), slots(), connections(), []condition{
		{
			name: "a role without REPLICATION",
			make: func(t *testing.T, s *site) {
				s.install(t)
				s.do(t, "CREATE ROLE "+s.role()+" LOGIN; GRANT SELECT ON outbox TO "+s.role())
				t.Cleanup(func() { s.do(t, "DROP OWNED BY "+s.role()+"; DROP ROLE "+s.role()) })
				s.database(t, func(u *url.URL) { u.User = url.User(s.role()) })
			},
			cause: `role weak_slot_[0-9a-f]+ may not replicate`,
			not:   []string{"slot is lost"},
			unmet: reasons{
				"makes nothing where all exists":  {initialise},
				"makes no slot without --publish": {recovering},
				noDatabase:                        {letters},
				noServer:                          {audit},
				showsSlot:                         {slotShow},
			},
		},
		{
			name: "schema changed",
			make: func(t *testing.T, s *site) {
				s.install(t)
				s.do(t, "ALTER TABLE outbox RENAME aggregate_type TO kind")
			},
			prose: "which of the columns is meant, the user knows",
			cure:  func(t *testing.T, s *site) { s.set(t, "router.route.by.field", quoted("kind")) },
			cause: `public\.outbox .*aggregate_type`,
			unmet: reasons{
				"leaves a table that exists alone":                      {initialise},
				"reads the columns of id and key alone":                 {audit},
				"asks the server, and leaves the columns to the router": {status},
				noDatabase: {letters},
				showsSlot:  {slotShow},
			},
		},
	})
}

// publications are conditions of what is streamed.
func publications() []condition {
	return []condition{
		{
			name:  "empty database",
			make:  func(*testing.T, *site) {},
			cause: `table public\.outbox does not exist`,
			not:   []string{"no topic matches", "slot is lost"},
			unmet: reasons{makesIt: {initialise}, noDatabase: {letters}},
		},
		{
			name:  "no publication",
			make:  func(t *testing.T, s *site) { s.install(t); s.do(t, "DROP PUBLICATION postrider") },
			cause: `publication postrider does not exist`,
			not:   []string{"slot is lost"},
			unmet: reasons{
				makesIt: {initialise}, noDatabase: {letters}, noServer: {audit}, showsSlot: {slotShow},
			},
		},
		{
			name: "table missing from the publication",
			make: func(t *testing.T, s *site) {
				s.install(t)
				s.do(t, "ALTER PUBLICATION postrider DROP TABLE outbox")
			},
			cause: `table public\.outbox is not in publication postrider`,
			not:   []string{"does not exist", "slot is lost"},
			unmet: reasons{
				makesIt: {initialise}, noDatabase: {letters}, noServer: {audit}, showsSlot: {slotShow},
			},
		},
	}
}

// slots are conditions of the relay's slot.
func slots() []condition {
	return []condition{
		{
			name: "no slot",
			make: func(t *testing.T, s *site) {
				s.install(t)
				s.set(t, "slot.create", "false")
				s.do(t, "SELECT pg_drop_replication_slot('"+s.slot+"')")
			},
			cause: `slot slot_[0-9a-f]+ does not exist`,
			not:   []string{"slot is lost"},
			unmet: reasons{
				makesIt:    {initialise, recovering},
				noDatabase: {letters}, noServer: {audit}, ownSlot: {tail, dryRun, compare},
			},
		},
		{
			name: "no slot, and rows in the table",
			make: func(t *testing.T, s *site) {
				s.install(t)
				s.insert(t, "{}")
				s.do(t, "SELECT pg_drop_replication_slot('"+s.slot+"')")
			},
			cause: `slot slot_[0-9a-f]+ does not exist.* table public\.outbox has held rows`,
			unmet: reasons{
				makesIt:    {initialise, recovering},
				noDatabase: {letters}, noServer: {audit}, ownSlot: {tail, dryRun, compare},
			},
		},
		{
			name:  "slot held by another process",
			make:  func(t *testing.T, s *site) { s.install(t); s.hold(t) },
			cause: `slot(_holder)? slot_[0-9a-f]+ is held by process \d+ of the database`,
			unmet: reasons{
				leavesSlot:                        {initialise},
				"needs no slot without --publish": {recovering},
				noDatabase:                        {letters},
				noServer:                          {audit},
				ownSlot:                           {tail, dryRun, compare},
				showsSlot:                         {slotShow},
			},
			prose: "who has started the process that has the slot stops it",
			cure: func(t *testing.T, s *site) {
				ours := " FROM pg_replication_slots WHERE slot_name = '" + s.slot + "'"
				s.do(t, "SELECT pg_terminate_backend(active_pid)"+ours)
				await(t, "a slot that is free", func() bool { return !query[bool](t, s, "SELECT active"+ours) })
			},
		},
	}
}

// connections are conditions of the way to the server: every command that connects names them.
func connections() []condition {
	leading := func(change func(t *testing.T, u *url.URL)) func(*testing.T, *site) {
		return func(t *testing.T, s *site) { s.database(t, func(u *url.URL) { change(t, u) }) }
	}
	list := []condition{
		{
			name:  "nobody listens",
			make:  leading(func(t *testing.T, u *url.URL) { u.Host = parts.Nobody(t) }),
			cause: `connection refused`,
		},
		{
			name:  "no such database",
			make:  leading(func(_ *testing.T, u *url.URL) { u.Path = "/nowhere" }),
			cause: `database nowhere does not exist`,
		},
		{
			name:  "TLS refused",
			make:  leading(func(_ *testing.T, u *url.URL) { u.RawQuery = "sslmode=require" }),
			cause: `server refused TLS connection`,
		},
		{
			name: "pooler",
			make: leading(func(t *testing.T, u *url.URL) {
				u.Host = refuse(t, "08P01", "unsupported startup parameter: options")
			}),
			cause: `unsupported startup parameter: options`,
		},
	}
	for i := range list {
		list[i].unmet = reasons{noDatabase: {letters}}
		list[i].prose = "postgres.url, or what it leads to, is corrected"
	}
	return list
}

// refuse is a server that answers every connection with an error, as a pooler may do.
func refuse(t *testing.T, code, message string) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan struct{})
	go func() { // ends with the listener
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			backend := pgproto3.NewBackend(conn, conn)
			if _, err := backend.ReceiveStartupMessage(); err == nil {
				no := &pgproto3.ErrorResponse{Severity: "FATAL", Code: code, Message: message}
				backend.Send(no)
				_ = backend.Flush()
			}
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-done })
	return l.Addr().String()
}

func (s *site) role() string { return "weak_" + s.slot }

// hold streams from the slot until the end of the test.
func (s *site) hold(t *testing.T) {
	t.Helper()
	dsn := s.DSN() + "&replication=database&application_name=somebody"
	conn, err := pgconn.Connect(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	options := []string{"proto_version '1'", "publication_names 'postrider'"}
	require.NoError(t, pglogrepl.StartReplication(t.Context(), conn, s.slot, 0,
		pglogrepl.StartReplicationOptions{PluginArgs: options}))
}

// usesBroker gives the site a broker, in this process: hints with postrider recover read topics.
func (s *site) usesBroker(t *testing.T) {
	t.Helper()
	k, err := embedded.StartKafka(embedded.KafkaConfig{Topics: map[string]int32{s.topic(): 1}})
	require.NoError(t, err)
	t.Cleanup(k.Close)
	s.brokers(t, k.Brokers()...)
}

func TestMatrix_ConditionsOfTheDatabase(t *testing.T) {
	t.Parallel()
	versions := []string{parts.AnyVersion}
	if *long {
		versions = embedded.Versions()
	}
	for _, version := range versions {
		for _, c := range onSharedServer() {
			t.Run(c.name+" "+version, func(t *testing.T) {
				t.Parallel()
				c.walk(t, func(t *testing.T) *site {
					s := newSite(t, parts.Postgres(t, version))
					s.usesBroker(t)
					return s
				})
			})
		}
	}
}
