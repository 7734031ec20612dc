package auditor

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/postrider/postrider/internal/audit"
	"github.com/postrider/postrider/internal/exit"
	"github.com/postrider/postrider/router"
)

// writeLog is a file with a line of JSON for each event that was committed, the events of a key in
// the order of their commits:
//
//	{"id": "6f1c", "key": "order 1", "transaction": 812, "time": "2026-01-31T12:00:00Z"}
//
// Only the id is needed. It is the audit's Written.
type writeLog struct {
	path         string
	since, until time.Time
}

// logLine is one line. Numbers stand for their digits.
type logLine struct {
	ID          json.RawMessage `json:"id"`
	Key         json.RawMessage `json:"key"`
	Transaction uint64          `json:"transaction"`
	Time        time.Time       `json:"time"`
}

// maxLogLine bounds a line, in bytes.
const maxLogLine = 1 << 20

// recordsOfLogSince returns the earliest time that records of lines have whose time is since then;
// zero: any. A line has no column that could be that of the record's time.
func recordsOfLogSince(since time.Time, rules []router.Config) time.Time {
	for i := range rules {
		if rules[i].FieldTimestamp != "" {
			return time.Time{}
		}
	}
	return since
}

func (w *writeLog) Names() []string { return []string{w.path} }
func (w *writeLog) Order() string   { return "line" }

// Count is that of audit.Written.
func (w *writeLog) Count(ctx context.Context) (n int64, err error) {
	err = w.lines(ctx, func(int64, []byte) error { n++; return nil })
	return n, err
}

// Rows is that of audit.Written.
func (w *writeLog) Rows(ctx context.Context, each func(*audit.Row) error) error {
	return w.lines(ctx, func(number int64, line []byte) error {
		var l logLine
		if err := json.Unmarshal(line, &l); err != nil {
			return fmt.Errorf("%s:%d: %w", w.path, number, err)
		}
		id := audit.PlainText(l.ID)
		if id == nil {
			return fmt.Errorf(`%s:%d: there is no "id"`, w.path, number)
		}
		if l.Time.IsZero() && (!w.since.IsZero() || !w.until.IsZero()) {
			return fmt.Errorf(`%s:%d: there is no "time", which --since and --until need`, w.path,
				number)
		}
		judged := !l.Time.Before(w.since) && (w.until.IsZero() || l.Time.Before(w.until))
		return each(&audit.Row{ID: id, Key: audit.PlainText(l.Key), Transaction: l.Transaction,
			Judged: judged})
	})
}

func (w *writeLog) lines(ctx context.Context, each func(number int64, line []byte) error) error {
	file, err := os.Open(w.path)
	if err != nil {
		return &exit.Error{Code: exit.Config, Err: fmt.Errorf("read the write log: %w", err)}
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(make([]byte, 64<<10), maxLogLine)
	for number := int64(1); lines.Scan(); number++ {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		if err := each(number, lines.Bytes()); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read the write log %s: %w", w.path, err)
	}
	return nil
}
