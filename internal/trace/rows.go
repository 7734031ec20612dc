package trace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/postrider/postrider/internal/check"
	"github.com/postrider/postrider/internal/exit"
	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/router/connect"
	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/sink/kafka"
	"github.com/postrider/postrider/sink/kafka/producer"
	"github.com/postrider/postrider/slot"
)

// clockMargin is how much earlier than its row a record may be, by the clocks of writers, server
// and brokers.
const clockMargin = 5 * time.Minute

// zoneMargin is how far a time without a zone may be from UTC, which it counts as.
const zoneMargin = 24 * time.Hour

// readRows reads the rows of all tables, in one snapshot.
func (s *search) readRows(ctx context.Context) error {
	if _, err := s.conn.Exec(ctx, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"); err != nil {
		return postgres.Error(err)
	}
	tracked, err := postgres.One[bool](ctx, s.conn,
		`SELECT pg_catalog.current_setting('track_commit_timestamp')::boolean`)
	if err != nil {
		return fmt.Errorf("read setting track_commit_timestamp: %w", err)
	}
	owners, err := slot.OIDs(ctx, s.conn, s.cfg.Replication.Tables)
	if err != nil {
		return err
	}
	var unfit error
	fits := 0
	for _, t := range s.tables {
		err := s.readTable(ctx, t, owners, tracked)
		if wrong := (errUnfit{}); errors.As(err, &wrong) {
			unfit = err
			// An error ends a transaction.
			if _, err := s.conn.Exec(ctx, "ROLLBACK"); err != nil {
				return postgres.Error(err)
			}
			_, err := s.conn.Exec(ctx, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
			if err != nil {
				return postgres.Error(err)
			}
			continue
		}
		if err != nil {
			return err
		}
		fits++
	}
	if fits == 0 && unfit != nil {
		what := fmt.Sprintf("no event has the id %q", s.ID)
		if s.Key != nil {
			what = fmt.Sprintf("no event has the key %q", *s.Key)
		}
		return exit.Usagef("%s: %w", what, unfit)
	}
	_, err = s.conn.Exec(ctx, "COMMIT")
	return postgres.Error(err)
}

// The columns of readTable behind those of the table.
const (
	ofPartition = iota
	ofXID
	ofAge
	ofCommit
	ofFilter
	furtherColumns
)

func (s *search) readTable(ctx context.Context, t *table, owners map[uint32]string,
	tracked bool) error {
	where, values, err := t.condition(&s.Request)
	if err != nil {
		return err
	}
	commit, filter := "NULL::text", "true"
	if tracked {
		commit = "pg_catalog.pg_xact_commit_timestamp(xmin)::text"
	}
	if t.filter != "" {
		filter = "((" + t.filter + ") IS TRUE)"
	}
	query := fmt.Sprintf("SELECT %s, tableoid::text, xmin::text, pg_catalog.age(xmin)::text, %s, "+
		"%s::text FROM %s WHERE %s ORDER BY pg_catalog.age(xmin), ctid DESC LIMIT %d",
		check.ColumnList(t.rel), commit, filter, t.from, where, maxRows+1)
	if err := s.refuseScan(ctx, t, query, values); err != nil {
		return err
	}
	// One row at a time: payloads may be large.
	rows := s.conn.PgConn().ExecParams(ctx, query, values, nil, nil, nil)
	var found []*event
	for rows.NextRow() {
		e, err := s.rowEvent(t, rows.Values(), owners)
		if err != nil {
			_, _ = rows.Close()
			return err
		}
		if e != nil {
			found = append(found, e)
		}
	}
	if _, err := rows.Close(); err != nil {
		return s.unsearchable(t, err)
	}
	if len(found) > maxRows {
		found, s.result.More = found[:maxRows], true
	}
	s.events = append(s.events, found...)
	return s.namePartitions(ctx, found)
}

// rowEvent makes an event of a row, whose bytes it does not keep; nil: the row belongs to another
// table.
func (s *search) rowEvent(t *table, values [][]byte, owners map[uint32]string) (*event, error) {
	n := len(t.rel.Columns)
	row, further := values[:n], values[n:n+furtherColumns]
	oid, err1 := strconv.ParseUint(string(further[ofPartition]), 10, 32)
	xid, err2 := strconv.ParseUint(string(further[ofXID]), 10, 32)
	age, err3 := strconv.ParseInt(string(further[ofAge]), 10, 64)
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, err
	}
	if owner := owners[uint32(oid)]; owner != "" && owner != t.name {
		return nil, nil // of a partition that is configured itself
	}
	e := &event{table: t, age: age, hash: -1, partition: -1,
		filtered: string(further[ofFilter]) != "true"}
	e.ID = string(row[t.id])
	e.Row = &Row{Table: t.name, XID: uint32(xid), Updates: t.updates}
	if uint32(oid) != t.rel.OID {
		e.Row.Partition = strconv.FormatUint(oid, 10) // until namePartitions
	}
	for _, c := range []struct {
		column int
		of     string
	}{{t.id, "id"}, {t.key, "key"}, {t.topic, "topic"}, {t.kind, "type"}, {t.time, "time"}} {
		if c.column >= 0 {
			e.Row.Columns = append(e.Row.Columns,
				Column{t.rel.Columns[c.column].Name, c.of, textOf(row[c.column])})
		}
	}
	e.committed = moment(further[ofCommit])
	if t.time >= 0 {
		e.inserted = moment(row[t.time])
	}
	s.route(e, row)
	return e, nil
}

// route has the router say where the row goes, by the present configuration.
func (s *search) route(e *event, row [][]byte) {
	t := e.table
	m, err := t.router.Route(&replication.Event{Kind: replication.Insert, XID: e.Row.XID,
		Relation: t.rel, Values: row, Time: e.committed})
	e.Route = &Route{}
	if m == nil || err != nil {
		if e.refused = err; err != nil {
			e.Route.Error = err.Error()
		}
		return
	}
	e.topic, e.key, e.size = m.Topic, bytes.Clone(m.Key), kafka.RecordSize(m)
	e.Route.Topic, e.Route.Key = m.Topic, textOf(m.Key)
	e.headers = []string{t.rule.HeaderID}
	for _, h := range m.Headers {
		if h.Key == t.rule.HeaderID && e.idValue == nil {
			e.idValue = bytes.Clone(h.Value)
		}
	}
	switch {
	case m.Partition != sink.ByKey:
		e.partition = m.Partition
		e.Route.Partition = &e.partition
	case m.Key != nil:
		e.hash = producer.KeyHash(m.Key)
	}
	e.since = e.noEarlier(m)
}

// noEarlier is a time before which no record of a row can be; zero: not known. The commit time is
// none: it may be that of an update.
func (e *event) noEarlier(m *sink.Message) (first time.Time) {
	inserted := e.inserted
	if t := e.table; t.time >= 0 && t.rel.Columns[t.time].TypeOID != pgtype.TimestamptzOID &&
		!inserted.IsZero() {
		inserted = inserted.Add(-zoneMargin)
	}
	times := []time.Time{inserted, timeOfID(e.ID)}
	if e.table.rule.FieldTimestamp != "" {
		times = append(times, m.Timestamp)
	}
	for _, at := range times {
		if !at.IsZero() && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	if !first.IsZero() {
		first = first.Add(-clockMargin)
	}
	return first
}

// timeOfID is when an id was made, if it is a UUID of version 7; else zero.
func timeOfID(id string) time.Time {
	u, err := uuid.Parse(id)
	if err != nil || u.Version() != 7 {
		return time.Time{}
	}
	seconds, nanoseconds := u.Time().UnixTime()
	return time.Unix(seconds, nanoseconds).UTC()
}

// moment is the time in PostgreSQL's text form; zero: none, or infinite.
func moment(text []byte) time.Time {
	if text == nil {
		return time.Time{}
	}
	m, err := connect.ParseMoment(text)
	if err != nil || m.Infinity != 0 {
		return time.Time{}
	}
	return time.UnixMicro(m.EpochMicros()).UTC()
}

func textOf(b []byte) *string {
	if b == nil {
		return nil
	}
	return new(string(b))
}

// namePartitions replaces the OIDs of partitions by their names.
func (s *search) namePartitions(ctx context.Context, events []*event) error {
	names := map[string]string{}
	for _, e := range events {
		oid := e.Row.Partition
		if oid == "" {
			continue
		}
		if _, known := names[oid]; !known {
			name, err := postgres.One[string](ctx, s.conn, `
				SELECT coalesce(pg_catalog.max(pg_catalog.format('%s.%s', n.nspname, c.relname)), $1)
				FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
				WHERE c.oid = $1::text::oid`, oid)
			if err != nil && !errors.As(err, new(*pgconn.PgError)) {
				return err
			}
			names[oid] = name
		}
		e.Row.Partition = names[oid]
	}
	return nil
}
