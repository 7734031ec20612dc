package diagnosis

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

var (
	statement = regexp.MustCompile(`^(ALTER|BEGIN|CREATE|DROP|GRANT|SELECT) `)
	setting   = regexp.MustCompile(`^([a-z_]+\.[a-z_.]+) = (.+?)(   #.*)?$`)
	script    = regexp.MustCompile(`^(kafka-[a-z]+\.sh) (.*)$`)
)

// typeHint does what a hint says, line by line as it is printed: commands, SQL as an administrator,
// scripts of Kafka, and settings. A line of prose is for people; one that begins with "or" begins
// another way to the same end. It returns how many lines were executed.
func (s *site) typeHint(t *testing.T, hint string) (executed int) {
	t.Helper()
	for line := range strings.Lines(hint) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "or "):
			return executed
		case strings.HasPrefix(line, "postrider "):
			line, _, _ = strings.Cut(line, "   #")
			for command := range strings.SplitSeq(line, "; ") {
				s.typeCommand(t, command)
			}
		case statement.MatchString(line):
			s.typeSQL(t, line)
			if strings.Contains(line, "server is restarted") {
				s.restart(t)
			}
		case script.MatchString(line):
			line, _, _ = strings.Cut(line, "   #")
			found := script.FindStringSubmatch(line)
			args := words(found[2])
			if at := slices.Index(args, "admin.properties"); at >= 0 { // docs/SIGN-IN.md says what it has
				args[at] = s.administrator(t)
			}
			s.broker.KafkaTool(t, found[1], args...)
		case setting.MatchString(line):
			found := setting.FindStringSubmatch(line)
			s.set(t, found[1], found[2])
		default:
			continue
		}
		executed++
	}
	return executed
}

// typeSQL does what psql does: a statement at a time, in one session.
func (s *site) typeSQL(t *testing.T, line string) {
	t.Helper()
	line, _, _ = strings.Cut(line, " -- ")
	conn, err := pgx.Connect(t.Context(), s.DSN())
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close(t.Context())) }()
	for sql := range strings.SplitSeq(line, ";") {
		_, err := conn.PgConn().Exec(t.Context(), sql).ReadAll()
		require.NoError(t, err, "%s", sql)
	}
}

// typeCommand runs a command of postrider, which has to name the configuration by itself.
func (s *site) typeCommand(t *testing.T, command string) {
	t.Helper()
	args := words(command)[1:]
	require.Contains(t, args, s.file, "the hint is for another configuration: %s", command)
	if args[0] == run {
		s.streamsNow(t)
		return
	}
	out := s.execute(t, args...)
	require.Zero(t, out.code, "%s: %s", command, out.text)
}

// words splits as a shell does, as far as hints need it.
func words(line string) (split []string) {
	for i, part := range strings.Split(line, "'") {
		if i%2 == 1 {
			split = append(split, part)
			continue
		}
		split = append(split, strings.Fields(part)...)
	}
	return split
}

// administrator is what an administrator's scripts read to log in.
func (s *site) administrator(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "admin.properties")
	text := fmt.Sprintf("security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"+
		"sasl.jaas.config=%s required username=\"admin\" password=%q;\n", plainLogin, brokerPassword)
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}
