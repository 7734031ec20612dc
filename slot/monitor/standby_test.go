package monitor_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/postrider/postrider/slot/monitor"
	"github.com/postrider/postrider/test/parts/testdb"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/slot"
	"github.com/postrider/postrider/test/parts"
)

// The walsender waits for a standby at nearly every look under load. It holds the stream only if it
// confirms nothing for a while, even though it is connected.
func TestMonitor_SeesAStandbyThatConfirmsNothing(t *testing.T) {
	t.Parallel()
	testdb.Versions(t, []string{"17", "18"}, func(t *testing.T, version string) {
		t.Parallel()
		p, _ := onOwn(t, version, map[string]string{"synchronized_standby_slots": "standby", "wal_sender_timeout": "0"})
		p.Outbox()
		p.Exec("SELECT pg_create_physical_replication_slot('standby', true)")
		standby := p.standby("standby")
		need := p.Need()
		need.Slot.Failover = true
		_, err := slot.Prepare(t.Context(), p.Conn, need, true, zerolog.Nop())
		require.NoError(t, err)
		login := p.Lean()
		p.streams(login)
		stop := p.writes()

		w := newWatched(t, login, need, quick())
		w.start()
		for waits := 0; waits < 20; { // among them some in a row
			o := w.observes(func(o monitor.Observation) bool { return o.Stream != nil && len(o.Standbys) == 1 })
			require.Equal(t, monitor.StandbySlot{Name: "standby", Exists: true, Active: true, WALStatus: "reserved"}, o.Standbys[0])
			if o.Stream.WaitEvent == "WaitForStandbyConfirmation" {
				waits++
			}
		}

		standby.frozen.Store(true)
		stop()
		p.Exec("INSERT INTO outbox VALUES (0, 'x')")
		o := w.observes(func(o monitor.Observation) bool { return len(o.Standbys) == 1 && o.Standbys[0].Blocks })
		require.True(t, o.Standbys[0].Active)
		require.GreaterOrEqual(t, o.Standbys[0].Behind, monitor.Seconds(30))
		require.Positive(t, *o.Standbys[0].BehindBytes)
		require.Equal(t, "lean_"+p.Name, o.Stream.User)

		standby.frozen.Store(false)
		w.observes(func(o monitor.Observation) bool { return len(o.Standbys) == 1 && !o.Standbys[0].Blocks })
	})
}

// confirming is a standby as far as the server can see: it confirms what it receives until it is
// frozen, as its host can be without an end of the connection.
type confirming struct{ frozen atomic.Bool }

// standby lets a standby stream from a physical slot until the end of the test.
func (p *place) standby(name string) *confirming {
	p.T.Helper()
	conn, err := pgconn.Connect(p.T.Context(), p.DSN+"&replication=true")
	require.NoError(p.T, err)
	at, err := pglogrepl.IdentifySystem(p.T.Context(), conn)
	require.NoError(p.T, err)
	require.NoError(p.T, pglogrepl.StartReplication(p.T.Context(), conn, name, at.XLogPos,
		pglogrepl.StartReplicationOptions{Mode: pglogrepl.PhysicalReplication}))
	c := &confirming{}
	received := at.XLogPos
	p.reads(conn, func(ctx context.Context, data []byte) error {
		if data[0] == pglogrepl.XLogDataByteID {
			x, err := pglogrepl.ParseXLogData(data[1:])
			if err != nil {
				return err
			}
			received = x.WALStart + pglogrepl.LSN(len(x.WALData))
		}
		if c.frozen.Load() {
			return nil
		}
		return pglogrepl.SendStandbyStatusUpdate(ctx, conn, pglogrepl.StandbyStatusUpdate{WALWritePosition: received})
	})
	return c
}

// streams reads from the slot of the test and confirms what it is sent, as the relay does.
func (p *place) streams(login postgres.Config) {
	p.T.Helper()
	conn := p.Reads(login, p.Name)
	p.reads(conn, func(ctx context.Context, data []byte) error {
		if data[0] != pglogrepl.PrimaryKeepaliveMessageByteID {
			return nil
		}
		k, err := pglogrepl.ParsePrimaryKeepaliveMessage(data[1:])
		if err != nil {
			return err
		}
		return pglogrepl.SendStandbyStatusUpdate(ctx, conn, pglogrepl.StandbyStatusUpdate{WALWritePosition: k.ServerWALEnd})
	})
}

// reads calls each with each message of a stream, until the end of the test.
func (p *place) reads(conn *pgconn.PgConn, each func(ctx context.Context, data []byte) error) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		defer conn.Close(context.Background())
		for ctx.Err() == nil {
			message, err := conn.ReceiveMessage(ctx)
			if data, ok := message.(*pgproto3.CopyData); ok {
				err = each(ctx, data.Data)
			}
			if err != nil && ctx.Err() == nil {
				p.T.Error(err)
				return
			}
		}
	})
	p.T.Cleanup(func() { cancel(); running.Wait() })
}

// writes commits one transaction after the other until it is stopped, or the test ends.
func (p *place) writes() (stop func()) {
	p.T.Helper()
	conn := parts.Connect(p.T, p.DSN)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		for id := 1; ctx.Err() == nil; id++ {
			_, err := conn.Exec(ctx, "INSERT INTO outbox VALUES ($1, 'x')", id)
			if err != nil && ctx.Err() == nil {
				p.T.Error(err)
				return
			}
		}
	})
	stop = func() { cancel(); running.Wait() }
	p.T.Cleanup(stop)
	return stop
}
