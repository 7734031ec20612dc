package replication

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/rs/zerolog"

	"github.com/postrider/postrider/internal/postgres"
)

// Open connects, reads the slot's confirmed position and starts to replicate from there. pg has
// replication=database, and is not changed. Errors wrap the sentinels of this package or are
// pgconn's. The connection is open until Finish or Abandon.
func Open(ctx context.Context, pg *pgconn.Config, cfg Config, slot string,
	log zerolog.Logger) (*Stream, error) {
	return open(ctx, pg, cfg, slot, log, nil)
}

// OpenTemporary is Open with a new temporary slot, which sends what commits from now on, and which
// the server drops with the connection.
func OpenTemporary(ctx context.Context, pg *pgconn.Config, cfg Config, slot string,
	log zerolog.Logger) (*Stream, error) {
	return open(ctx, pg, cfg, slot, log, func(ctx context.Context, conn *pgconn.PgConn) error {
		// All versions from 14 accept the action as a word.
		_, err := pglogrepl.CreateReplicationSlot(ctx, conn, quoteIdentifier(slot), "pgoutput",
			pglogrepl.CreateReplicationSlotOptions{Temporary: true,
				SnapshotAction: "NOEXPORT_SNAPSHOT"})
		if err != nil {
			return fmt.Errorf("create temporary slot %q: %w", slot, err)
		}
		return nil
	})
}

func open(ctx context.Context, pg *pgconn.Config, cfg Config, slot string, log zerolog.Logger,
	prepare func(context.Context, *pgconn.PgConn) error) (*Stream, error) {
	s := &Stream{decoder: newDecoder(), log: log, now: time.Now}
	s.waiting.Store(new(time.Now()))
	s.decoder.transactionalOnly = cfg.TransactionalOnly
	s.decoder.witness, s.decoder.unread = cfg.Witness, cfg.Witness && len(cfg.Messages) == 0
	s.schedule.interval = cfg.StatusInterval
	s.acked = s.SeedLSN // until Run: a stream may be finished without having run
	pg = pg.Copy()
	postgres.PreferAnswering(ctx, pg)
	// Of several hosts tried, the last one is connected: socket and wire are those made last.
	pg.DialFunc = lowWaterDial(pg.DialFunc, func(c *lowWaterConn) { s.socket = c })
	build := pg.BuildFrontend
	pg.BuildFrontend = func(r io.Reader, w io.Writer) *pgproto3.Frontend {
		s.wire = newWire(r, cfg.MaxRowBytes)
		return build(s.wire, w)
	}
	pg.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) { s.notice(n) }
	conn, err := pgconn.ConnectConfig(ctx, pg)
	if err != nil {
		return nil, postgres.Error(err)
	}
	s.conn = conn
	_, s.secure = conn.Conn().(*tls.Conn)
	if prepare != nil {
		err = prepare(ctx, conn)
	}
	if err == nil {
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

// start prepares the connection and sends START_REPLICATION.
func (s *Stream) start(ctx context.Context, cfg Config, slot string) error {
	s.identity.ServerVersion = s.conn.ParameterStatus("server_version")
	if strings.Contains(s.identity.ServerVersion, "-YB-") {
		// Its keepalives are reported to run ahead of undelivered commits (yugabyte-db issue
		// 33418).
		return fmt.Errorf("%w but YugabyteDB %s, whose keepalives can't be trusted",
			ErrNotPostgreSQL, s.identity.ServerVersion)
	}
	if err := s.readSlot(ctx, slot); err != nil {
		return err
	}
	if err := s.identify(ctx); err != nil {
		return err
	}
	// After the slot was read, so that the session before cannot have advanced it meanwhile. A
	// standby may have copied the slot and not replayed as far; it refuses to stream from it.
	if written := s.identity.WrittenLSN; s.positions.seed > written &&
		s.conn.ParameterStatus("in_hot_standby") != "on" {
		return fmt.Errorf("slot %q is confirmed up to %s, and the server has written only up to "+
			"%s: it comes from another server or another branch of its history, and rows that are "+
			"written until then would never be sent: %w", slot, s.positions.seed, written,
			ErrSlotUnusable)
	}
	if err := s.configure(ctx); err != nil {
		return err
	}
	if err := s.raiseWorkMem(ctx, cfg.LogicalDecodingWorkMem); err != nil {
		return err
	}
	args := []string{
		"proto_version '1'",
		"publication_names " + postgres.QuoteText(quoteIdentifier(cfg.Publication)),
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

// identify reads the Identity of the server.
func (s *Stream) identify(ctx context.Context) error {
	id, err := pglogrepl.IdentifySystem(ctx, s.conn)
	if err != nil {
		return fmt.Errorf("identify system: %w", startError(err))
	}
	s.identity.SystemID, s.identity.Timeline, s.identity.WrittenLSN = id.SystemID, id.Timeline,
		id.XLogPos
	if id.Timeline == 1 {
		return nil // the first has no history
	}
	file, err := pglogrepl.TimelineHistory(ctx, s.conn, id.Timeline)
	switch {
	case err != nil && postgres.SQLState(err) == "":
		return fmt.Errorf("read timeline history: %w", err)
	case err != nil: // may be removed from the server; Identity works without it
		s.log.Warn().Err(err).Int32("timeline", id.Timeline).Msg("timeline history not read")
		return nil
	}
	s.identity.History, err = parseHistory(file.Content)
	return err
}

// readSlot reads the confirmed position of the slot, on the connection that will stream.
func (s *Stream) readSlot(ctx context.Context, slot string) error {
	sql := "SELECT confirmed_flush_lsn, two_phase, wal_status FROM " +
		"pg_catalog.pg_replication_slots WHERE slot_name = " + postgres.QuoteText(slot)
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
		return fmt.Errorf("slot %q decodes two-phase transactions at PREPARE: %w", slot,
			ErrSlotUnusable)
	case row[0] == nil:
		return fmt.Errorf("slot %q has no confirmed position, its creation is not finished: %w",
			slot, ErrSlotInUse)
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

// configure replaces what a role, a database or the server may set for the session. A missing
// publication is a warning from 18 on. From 17 on the server ends a walsender whose transaction
// takes longer than transaction_timeout, which is as long as its rows wait to be published: each
// session would publish the first ones again.
func (s *Stream) configure(ctx context.Context) error {
	const sql = "SELECT pg_catalog.set_config(name, CASE name WHEN 'transaction_timeout' " +
		"THEN '0' ELSE 'warning' END, false) FROM pg_catalog.pg_settings " +
		"WHERE name IN ('client_min_messages', 'transaction_timeout')"
	_, err := s.conn.Exec(ctx, sql).ReadAll()
	if err != nil {
		return fmt.Errorf("prepare the connection: %w", startError(err))
	}
	return nil
}

// raiseWorkMem lets the server keep larger transactions in memory while it decodes them for this
// connection: through its disk a transaction of a million rows took a third longer. It is never
// lowered. Every role may set it. Poolers refuse it as a parameter of the connection.
func (s *Stream) raiseWorkMem(ctx context.Context, bytes int64) error {
	if bytes == 0 {
		return nil
	}
	const kiB = 1 << 10 // its unit
	sql := fmt.Sprintf("SELECT pg_catalog.set_config('logical_decoding_work_mem', '%d', false) "+
		"WHERE pg_catalog.pg_size_bytes("+
		"pg_catalog.current_setting('logical_decoding_work_mem')) < %d", bytes/kiB, bytes/kiB*kiB)
	_, err := s.conn.Exec(ctx, sql).ReadAll()
	if postgres.SQLState(err) != "" {
		s.log.Warn().Err(err).Msg("logical_decoding_work_mem not raised: large transactions go " +
			"through the server's disk")
		return nil
	}
	if err != nil {
		return fmt.Errorf("raise logical_decoding_work_mem: %w", startError(err))
	}
	return nil
}

func quoteIdentifier(s string) string { return `"` + strings.ReplaceAll(s, `"`, `""`) + `"` }
