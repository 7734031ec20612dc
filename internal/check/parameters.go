package check

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/slot"
)

func (c *serverCheck) version(context.Context) error {
	c.add(judgeVersion(c.conn.PgConn().ParameterStatus("server_version")))
	return nil
}

var versionNumbers = regexp.MustCompile(`^(\d+)\.(\d+)`)

// healed is, by major version, the minor that fixed what the one before it had broken while fixing
// something else: since these, a change of the catalog is passed on to other transactions once,
// and not again and again (release notes of August 2025; 18 never had it). Up to two minors
// before, it was not passed on at all, and rows of transactions that were open while their table
// was added to the publication were missing.
var healed = map[int]int{14: 19, 15: 14, 16: 10, 17: 6}

// judgeVersion takes the version as the server reports it: "17.5 (Debian 17.5-1.pgdg12+1)".
func judgeVersion(text string) Finding {
	f := found("server_version", "", text)
	numbers := versionNumbers.FindStringSubmatch(text)
	if numbers == nil {
		return f // a development version
	}
	major, _ := strconv.Atoi(numbers[1])
	minor, _ := strconv.Atoi(numbers[2])
	good := fmt.Sprintf("%d.%d", major, healed[major])
	update := "update the server to " + good + " or newer: the package, then a restart; data stays " +
		"as it is"
	switch {
	case strings.Contains(text, "-YB-"):
		return f.fail("PostgreSQL: the positions in YugabyteDB's keepalives can't be trusted",
			"relay from PostgreSQL")
	case major < oldestServer:
		return f.fail(fmt.Sprintf("%d or newer", oldestServer), "upgrade the server")
	case major > newestServer:
		return f.info(fmt.Sprintf("%d to %d, with which postrider is tested", oldestServer,
			newestServer), "look for a newer postrider; nothing is known to be wrong")
	case minor == healed[major]-1:
		return f.warn(good+": this minor's decoding can end with \"invalid memory alloc request "+
			"size\" when tables are created or altered while transactions are open, again and again "+
			"at the same place", update)
	case minor < healed[major]-1:
		return f.warn(good+": before it, rows of a transaction that is open while its table is added "+
			"to the publication may not be sent", update)
	}
	return f
}

func (c *serverCheck) primary(ctx context.Context) error {
	var standby bool
	err := c.row(ctx, "read whether the server is in recovery", `SELECT pg_catalog.pg_is_in_recovery()`).Scan(&standby)
	if err != nil {
		return err
	}
	f := found("primary", "", "the server is the primary")
	if standby {
		f = errorFinding("primary", "", slot.StandbyError())
		f.Required = "the primary"
	}
	c.add(f)
	return nil
}

func judgeLevel(f Finding, level string) Finding {
	if level != "logical" {
		f = errorFinding("wal_level", "wal_level", slot.WrongLevel(level))
		f.Required = "logical"
	}
	return f
}

// judgeLibraries judges which libraries may decode: servers have the setting from the minor
// versions of August 2026 on.
func judgeLibraries(f Finding, list string) Finding {
	names := splitList(list)
	if len(names) == 0 || slices.Contains(names, slot.Plugin) {
		return f
	}
	quoted := []string{postgres.QuoteText(slot.Plugin)}
	for _, name := range names {
		quoted = append(quoted, postgres.QuoteText(name))
	}
	return f.fail("pgoutput among them: the slot decodes with it",
		"ALTER SYSTEM SET output_plugin_libraries = "+strings.Join(quoted, ", ")+
			"; SELECT pg_reload_conf();")
}

// judgeIdleTimeout judges a setting that servers have from 18 on.
func judgeIdleTimeout(f Finding, timeout string) Finding {
	if timeout == "0" {
		return f
	}
	return f.warn("0, or longer than the relay is ever stopped: after it the slot is lost",
		"ALTER SYSTEM SET idle_replication_slot_timeout = 0; SELECT pg_reload_conf();")
}

func (c *serverCheck) judgeSynchronous(f Finding, names string) Finding {
	own := c.conn.Config().RuntimeParams["application_name"]
	switch {
	case strings.Contains(names, "*"):
		return f.warn("the standbys by name: with * the relay becomes a synchronous standby, and "+
			"commits wait for it",
			"SELECT application_name, state FROM pg_stat_replication; -- then with those of the "+
				"standbys: ALTER SYSTEM SET synchronous_standby_names = 'NAME, ...'; "+
				"SELECT pg_reload_conf();")
	case namesStandby(names, own):
		return f.warn("the standbys alone: "+own+" is the relay's application_name, and commits wait "+
			"for it",
			"in postgres.url: application_name=postrider_relay, or another name that is not in the "+
				"list; then start the relay again")
	}
	return f
}

// namesStandby reports whether a name is among those of FIRST 1 (a, "b c") and the like.
func namesStandby(setting, name string) bool {
	if open := strings.IndexByte(setting, '('); open >= 0 {
		setting = strings.TrimSuffix(strings.TrimSpace(setting[open+1:]), ")")
	}
	return slices.ContainsFunc(splitList(setting), func(n string) bool {
		return strings.EqualFold(n, name)
	})
}

// splitList cuts a setting that is a list of names.
func splitList(list string) []string {
	var items []string
	for item := range strings.SplitSeq(list, ",") {
		if item = strings.Trim(item, ` "`); item != "" {
			items = append(items, item)
		}
	}
	return items
}

// messages reports which roles may forge events: every role may emit logical messages unless that
// was revoked.
func (c *serverCheck) messages(ctx context.Context) error {
	if !c.Messages {
		return nil
	}
	var open []string
	err := c.row(ctx, "read rights on pg_logical_emit_message", `
		SELECT coalesce(pg_catalog.array_agg('pg_catalog.' || p.oid::regprocedure::text), '{}') FROM pg_catalog.pg_proc p
		WHERE p.proname = 'pg_logical_emit_message' AND p.pronamespace = 'pg_catalog'::pg_catalog.regnamespace::oid
		  AND pg_catalog.has_function_privilege('public', p.oid, 'EXECUTE')`).Scan(&open)
	if err != nil {
		return err
	}
	f := found("emit_message", "pg_logical_emit_message", "not executable by PUBLIC")
	if len(open) > 0 {
		f.Observed = "executable by PUBLIC"
		f = f.warn("executable by the application alone: a role that may call it can forge events",
			"REVOKE EXECUTE ON FUNCTION "+strings.Join(open, ", ")+
				" FROM PUBLIC; -- then GRANT it to the application's role")
	}
	c.add(f)
	return nil
}

// keepSize compares the limit of what a slot may keep with what else keeps WAL, and with the disk.
func (c *serverCheck) keepSize(ctx context.Context) error {
	var text string
	k := keepSizes{volume: c.VolumeSize}
	err := c.row(ctx, "read setting max_slot_wal_keep_size", `
		SELECT pg_catalog.current_setting('max_slot_wal_keep_size'),
		  pg_catalog.max(bytes) FILTER (WHERE name = 'max_slot_wal_keep_size'),
		  pg_catalog.max(bytes) FILTER (WHERE name = 'wal_keep_size'),
		  pg_catalog.max(bytes) FILTER (WHERE name = 'max_wal_size')
		FROM (SELECT name, CASE WHEN setting = '-1' THEN -1
		    ELSE pg_catalog.pg_size_bytes(pg_catalog.current_setting(name)) END AS bytes
		  FROM pg_catalog.pg_settings
		  WHERE name IN ('max_slot_wal_keep_size', 'wal_keep_size', 'max_wal_size')) AS sizes`).
		Scan(&text, &k.limit, &k.keep, &k.wal)
	if err != nil {
		return err
	}
	slots, err := slot.List(ctx, c.conn)
	if err != nil {
		return err
	}
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
	kept   int64 // for the slot of the server that keeps the most, which a lower limit would lose
}

// judge takes the limit as the server prints it.
func (k keepSizes) judge(text string) Finding {
	f := found("max_slot_wal_keep_size", "max_slot_wal_keep_size", text)
	limit := k.limit
	if k.keep > limit && limit >= 0 {
		limit = k.keep // the server takes the larger
		f.Observed += fmt.Sprintf("; wal_keep_size, %d MB, is larger and counts in its place",
			k.keep>>20)
	}
	const unlimited = "a limit below the free space of the disk: without one a relay that is " +
		"stopped for long fills it"
	switch {
	case limit < 0 && k.volume <= 0:
		return f.warn(unlimited, "SHOW data_directory; -- df -h THAT/pg_wal/. shows what is "+
			"free; half of that is a good limit, here for 100 GB:\n"+
			setKeepSize(max(50<<30, k.wal+2*k.kept)))
	case limit < 0:
		return f.warn(unlimited, k.halfOfVolume())
	case k.volume > 0 && limit+k.wal > k.volume:
		return f.warn(fmt.Sprintf("with max_wal_size, %d MB, less than monitor.volume_size, %d MB: "+
			"else the disk is full before the slot is invalidated", k.wal>>20, k.volume>>20),
			k.halfOfVolume())
	case limit <= k.wal:
		return f.info(fmt.Sprintf("more than max_wal_size, %d MB: a checkpoint can come when less than "+
			"that was written, so a short stop can lose the slot, and wal_status goes from reserved to "+
			"unreserved at once", k.wal>>20), k.aboveMaxWAL())
	}
	return f
}

// aboveMaxWAL is a limit above max_wal_size that leaves room for that on the volume.
func (k keepSizes) aboveMaxWAL() string {
	limit := 4 * k.wal
	if k.volume > 0 {
		limit = min(limit, k.volume-k.wal)
	}
	if limit <= k.wal {
		return "a larger disk for pg_wal, or a smaller max_wal_size"
	}
	return setKeepSize(limit) + " -- if the disk has room"
}

// halfOfVolume is a limit that leaves the other half free, unless it would lose a slot of the
// server.
func (k keepSizes) halfOfVolume() string {
	half := (k.volume - k.wal) / 2
	if half < k.wal+2*k.kept {
		return fmt.Sprintf("a larger disk for pg_wal, or a smaller max_wal_size: half of what is left "+
			"beside it, %d MB, is no limit for slots that keep %d MB now", max(0, half)>>20, k.kept>>20)
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
