package replication

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/rs/zerolog"

	"github.com/postrider/postrider/internal/postgres"
)

// Stream is one connection that replicates one slot. Open it, Run it once, then Finish it.
type Stream struct {
	conn      *pgconn.PgConn
	wire      *wire
	socket    *quietConn // nil: it cannot be quiet
	secure    bool       // with TLS
	last      lastRead
	decoder   *decoder
	positions positions
	schedule  schedule
	pace      pace
	identity  Identity
	acked     func() pglogrepl.LSN
	log       zerolog.Logger
	now       func() time.Time

	between int // bytes read since the last event; see Event.Bytes

	received  atomic.Uint64 // copy of positions.received, for others to read
	confirmed atomic.Uint64 // copy of positions.flushed
	bytes     atomic.Uint64 // read from the connection
}

// SeedLSN is the slot's confirmed position when the stream was opened: where the caller's watermark starts.
func (s *Stream) SeedLSN() pglogrepl.LSN { return s.positions.seed }

// Identity is that of the server the stream is connected to.
func (s *Stream) Identity() Identity { return s.identity }

// MaxRowBytes is the limit over which an event is Oversize.
func (s *Stream) MaxRowBytes() int64 { return s.wire.max }

// ReceivedLSN is the newest position read. Safe for concurrent use.
func (s *Stream) ReceivedLSN() pglogrepl.LSN { return pglogrepl.LSN(s.received.Load()) }

// ConfirmedFlushLSN is the flush position as last sent. Safe for concurrent use.
func (s *Stream) ConfirmedFlushLSN() pglogrepl.LSN { return pglogrepl.LSN(s.confirmed.Load()) }

// ReceivedBytes counts what was read from the connection. Safe for concurrent use.
func (s *Stream) ReceivedBytes() uint64 { return s.bytes.Load() }

// Open connects, reads the slot's confirmed position and starts to replicate from there. pg must ask for a replication
// connection (replication=database). Errors wrap the sentinels of this package or are pgconn's.
func Open(ctx context.Context, pg *pgconn.Config, cfg Config, slot string, log zerolog.Logger) (*Stream, error) {
	return open(ctx, pg, cfg, slot, log, func(context.Context, *pgconn.PgConn) error { return nil })
}

// OpenTemporary is Open with a slot that is made for this connection and ends with it: it sees what commits from now on.
func OpenTemporary(ctx context.Context, pg *pgconn.Config, cfg Config, slot string, log zerolog.Logger) (*Stream, error) {
	return open(ctx, pg, cfg, slot, log, func(ctx context.Context, conn *pgconn.PgConn) error {
		// The grammar with the action as a word is understood by all versions from 14.
		_, err := pglogrepl.CreateReplicationSlot(ctx, conn, quoteIdentifier(slot), "pgoutput",
			pglogrepl.CreateReplicationSlotOptions{Temporary: true, SnapshotAction: "NOEXPORT_SNAPSHOT"})
		if err != nil {
			return fmt.Errorf("create temporary slot %q: %w", slot, err) // why, package slot finds out
		}
		return nil
	})
}

func open(ctx context.Context, pg *pgconn.Config, cfg Config, slot string, log zerolog.Logger,
	prepare func(context.Context, *pgconn.PgConn) error) (*Stream, error) {
	s := &Stream{decoder: newDecoder(), log: log, now: time.Now}
	s.decoder.transactionalOnly = cfg.TransactionalOnly
	s.decoder.witness, s.decoder.unread = cfg.Witness, cfg.Witness && len(cfg.Messages) == 0
	s.schedule.interval = cfg.StatusInterval
	s.acked = s.SeedLSN // until Run knows better: a stream may be finished without having run
	pg = pg.Copy()
	postgres.PreferAnswering(ctx, pg)
	pg.DialFunc = quietly(pg.DialFunc, func(c *quietConn) { s.socket = c }) // of several hosts tried, the last is the one connected to
	build := pg.BuildFrontend
	pg.BuildFrontend = func(r io.Reader, w io.Writer) *pgproto3.Frontend {
		s.wire = newWire(r, cfg.MaxRowBytes) // like the socket
		return build(s.wire, w)
	}
	pg.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) { s.notice(n) }
	conn, err := pgconn.ConnectConfig(ctx, pg)
	if err != nil {
		return nil, postgres.Error(err)
	}
	s.conn = conn
	_, s.secure = conn.Conn().(*tls.Conn)
	if err = prepare(ctx, conn); err == nil {
		err = s.start(ctx, cfg, slot)
	}
	if err != nil {
		closeCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(closeCtx)
		return nil, err
	}
	return s, nil
}

func (s *Stream) start(ctx context.Context, cfg Config, slot string) error {
	s.identity.ServerVersion = s.conn.ParameterStatus("server_version")
	if strings.Contains(s.identity.ServerVersion, "-YB-") {
		// Its keepalive positions are reported to run ahead of undelivered commits (yugabyte-db issue 33418).
		return fmt.Errorf("%w but YugabyteDB %s, whose keepalives can't be trusted", ErrNotPostgreSQL, s.identity.ServerVersion)
	}
	if err := s.readSlot(ctx, slot); err != nil {
		return err
	}
	if err := s.identify(ctx); err != nil {
		return err
	}
	// After the slot was read, so that whoever held it last cannot have moved it on meanwhile.
	// A standby may have copied the slot, and not yet have replayed as far; it does not let it be read either.
	if written := s.identity.WrittenLSN; s.positions.seed > written && s.conn.ParameterStatus("in_hot_standby") != "on" {
		return fmt.Errorf("slot %q is confirmed up to %s, and the server has written only up to %s: it comes from another server or another branch "+
			"of its history, and rows that are written until then would never be sent: %w", slot, s.positions.seed, written, ErrSlotUnusable)
	}
	if err := s.raiseWorkMem(ctx, cfg.LogicalDecodingWorkMem); err != nil {
		return err
	}
	args := []string{
		"proto_version '1'",
		"publication_names " + quoteLiteral(quoteIdentifier(cfg.Publication)),
	}
	if len(cfg.Messages) > 0 || cfg.Witness {
		args = append(args, "messages 'true'")
	}
	// 0/0: the server starts at the confirmed position of the slot.
	opts := pglogrepl.StartReplicationOptions{Mode: pglogrepl.LogicalReplication, PluginArgs: args}
	if err := pglogrepl.StartReplication(ctx, s.conn, quoteIdentifier(slot), 0, opts); err != nil {
		return fmt.Errorf("start replication of slot %q: %w", slot, startError(err))
	}
	return nil
}

// identify asks which cluster this is, and which branch of its history.
func (s *Stream) identify(ctx context.Context) error {
	id, err := pglogrepl.IdentifySystem(ctx, s.conn)
	if err != nil {
		return fmt.Errorf("identify system: %w", startError(err))
	}
	s.identity.SystemID, s.identity.Timeline, s.identity.WrittenLSN = id.SystemID, id.Timeline, id.XLogPos
	if id.Timeline == 1 {
		return nil // the first has no history
	}
	file, err := pglogrepl.TimelineHistory(ctx, s.conn, id.Timeline)
	switch {
	case err != nil && postgres.SQLState(err) == "":
		return fmt.Errorf("read timeline history: %w", err)
	case err != nil: // without it less is known of the server, but nothing is wrong with it
		s.log.Warn().Err(err).Int32("timeline", id.Timeline).Msg("timeline history not read")
		return nil
	}
	s.identity.History, err = parseHistory(file.Content)
	return err
}

// readSlot seeds the watermark, on the connection that will stream, so that nothing can lie between.
func (s *Stream) readSlot(ctx context.Context, slot string) error {
	sql := "SELECT confirmed_flush_lsn, two_phase, wal_status FROM pg_catalog.pg_replication_slots WHERE slot_name = " + quoteLiteral(slot)
	results, err := s.conn.Exec(ctx, sql).ReadAll()
	if err != nil {
		return fmt.Errorf("read slot %q: %w", slot, startError(err))
	}
	if len(results) != 1 || len(results[0].Rows) == 0 {
		return fmt.Errorf("slot %q: %w", slot, ErrSlotMissing)
	}
	row := results[0].Rows[0]
	if len(row) != 3 {
		return fmt.Errorf("%w: slot %q with %d columns", ErrProtocol, slot, len(row))
	}
	switch {
	case string(row[2]) == "lost":
		return fmt.Errorf("slot %q, confirmed up to %s: %w", slot, row[0], ErrSlotLost)
	case string(row[1]) == "t":
		return fmt.Errorf("slot %q decodes two-phase transactions at PREPARE: %w", slot, ErrSlotUnusable)
	case row[0] == nil:
		return fmt.Errorf("slot %q has no confirmed position, its creation is not finished: %w", slot, ErrSlotInUse)
	}
	seed, err := postgres.ParseLSN(string(row[0]))
	if err != nil || seed == 0 {
		return fmt.Errorf("%w: confirmed_flush_lsn %q of slot %q", ErrProtocol, row[0], slot)
	}
	s.positions = positions{seed: seed, received: seed}
	s.received.Store(uint64(seed))
	s.confirmed.Store(uint64(seed))
	return nil
}

// Run reads, decodes and hands over batches until an error ends the stream, ctx ends, or stop ends. It closes out.
//
// When stop ends, Run goes on to the Commit of the open transaction, begins no other and returns nil. acked is the caller's
// watermark; it is called from this goroutine only. Statuses leave on time also while out has no room.
func (s *Stream) Run(ctx, stop context.Context, out chan<- *Batch, acked func() pglogrepl.LSN) error {
	defer close(out)
	defer s.socket.narrowed(false)
	s.acked = acked
	// Ends a read that waits: a deadline in the past, since the connection itself must stay usable for the final status.
	interrupt := func() { _ = s.conn.Conn().SetReadDeadline(time.Unix(1, 0)) }
	defer onDone(ctx, interrupt)()
	defer onDone(stop, interrupt)()

	s.schedule.last = s.now()
	spare := make(batches, cap(out)+2) // besides those queued, one is filled and one is with the receiver
	for {
		b := spare.take()
		stopped, err := s.decodeBuffered(b, stop)
		if len(b.Events) > 0 {
			if handErr := s.handOver(ctx, out, b); handErr != nil {
				return handErr
			}
		} else {
			b.Release()
		}
		if err != nil || stopped {
			return err
		}
		if err := s.statusIfDue(); err != nil {
			return err
		}
		if err := s.read(ctx, stop); err != nil {
			return err
		}
	}
}

// onDone calls f once ctx ends. What it returns takes that back, and waits for f if it is too late for that.
func onDone(ctx context.Context, f func()) (cancel func()) {
	called := make(chan struct{})
	stop := context.AfterFunc(ctx, func() { defer close(called); f() })
	return func() {
		if !stop() {
			<-called
		}
	}
}

// decodeBuffered decodes every whole message that has been read. stopped: stop ended and no transaction is open.
func (s *Stream) decodeBuffered(b *Batch, stop context.Context) (stopped bool, err error) {
	stopping := stop.Err() != nil
	s.last.onlyKeepalives = true
	for !stopping || s.decoder.open {
		typ, body, over, ok, err := s.wire.next()
		if err != nil {
			return false, fmt.Errorf("transaction that commits at %s, row %d: %w", s.decoder.lsn, s.decoder.index, err)
		}
		if !ok {
			return false, nil
		}
		if err := s.message(typ, body, over, b); err != nil {
			return false, err
		}
	}
	return true, nil
}

// message handles one protocol message of the running stream. over is the length of one that was too long, of which body is the beginning.
func (s *Stream) message(typ byte, body []byte, over int64, b *Batch) error {
	switch typ {
	case 'd':
		return s.copyData(body, over, b)
	case 'E':
		var m pgproto3.ErrorResponse
		if err := m.Decode(body); err != nil {
			return fmt.Errorf("%w: error response", ErrProtocol)
		}
		at := s.positions.received.String()
		if s.decoder.open {
			at += fmt.Sprintf(", in the transaction that commits at %s, behind %d rows of it", s.decoder.lsn, s.decoder.index)
		}
		return fmt.Errorf("replication stream at %s: %w", at, streamError(pgconn.ErrorResponseToPgError(&m)))
	case 'N':
		var m pgproto3.NoticeResponse
		if err := m.Decode(body); err != nil {
			return fmt.Errorf("%w: notice", ErrProtocol)
		}
		n := pgconn.Notice(*pgconn.ErrorResponseToPgError((*pgproto3.ErrorResponse)(&m)))
		s.notice(&n)
		// From 18 a missing publication is only this warning, and the rows that follow are left out. A standby of synchronized_standby_slots that
		// holds the stream up is one of the same code, again and again, and nothing is left out; it comes from another of the server's files.
		if n.SeverityUnlocalized == "WARNING" && n.Code == "55000" && n.File != "slot.c" {
			return fmt.Errorf("replication stream at %s: server says %q: %w", s.positions.received, n.Message, ErrPublicationMissing)
		}
	case 'c', 'C', 'Z': // CopyDone, CommandComplete, ReadyForQuery: a walsender ends so only at shutdown
		return fmt.Errorf("server ended the replication stream at %s: %w", s.positions.received, ErrServerStopping)
	}
	return nil
}

func (s *Stream) copyData(body []byte, over int64, b *Batch) error {
	switch {
	case len(body) >= 25 && body[0] == 'w':
		s.last.onlyKeepalives = false
		// The three positions in front of the payload are no progress: for relation messages they are zero.
		sent := int64(binary.BigEndian.Uint64(body[17:25]))
		var err error
		events := len(b.Events)
		if over > 0 {
			err = s.decoder.beginning(body[25:], over, sent, b)
		} else {
			err = s.decoder.decode(body[25:], sent, b)
		}
		if err != nil {
			return fmt.Errorf("decode after %s: %w", s.positions.received, err)
		}
		if body[25] != 'M' { // which may have no commit
			s.last.behind = postgresTime(sent).Sub(s.decoder.time) > staleness // both by the server's clock
		}
		s.between = min(s.between, ChunkBytes) + len(body)
		b.lies(events, s.wire.chunk)
		if n := len(b.Events); n > events {
			b.Events[n-1].Bytes, s.between = s.between, 0
		}
		s.schedule.progressed()
		s.seen(b)
	case len(body) == 18 && body[0] == 'k':
		c := cursor{rest: body[1:]}
		end := pglogrepl.LSN(c.uint64())
		c.uint64() // server clock
		if c.byte() != 0 {
			s.schedule.asked()
		}
		// Inside a transaction its position says nothing about the rows still to come. One below the seed can
		// come right after the start.
		if !s.decoder.open && end > s.positions.received {
			b.idle(end)
			s.seen(b)
		}
		if s.schedule.serverStopping() && s.acked() < s.positions.received {
			return fmt.Errorf("server asked %d times for a confirmation that the sink holds up: %w", s.schedule.requests, ErrServerStopping)
		}
	default:
		return fmt.Errorf("%w: copy data of %d bytes", ErrProtocol, len(body))
	}
	return nil
}

// seen moves the received position to the last end in b.
func (s *Stream) seen(b *Batch) {
	if n := len(b.Events); n > 0 {
		if e := b.Events[n-1]; (e.Kind == Commit || e.Kind == Idle) && e.LSN > s.positions.received {
			s.positions.received = e.LSN
			s.received.Store(uint64(e.LSN))
		}
	}
}

// handOver waits until the receiver has room. Statuses go on.
func (s *Stream) handOver(ctx context.Context, out chan<- *Batch, b *Batch) error {
	select {
	case out <- b:
		return nil
	default:
	}
	timer := time.NewTimer(min(brief, time.Until(s.wake())))
	defer timer.Stop()
	for {
		select {
		case out <- b:
			return nil
		case <-timer.C:
			s.socket.narrowed(false)
			if err := s.statusIfDue(); err != nil {
				return err
			}
			timer.Reset(time.Until(s.wake()))
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// wake is when Run has to look at the schedule again.
func (s *Stream) wake() time.Time {
	_, flush := s.positions.status(s.acked())
	return s.schedule.wake(s.now(), flush > s.positions.flushed, s.positions.received > s.positions.flushed)
}

func (s *Stream) statusIfDue() error {
	_, flush := s.positions.status(s.acked())
	now := s.now()
	if now.Before(s.schedule.due(flush > s.positions.flushed)) {
		return nil
	}
	return s.sendStatus(now)
}

func (s *Stream) sendStatus(now time.Time) error {
	write, flush := s.positions.status(s.acked())
	if flush > s.positions.flushed {
		s.schedule.progressed()
	}
	// apply like flush: with synchronous_commit=remote_apply the two must not differ.
	err := pglogrepl.SendStandbyStatusUpdate(context.Background(), s.conn, pglogrepl.StandbyStatusUpdate{
		WALWritePosition: write, WALFlushPosition: flush, WALApplyPosition: flush, ClientTime: now,
	})
	if err != nil {
		return fmt.Errorf("send status with flush %s: %w", flush, err)
	}
	s.positions.flushed = flush
	s.confirmed.Store(uint64(flush))
	s.schedule.sent(now)
	return nil
}

func (s *Stream) notice(n *pgconn.Notice) {
	s.log.Debug().Str("severity", n.Severity).Str("code", n.Code).Str("reason", n.Message).Msg("server notice received")
}

func quoteIdentifier(s string) string { return `"` + strings.ReplaceAll(s, `"`, `""`) + `"` }

func quoteLiteral(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }
