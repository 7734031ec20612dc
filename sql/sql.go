// Package sql holds the SQL that makes the server ready: runnable with psql as it is, and rendered
// for another table.
package sql

import (
	_ "embed"
	"fmt"
	"regexp"
	"strings"
)

//go:embed outbox.sql
var outbox string

//go:embed outbox_partitioned.sql
var outboxPartitioned string

//go:embed outbox_debezium.sql
var outboxDebezium string

//go:embed outbox_emit.sql
var outboxEmit string

//go:embed role.sql
var role string

//go:embed publication.sql
var publication string

// The presets of an outbox table.
const (
	Plain       = "plain"       // outbox.sql
	Partitioned = "partitioned" // outbox_partitioned.sql
	Debezium    = "debezium"    // outbox_debezium.sql
)

// Presets are the names that Outbox takes.
func Presets() []string { return []string{Plain, Partitioned, Debezium} }

// Role is role.sql: the least privileged role that the relay needs.
func Role() string { return role }

// Publication is publication.sql. For other names see slot.CreatePublicationSQL.
func Publication() string { return publication }

// The table, and what is named after it, as the files have them.
var ownName = regexp.MustCompile(`\bpublic\.(outbox\w*)`)

// A name is put between quotes, in SQL and in literals inside of it. These could end those.
var unsafeName = regexp.MustCompile(`['"$\\.\x00-\x1f]`)

// longestSuffix is that of the names made from the table's: a day's partition, as outbox_20260101,
// or outbox_maintain.
const longestSuffix = len("_maintain")

// Outbox returns the script that makes an outbox table of a preset, and does nothing where there
// is one of this name.
func Outbox(preset, schema, table string) (string, error) {
	script, ok := map[string]string{Plain: outbox, Partitioned: outboxPartitioned,
		Debezium: outboxDebezium}[preset]
	if !ok {
		return "", fmt.Errorf("unknown preset %q: %s", preset, strings.Join(Presets(), ", "))
	}
	return render(script, schema, table)
}

// Emit returns outbox_emit.sql for a table of the preset plain or partitioned. The function stands
// in the schema of the table and is named after it: outbox_emit for outbox.
func Emit(schema, table string) (string, error) { return render(outboxEmit, schema, table) }

// render puts the name of a table in the place of public.outbox.
func render(script, schema, table string) (string, error) {
	for _, name := range []string{schema, table} {
		if name == "" || unsafeName.MatchString(name) {
			return "", fmt.Errorf("%q cannot be the name of an outbox table: no quotes, dots, dollar "+
				"signs or backslashes", schema+"."+table)
		}
	}
	if len(table)+longestSuffix > 63 {
		return "", fmt.Errorf("%q is too long for the name of an outbox table: at most %d bytes", table,
			63-longestSuffix)
	}
	if schema == "public" && table == "outbox" {
		return script, nil
	}
	return ownName.ReplaceAllStringFunc(script, func(name string) string {
		suffix := strings.TrimPrefix(name, "public.outbox")
		return `"` + schema + `"."` + table + suffix + `"`
	}), nil
}
