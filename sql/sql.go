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

//go:embed inbox.sql
var inbox string

//go:embed role.sql
var role string

//go:embed publication.sql
var publication string

//go:embed prune.sql
var prune string

//go:embed writeback.sql
var writeBack string

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

// Prune is prune.sql: what pruning needs beside Role.
func Prune() string { return prune }

// WriteBack is writeback.sql: what [write_back] needs beside Role.
func WriteBack() string { return writeBack }

// Publication is publication.sql. For other names see slot.CreatePublicationSQL.
func Publication() string { return publication }

var inboxWindow = regexp.MustCompile(`AS 'SELECT \d+'`)

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
	return rename(script, "outbox", schema, table)
}

// Emit returns outbox_emit.sql for a table of the preset plain or partitioned. The function stands
// in the schema of the table and is named after it: outbox_emit for outbox.
func Emit(schema, table string) (string, error) {
	return rename(outboxEmit, "outbox", schema, table)
}

// Inbox returns inbox.sql for a table of another name, or another window in days: for how long the
// inbox recognises a duplicate. Run in a database that has this inbox, it changes the window.
func Inbox(schema, table string, window int) (string, error) {
	if window < 1 {
		return "", fmt.Errorf("the window of an inbox is at least one day, not %d", window)
	}
	return rename(inboxWindow.ReplaceAllString(inbox, fmt.Sprintf("AS 'SELECT %d'", window)),
		"inbox", schema, table)
}

// rename puts another table in the place of public.own, and names what is named after it so.
func rename(script, own, schema, table string) (string, error) {
	for _, name := range []string{schema, table} {
		if name == "" || unsafeName.MatchString(name) {
			return "", fmt.Errorf("%q cannot be the name of an %s table: no quotes, dots, dollar "+
				"signs or backslashes", schema+"."+table, own)
		}
	}
	if len(table)+longestSuffix > 63 {
		return "", fmt.Errorf("%q is too long for the name of an %s table: at most %d bytes", table,
			own, 63-longestSuffix)
	}
	if schema == "public" && table == own {
		return script, nil
	}
	return regexp.MustCompile(`\bpublic\.`+own+`(\w*)`).
		ReplaceAllString(script, `"`+schema+`"."`+table+`$1"`), nil
}
