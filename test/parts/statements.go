package parts

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/postrider/postrider/internal/postgres"
)

// recorded are the statements that postrider has sent to servers in this run, each once in normal
// form.
var recorded struct {
	mu     sync.Mutex
	seen   map[string]bool // as sent
	byForm map[string]string
	binary string // its own are beside it
}

// recordStatements records the statements that postrider sends, without those that tests send on
// its connections.
func recordStatements() {
	recorded.seen, recorded.byForm = map[string]bool{}, map[string]string{}
	postgres.ObserveStatements(func(statement string) {
		if !ofTest() {
			record(statement)
		}
	})
}

func record(statement string) {
	recorded.mu.Lock()
	defer recorded.mu.Unlock()
	if recorded.seen[statement] {
		return
	}
	recorded.seen[statement] = true
	if form := NormalStatement(statement); form != "" && recorded.byForm[form] == "" {
		recorded.byForm[form] = statement
	}
}

// ofTest reports whether the innermost caller of this module, package postgres aside, is a test.
func ofTest() bool {
	var pcs [64]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs[:])])
	for {
		frame, more := frames.Next()
		name, ours := strings.CutPrefix(frame.Function, "github.com/postrider/postrider/")
		if ours && !strings.HasPrefix(name, "internal/postgres.") &&
			!strings.HasPrefix(name, "test/parts.") {
			return strings.HasSuffix(frame.File, "_test.go") || strings.HasPrefix(name, "test/")
		}
		if !more {
			return false // package postgres: what every session is set to
		}
	}
}

// commands of the replication protocol, which look no names up; transactions and cursors do not
// either.
var commands = regexp.MustCompile(`(?i)^\s*(IDENTIFY_SYSTEM|START_REPLICATION|` +
	`CREATE_REPLICATION_SLOT|ALTER_REPLICATION_SLOT|DROP_REPLICATION_SLOT|` +
	`TIMELINE_HISTORY|BEGIN|COMMIT|ROLLBACK|CLOSE|FETCH|SHOW|--\s*ping)\b`)

// What differs from run to run and from table to table.
var variable = []struct {
	pattern *regexp.Regexp
	with    string
}{
	{regexp.MustCompile(`'(?:[^']|'')*'` +
		`(?:::[a-z_.]+(?: (?:with|without) time zone| precision| varying)?)?`), `''`},
	{regexp.MustCompile(`"(?:[^"]|"")*"(?:\."(?:[^"]|"")*")*`), `""`},
	{regexp.MustCompile(`\bpublic\.\w+`), `""`},
	{regexp.MustCompile(`\bbench_[0-9a-f]{8}\b`), `postrider_bench`},
	{regexp.MustCompile(`\b\w+_[0-9a-f]{8}\b`), `x`},
	{regexp.MustCompile(`(^|[^$\w])\d+\b`), `${1}0`},
	{regexp.MustCompile(`CASE WHEN NOT \(""(?: IS NULL\)) THEN pg_catalog.format\('', ""\) END`),
		`""`},
	{regexp.MustCompile(`""::text`), `""`},
	{regexp.MustCompile(`"" NULLS FIRST`), `""`},
	{regexp.MustCompile(`\bt\.""`), `""`},
	{regexp.MustCompile(`"" = \$\d+(?: AND "" = \$\d+)*`), `"" = $1`},
	{regexp.MustCompile(`coalesce\(pg_catalog\.pg_column_size\(\w+\), 0\)::bigint` +
		`(?: \+ coalesce\(pg_catalog\.pg_column_size\(\w+\), 0\)::bigint)*`), `size`},
	{regexp.MustCompile(`pg_catalog\.concat_ws\('', [\w, ]+\)`), `keys`},
	{regexp.MustCompile(`""(?:\s*,\s*"")+`), `""`},
	{regexp.MustCompile(`''(?:\s*,\s*'')+`), `''`},
	{regexp.MustCompile(`\s+`), ` `},
	// the conditions of package prune, of which there are some
	{regexp.MustCompile(coveredRange + `(?: OR ` + coveredRange + `)*`), `covered`},
	{regexp.MustCompile(`(COALESCE\("" <> ALL \(\$\d::text\[\]\), true\))` +
		`(?: AND COALESCE\("" <> ALL \(\$\d::text\[\]\), true\))+`), `$1`},
	{regexp.MustCompile(` AND \("" > LEAST\(''\)\)| AND "" >= ''`), ``},
}

const coveredRange = `\(CASE WHEN xmin::text::bigint < 0 THEN [^;]*? END\) BETWEEN 0 AND 0` +
	`(?: AND "" > '')?`

// NormalStatement is the same for two statements that differ in literals, names of users' objects
// and numbers of columns. Empty: the statement has no name that could be resolved to another
// object.
func NormalStatement(statement string) string {
	if commands.MatchString(statement) && !strings.Contains(statement, ";") {
		return ""
	}
	for _, v := range variable {
		statement = v.pattern.ReplaceAllString(statement, v.with)
	}
	return strings.TrimSpace(statement)
}

// StatementsFile has one example of each statement of postrider, in Go's quotes, one a line.
func StatementsFile() string {
	return filepath.Join(moduleDir(), "test", "security", "testdata", "statements")
}

// Statements are those of the file.
func Statements() ([]string, error) { return readStatements(StatementsFile()) }

func readStatements(path string) ([]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	var all []string
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		statement, err := strconv.Unquote(lines.Text())
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		all = append(all, statement)
	}
	return all, lines.Err()
}

// compareStatements returns an error if a statement was sent that the file lacks. With
// POSTRIDER_TEST_RECORD=1 it is added to the file.
func compareStatements() error {
	if recorded.binary != "" {
		sent, err := readStatements(recorded.binary + ".statements")
		if err != nil && !os.IsNotExist(err) {
			return fmt.Errorf("read what the binary sent: %w", err)
		}
		for _, statement := range sent {
			record(statement)
		}
	}
	known, err := Statements()
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	for _, statement := range known {
		delete(recorded.byForm, NormalStatement(statement))
	}
	var fresh []string
	for _, statement := range recorded.byForm {
		fresh = append(fresh, strconv.Quote(statement))
	}
	slices.Sort(fresh)
	switch {
	case len(fresh) == 0:
		return nil
	case os.Getenv("POSTRIDER_TEST_RECORD") == "":
		return fmt.Errorf("statements that test/security has not tried against somebody else's "+
			"operators and functions:\n  %s\nadd them: POSTRIDER_TEST_RECORD=1 go test ./%s",
			strings.Join(fresh, "\n  "), packageDir())
	}
	f, err := os.OpenFile(StatementsFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteString(strings.Join(fresh, "\n") + "\n")
	return errors.Join(err, f.Close())
}
