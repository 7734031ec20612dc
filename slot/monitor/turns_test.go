package monitor_test

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/internal/secret"
	"github.com/postrider/postrider/slot"
	"github.com/postrider/postrider/slot/monitor"
)

// curt is a server of PostgreSQL that answers at once, and never what it is asked for.
type curt struct {
	net.Listener
	taken chan time.Time // connections
	greet func(b *pgproto3.Backend)
}

func (c *curt) serve() {
	for {
		conn, err := c.Accept()
		if err != nil {
			return
		}
		b := pgproto3.NewBackend(conn, conn)
		if _, err := b.ReceiveStartupMessage(); err == nil {
			c.taken <- time.Now()
			c.greet(b)
		}
		_ = conn.Close()
	}
}

// Whatever the server does to its connections, the monitor makes them no faster than its back-off.
func TestTurns_TheMonitorDoesNotSpin(t *testing.T) {
	t.Parallel()
	fatal := func(code string) func(b *pgproto3.Backend) {
		return func(b *pgproto3.Backend) {
			b.Send(&pgproto3.ErrorResponse{Severity: "FATAL", SeverityUnlocalized: "FATAL", Code: code, Message: "no"})
			_ = b.Flush()
		}
	}
	ready := func(b *pgproto3.Backend) {
		b.Send(&pgproto3.AuthenticationOk{})
		b.Send(&pgproto3.ParameterStatus{Name: "server_version", Value: "17.0"})
		b.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
		_ = b.Flush()
	}
	// whole answers every statement without a row, as many as that, and closes the connection with the next one.
	whole := func(statements int) func(b *pgproto3.Backend) {
		return func(b *pgproto3.Backend) {
			ready(b)
			for range statements {
				for {
					m, err := b.Receive()
					if err != nil {
						return
					}
					switch m.(type) {
					case *pgproto3.Parse:
						b.Send(&pgproto3.ParseComplete{})
					case *pgproto3.Bind:
						b.Send(&pgproto3.BindComplete{})
					case *pgproto3.Describe:
						b.Send(&pgproto3.ParameterDescription{})
						b.Send(&pgproto3.NoData{})
					case *pgproto3.Execute, *pgproto3.Query:
						b.Send(&pgproto3.CommandComplete{CommandTag: []byte("SELECT 0")})
					}
					_, sync := m.(*pgproto3.Sync)
					if _, simple := m.(*pgproto3.Query); sync || simple {
						b.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
						_ = b.Flush()
						break
					}
				}
			}
		}
	}
	for name, greet := range map[string]func(b *pgproto3.Backend){
		"closed":          func(*pgproto3.Backend) {},
		"refused":         fatal("28P01"),
		"full":            fatal("53300"),
		"stopping":        fatal("57P01"),
		"starting":        fatal("57P03"),
		"closed later":    ready,
		"one statement":   whole(1),
		"two statements":  whole(2),
		"some statements": whole(4),
		"all statements":  whole(1 << 20),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			c := &curt{l, make(chan time.Time, 10_000), greet}
			var running sync.WaitGroup
			defer running.Wait()
			defer l.Close()
			running.Go(c.serve) // ends with the listener
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			pg := postgres.DefaultConfig()
			pg.URL = secret.Of("postgres://x@" + l.Addr().String() + "/x?sslmode=disable")
			m := monitor.New(pg, slot.Requirements{Slot: slot.DefaultConfig()}, monitor.DefaultConfig(), func(monitor.Observation) {}, zerolog.Nop())
			running.Go(func() { m.Run(ctx, func(error, time.Time) {}) })
			const connections = 5
			var first, last time.Time
			for i := range connections {
				if last = <-c.taken; i == 0 {
					first = last
				}
			}
			// A connection that is lost is looked into at once: two in a turn.
			require.GreaterOrEqual(t, last.Sub(first), (connections/2)*monitor.ProbeMin)
		})
	}
}
