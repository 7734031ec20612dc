package check

import (
	"context"
	"fmt"
	"strings"

	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/slot"
)

// keepSize compares the limit of what a slot may keep with what else keeps WAL, and with the disk.
func (c *serverCheck) keepSize(ctx context.Context) error {
	text, err := c.setting(ctx, "max_slot_wal_keep_size")
	if err != nil {
		return err
	}
	var sizes [3]int64
	for i, name := range []string{"max_slot_wal_keep_size", "wal_keep_size", "max_wal_size"} {
		if sizes[i], err = c.bytes(ctx, name); err != nil {
			return err
		}
	}
	slots, err := slot.List(ctx, c.conn)
	if err != nil {
		return err
	}
	k := keepSizes{limit: sizes[0], keep: sizes[1], wal: sizes[2], volume: c.VolumeSize}
	for _, s := range slots {
		if s.RetainedBytes != nil && !s.Lost() {
			k.kept = max(k.kept, *s.RetainedBytes)
		}
	}
	c.add(k.judge(text))
	return nil
}

// keepSizes are in bytes.
type keepSizes struct {
	limit  int64 // max_slot_wal_keep_size; negative: none
	keep   int64 // wal_keep_size
	wal    int64 // max_wal_size
	volume int64 // zero: not known
	kept   int64 // for the slot of the server that keeps the most, which a lower limit would take
}

// judge takes the limit as the server prints it.
func (k keepSizes) judge(text string) Finding {
	f := okFinding("max_slot_wal_keep_size", "max_slot_wal_keep_size", text)
	limit := k.limit
	if k.keep > limit && limit >= 0 {
		limit = k.keep // the server takes the larger
		f.Observed += fmt.Sprintf("; wal_keep_size, %d MB, is larger and counts in its place",
			k.keep>>20)
	}
	least := k.wal + 2*k.kept
	switch {
	case limit < 0 && k.volume <= 0:
		f.Severity, f.Required = SeverityWarning, "a limit below the free space of the disk: without "+
			"one a relay that is stopped for long fills it"
		f.Fix = "SHOW data_directory; -- df -h there says what is free; half of that is a good limit, " +
			"here for 100 GB:\n" + setKeepSize(max(50<<30, least))
	case limit < 0:
		f.Severity, f.Required = SeverityWarning, "a limit below the free space of the disk: without "+
			"one a relay that is stopped for long fills it"
		f.Fix = k.halfOfVolume(least)
	case k.volume > 0 && limit+k.wal > k.volume:
		f.Severity = SeverityWarning
		f.Required = fmt.Sprintf("with max_wal_size, %d MB, less than monitor.volume_size, %d MB: "+
			"else the disk is full before the slot is given up", k.wal>>20, k.volume>>20)
		f.Fix = k.halfOfVolume(least)
	case limit <= k.wal:
		f.Severity = SeverityInfo
		f.Required = fmt.Sprintf("more than max_wal_size, %d MB: a checkpoint can come when less than "+
			"that was written, so a short stop can lose the slot, and wal_status "+
			"goes from reserved to unreserved at once", k.wal>>20)
		f.Fix = setKeepSize(4*k.wal) + " -- if the disk has room"
	}
	return f
}

// halfOfVolume is a limit that leaves the other half free, unless it would take a slot of the
// server.
func (k keepSizes) halfOfVolume(least int64) string {
	half := (k.volume - k.wal) / 2
	if half < least {
		return fmt.Sprintf("a larger disk for pg_wal, or a smaller max_wal_size: half of what is left "+
			"beside it, %d MB, is no limit for slots that keep %d MB now",
			max(0, half)>>20, k.kept>>20)
	}
	fix := setKeepSize(half) + " -- or a larger disk"
	if k.keep > half {
		fix += "; and a smaller wal_keep_size"
	}
	return fix
}

func setKeepSize(bytes int64) string {
	return fmt.Sprintf("ALTER SYSTEM SET max_slot_wal_keep_size = '%dMB'; SELECT pg_reload_conf();",
		bytes>>20)
}

// idleTimeout is from 18 on.
func (c *serverCheck) idleTimeout(ctx context.Context) error {
	idle, err := c.setting(ctx, "idle_replication_slot_timeout")
	if err != nil || idle == "" {
		return err
	}
	f := okFinding("idle_replication_slot_timeout", "idle_replication_slot_timeout", idle)
	if idle != "0" {
		f.Severity, f.Required = SeverityWarning, "0, or longer than the relay is ever stopped: after "+
			"it the slot is lost"
		f.Fix = "ALTER SYSTEM SET idle_replication_slot_timeout = 0; SELECT pg_reload_conf();"
	}
	c.add(f)
	return nil
}

func (c *serverCheck) synchronous(ctx context.Context) error {
	names, err := c.setting(ctx, "synchronous_standby_names")
	if err != nil {
		return err
	}
	f := okFinding("synchronous_standby_names", "synchronous_standby_names", names)
	if names == "" {
		f.Observed = "empty"
	}
	if own := c.conn.Config().RuntimeParams["application_name"]; strings.Contains(names, "*") ||
		namesStandby(names, own) {
		f.Severity = SeverityWarning
		f.Required = "the standbys by name: with * the relay becomes a synchronous standby, and " +
			"commits wait for it"
		f.Fix = "SELECT application_name, state FROM pg_stat_replication; -- then with those of the " +
			"standbys: ALTER SYSTEM SET synchronous_standby_names = 'NAME, ...'; SELECT pg_reload_conf();"
		if !strings.Contains(names, "*") {
			f.Required = "the standbys alone: " + own + " is the relay's application_name, and commits " +
				"wait for it"
			f.Fix = "in postgres.url: application_name=postrider_relay, or another name that is not in " +
				"the list; then start the relay again"
		}
	}
	c.add(f)
	return nil
}

// namesStandby looks for a name among those of FIRST 1 (a, "b c") and the like.
func namesStandby(setting, name string) bool {
	if open := strings.IndexByte(setting, '('); open >= 0 {
		setting = strings.TrimSuffix(strings.TrimSpace(setting[open+1:]), ")")
	}
	for _, n := range splitList(setting) {
		if strings.EqualFold(n, name) {
			return true
		}
	}
	return false
}

// messages reports who may forge events: everyone may emit logical messages unless that was
// revoked.
func (c *serverCheck) messages(ctx context.Context) error {
	if !c.Messages {
		return nil
	}
	var open []string
	err := c.conn.QueryRow(ctx, `
		SELECT coalesce(pg_catalog.array_agg('pg_catalog.' || p.oid::regprocedure::text), '{}') FROM pg_catalog.pg_proc p
		WHERE p.proname = 'pg_logical_emit_message' AND p.pronamespace = 'pg_catalog'::pg_catalog.regnamespace::oid
		  AND pg_catalog.has_function_privilege('public', p.oid, 'EXECUTE')`).Scan(&open)
	if err != nil {
		return fmt.Errorf("read rights on pg_logical_emit_message: %w", postgres.Error(err))
	}
	f := okFinding("emit_message", "pg_logical_emit_message", "not executable by PUBLIC")
	if len(open) > 0 {
		f.Severity, f.Observed, f.Required = SeverityWarning, "executable by PUBLIC",
			"executable by the application alone: whoever may call it can forge events"
		f.Fix = "REVOKE EXECUTE ON FUNCTION " + strings.Join(open, ", ") +
			" FROM PUBLIC; -- then GRANT it to the application's role"
	}
	c.add(f)
	return nil
}
