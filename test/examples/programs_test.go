package examples

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postrider/postrider/internal/embedded"
	"github.com/postrider/postrider/test/parts"
)

// program is an example: the commands under a heading of examples/README.md. The first changes to its directory, the
// last runs it, those between install what it needs.
type program struct {
	heading   string
	installed string   // what the commands between leave behind; empty: there are none
	readable  []string // tables that it reads, besides orders
	needs     func(t *testing.T)
}

var programs = []program{
	{heading: "Python, psycopg", installed: ".venv", needs: python},
	{heading: "Python, SQLAlchemy", installed: ".venv", needs: python},
	{heading: "Node, pg", installed: "node_modules", needs: node},
	{heading: "Node, Prisma", installed: "node_modules", readable: []string{"outbox"}, needs: prisma},
	{heading: "Java, JDBC", needs: maven},
	{heading: "Java, Spring", needs: maven},
	{heading: "Go, sqlc", needs: func(*testing.T) {}},
}

func TestExamples_EmitInTheTransactionOfTheOrder(t *testing.T) {
	page := read(t, filepath.Join(root, "examples", "README.md"))
	s := openShop(t, page)
	expected := make(chan []string, len(programs))
	t.Run("program", func(t *testing.T) {
		for _, p := range programs {
			env := s.role(t, p.readable...)
			t.Run(p.heading, func(t *testing.T) {
				t.Parallel()
				p.needs(t)
				placed, rolledBack := orders(t, p.run(t, section(t, page, p.heading), env))
				var events []string
				for _, o := range placed {
					s.requireRows(t, o, 1)
					s.requireRecord(t, o)
					events = append(events, o.event)
				}
				for _, o := range rolledBack {
					s.requireRows(t, o, 0)
				}
				expected <- events
			})
		}
	})
	close(expected)
	if t.Failed() {
		return
	}
	// The relay publishes in commit order: what is not before the last event was not published.
	var last string
	require.NoError(t, s.conn.QueryRow(t.Context(), `SELECT outbox_emit('order', 'last', 'Last')`).Scan(&last))
	s.broker.ConsumeUntil(t, []string{s.topic}, func(records []*kgo.Record) bool {
		return len(records) > 0 && idOf(records[len(records)-1]) == last
	})
	want := []string{last}
	for events := range expected {
		want = append(want, events...)
	}
	var published []string
	for _, record := range s.broker.All(t, s.topic) {
		published = append(published, idOf(record))
	}
	require.ElementsMatch(t, want, published)
}

// Headings with commands are those of the programs, and the files that the page names exist.
func TestExamples_PageNamesWhatExists(t *testing.T) {
	page := read(t, filepath.Join(root, "examples", "README.md"))
	require.Regexp(t, `^# .+\n\nFor (those|the DBA)`, page)
	var headings []string
	for _, m := range regexp.MustCompile("(?m)^## (.+)\n[^#]*?```sh").FindAllStringSubmatch(page, -1) {
		headings = append(headings, m[1])
	}
	want := []string{"Before the first one"}
	for _, p := range programs {
		want = append(want, p.heading)
	}
	require.Equal(t, want, headings)
	links := regexp.MustCompile(`\]\(([^)#]+)`).FindAllStringSubmatch(page, -1)
	require.NotEmpty(t, links)
	for _, link := range links {
		_, err := os.Stat(filepath.Join(root, "examples", link[1]))
		require.NoError(t, err)
	}
}

// The code that sqlc generates from queries.sql and the tables of sql is the one in the repository.
func TestSqlc_GeneratedCodeIsCurrent(t *testing.T) {
	made := regexp.MustCompile(`sqlc (v[0-9.]+)`).FindStringSubmatch(read(t, filepath.Join(root, "examples", "sqlc", "db", "db.go")))
	require.NotNil(t, made)
	install := "go install github.com/sqlc-dev/sqlc/cmd/sqlc@" + made[1]
	inPath(t, "sqlc", install, "sqlc")
	if version := strings.TrimSpace(execute(t, "", nil, "sqlc version")); version != made[1] {
		parts.Lacking(t, "sqlc", "here is "+version+" ("+install+")")
	}
	read(t, filepath.Join(root, "examples", "sqlc", "queries.sql")) // go test runs the test again when it changes
	execute(t, filepath.Join(root, "examples", "sqlc"), nil, "sqlc diff")
}

// run follows the commands in a copy of the directory and returns what the program prints.
func (p program) run(t *testing.T, commands, env []string) (stdout string) {
	t.Helper()
	require.GreaterOrEqual(t, len(commands), 2)
	dir, ok := strings.CutPrefix(commands[0], "cd ")
	require.True(t, ok, commands[0])
	source, work := filepath.Join(root, filepath.FromSlash(dir)), t.TempDir()
	copyTree(t, source, work)
	if install := commands[1 : len(commands)-1]; p.installed != "" {
		require.NotEmpty(t, install)
		require.NoError(t, os.Symlink(filepath.Join(p.install(t, source, install), p.installed), filepath.Join(work, p.installed)))
	} else {
		require.Empty(t, install)
	}
	return execute(t, work, env, commands[len(commands)-1])
}

// install follows the commands once for each state of the files that they read, and returns the directory.
func (p program) install(t *testing.T, source string, commands []string) string {
	t.Helper()
	sum := sha256.New()
	fmt.Fprintln(sum, commands)
	for _, path := range files(t, source) {
		if name := filepath.Base(path); strings.HasPrefix(name, "emit.") || strings.HasPrefix(name, "consume.") {
			continue // a program, which no installation reads
		}
		fmt.Fprintf(sum, "%s %q\n", path, read(t, filepath.Join(source, path)))
	}
	// An environment of Python is of one interpreter, and modules may be compiled for one Node.
	runtime := map[string]string{".venv": "command -v python3; python3 --version", "node_modules": "node --version"}[p.installed]
	fmt.Fprintln(sum, execute(t, "", nil, runtime))

	cache, err := embedded.CacheDir()
	require.NoError(t, err)
	name := strings.ToLower(strings.ReplaceAll(p.heading, ", ", "-"))
	dir := filepath.Join(cache, fmt.Sprintf("example-%s-%x", name, sum.Sum(nil)[:4]))
	require.NoError(t, embedded.PrepareOnce(t.Context(), dir, func(tmp string) error {
		copyTree(t, source, tmp)
		for _, command := range commands {
			execute(t, tmp, nil, command)
		}
		return nil
	}))
	return dir
}

// patience bounds a command, a first download of all that it needs included.
const patience = 10 * time.Minute

// execute runs a line in a shell, requires that it succeeds, and returns what it prints to stdout.
func execute(t *testing.T, dir string, env []string, line string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", line)
	cmd.Dir = dir
	cmd.Env = append(parts.Environment(
		"PRISMA_SCHEMA_ENGINE_BINARY=/bin/true", "CHECKPOINT_DISABLE=1", // prisma generate needs neither an engine nor a network
		"MAVEN_OPTS=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC", // it ends before more would pay
	), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Maven and npx start others
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	require.NoError(t, err, "%s\n%s", line, end(stdout.String()+stderr.String()))
	return stdout.String()
}

// end is what says why a command failed; Node prints whole lines of minified code before it.
func end(output string) string { return output[max(0, len(output)-3000):] }

// files are those of an example, without what its package manager leaves there.
func files(t *testing.T, dir string) (paths []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if slices.Contains([]string{".venv", "node_modules", "target"}, entry.Name()) {
				return filepath.SkipDir
			}
			return nil
		}
		path, err = filepath.Rel(dir, path)
		paths = append(paths, path)
		return err
	}))
	require.NotEmpty(t, paths)
	return paths
}

func copyTree(t *testing.T, from, to string) {
	t.Helper()
	for _, path := range files(t, from) {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(to, path)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(to, path), []byte(read(t, filepath.Join(from, path))), 0o600))
	}
}

func python(t *testing.T) {
	t.Helper()
	inPath(t, "python", "Debian packages python3 and python3-venv", "python3")
	if err := exec.Command("python3", "-c", "import venv, ensurepip").Run(); err != nil {
		parts.Lacking(t, "python", "python3 has no venv (Debian package python3-venv)")
	}
}

func node(t *testing.T) {
	t.Helper()
	inPath(t, "node", "Debian packages nodejs and npm", "node", "npm")
}

func prisma(t *testing.T) {
	t.Helper()
	node(t)
	version := strings.TrimSpace(execute(t, "", nil, "node --version"))
	m := regexp.MustCompile(`^v(\d+)\.(\d+)`).FindStringSubmatch(version)
	require.NotNil(t, m, version)
	major, _ := strconv.Atoi(m[1])
	minor, _ := strconv.Atoi(m[2])
	if major < 20 || major == 20 && minor < 19 {
		parts.Lacking(t, "prisma", "Prisma 7 needs Node 20.19 or later, here is "+version)
	}
}

func maven(t *testing.T) {
	t.Helper()
	inPath(t, "mvn", "Debian packages maven and default-jdk-headless", "mvn", "javac")
}
