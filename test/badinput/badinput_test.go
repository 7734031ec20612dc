package badinput

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/embedded"
)

// What a command is expected to do instead of ending with an exit status.
const (
	retries = -1 // it goes on, and heals when the cause is removed
	works   = -2 // the mistake is not one for this command
)

// mistake is one row of bad input.
type mistake struct {
	name  string // of the entry on the page, and of the one in docs/TROUBLESHOOTING.md
	about string // what was done wrong
	make  func(t *testing.T, s *site)
	args  []string // of run and check, after the command
	run   int      // exit status, or retries
	check int      // exit status, or works
	// advised are pieces of the message without which nobody could act on it.
	advised []string
	// heal removes the cause, with what run said for those who do what it says. nil: there is nothing to remove, or a test
	// of another package does. Afterwards run streams and check passes.
	heal func(t *testing.T, s *site, advice string)
}

func TestBadInput_IsAnsweredByWhatWhereWALAndNext(t *testing.T) {
	answers := readPage(t)
	shared := newServers(t, embedded.PostgresConfig{Params: map[string]string{"ssl": "on", "max_replication_slots": "60"}, Files: serverCertificate(t)})
	// One slot, one walsender, not even logical decoding: its cases run one after the other, and each leaves it better.
	tight := newServers(t, embedded.PostgresConfig{Params: map[string]string{
		"wal_level": "replica", "max_replication_slots": "1", "max_wal_senders": "1",
	}})
	groups := []struct {
		name     string
		servers  *servers
		mistakes []mistake
	}{
		{"configuration", shared, configurationMistakes},
		{"connection", shared, connectionMistakes},
		{"server", tight, serverMistakes},
		{"slot", shared, slotMistakes},
		{"table", shared, tableMistakes},
		{"kafka", shared, kafkaMistakes},
	}
	var names []string
	t.Run("all", func(t *testing.T) {
		for _, g := range groups {
			for _, m := range g.mistakes {
				names = append(names, m.name)
			}
			t.Run(g.name, func(t *testing.T) {
				t.Parallel()
				for _, m := range g.mistakes {
					t.Run(m.name, func(t *testing.T) {
						if g.servers == shared {
							t.Parallel()
						}
						m.test(t, newSite(t, g.servers, m.name), answers)
					})
				}
			})
		}
	})
	whole := answers.text(names)
	if *update {
		require.NoError(t, os.WriteFile(pagePath, []byte(whole), 0o600))
		return
	}
	onDisk, err := os.ReadFile(pagePath)
	require.NoError(t, err)
	require.Equal(t, string(onDisk), whole, "entries without a case, or in another order")
}

func (m mistake) test(t *testing.T, s *site, answers *page) {
	m.make(t, s)
	s.write(t)
	var e entry
	e.WriteString(m.about + "\n")

	check := append([]string{"check"}, m.args...)
	if m.check != works {
		e.command(check)
		out := s.exec(t, check...)
		require.Equal(t, m.check, out.code, out.stdout+out.stderr)
		m.complete(t, s.masked(out.stdout+out.message))
		if m.check != 2 {
			require.Contains(t, out.stdout, "\n  WAL:      ")
			require.Contains(t, out.stdout, "\n  fix:      ")
		}
		e.ended(s.masked(problemsOf(t, out.stdout)+out.message), out.code)
	}

	e.command(append([]string{"run"}, m.args...))
	if m.run == retries {
		m.testRetry(t, s, &e)
	} else {
		out := s.exec(t, append([]string{"run"}, m.args...)...)
		require.Equal(t, m.run, out.code, out.stderr)
		require.Equal(t, 1, strings.Count("\n"+out.message, "\npostrider: "), "one message:\n%s", out.stderr)
		for _, l := range out.log {
			require.NotEqual(t, "error", l.Level, "said twice:\n%s", out.stderr)
		}
		m.complete(t, s.masked(out.message))
		if m.run != 2 {
			require.Contains(t, out.message, "\n  WAL:  ")
			require.Contains(t, out.message, "\n  next: ")
		}
		e.ended(s.masked(out.message), out.code)
		if m.heal != nil {
			m.heal(t, s, out.message)
			s.write(t)
			d := s.start(t)
			d.await(t, "streaming", func(l logLine) bool { return l.Message == "streaming started" })
			d.Stop(t)
			m.healed(t, s, &e)
		}
	}
	answers.compare(t, m.name, e.String())
}

// testRetry holds a daemon that goes on to the same as a message, and heals it while it runs.
func (m mistake) testRetry(t *testing.T, s *site, e *entry) {
	d := s.start(t, m.args...)
	ended := d.await(t, "the end of a session", func(l logLine) bool { return l.Message == "session ended" })
	for part, text := range map[string]string{"error": ended.Error, "wal": ended.WAL, "next": ended.Next, "reason": ended.Reason} {
		require.NotEmpty(t, text, "%s of the log line:\n%s", part, d.stderr())
	}
	require.Equal(t, "retryable", ended.Class)
	m.complete(t, s.masked(ended.Error+ended.Next))
	unready := d.awaitReady(t, "readiness false", func(p probe) bool { return p.Reason == "backing_off" })
	require.Equal(t, 503, unready.Code)
	for _, path := range []string{"/status", "/metrics"} {
		code, body := d.get(t, path)
		require.Equal(t, 200, code)
		s.noSecret(t, body)
	}
	ended.Error, ended.WAL, ended.Next = s.masked(ended.Error), s.masked(ended.WAL), s.masked(ended.Next)
	unready.Detail = s.masked(unready.Detail)
	e.retried(ended, unready)
	if m.heal == nil {
		d.Stop(t)
		return
	}
	m.heal(t, s, ended.Next)
	d.awaitReady(t, "readiness true", func(p probe) bool { return p.Code == 200 })
	d.Stop(t)
	m.healed(t, s, e)
}

func (m mistake) healed(t *testing.T, s *site, e *entry) {
	if m.check != works {
		out := s.exec(t, "check")
		require.Zero(t, out.code, "check after the fix:\n%s%s", out.stdout, out.stderr)
	}
	e.WriteString("\nWith that done, it runs.\n")
}

func (m mistake) complete(t *testing.T, message string) {
	t.Helper()
	message = strings.ReplaceAll(message, `"`, "") // check has names in places of their own, without quotes
	for _, piece := range m.advised {
		require.Contains(t, message, strings.ReplaceAll(piece, `"`, ""))
	}
}

// problemsOf leaves of the output of check the paragraphs about errors. There is one: what follows from it is not said.
func problemsOf(t *testing.T, stdout string) string {
	t.Helper()
	var errors []string
	for paragraph := range strings.SplitSeq(stdout, "\n\n") {
		if strings.HasPrefix(paragraph, "error ") {
			errors = append(errors, paragraph)
		}
	}
	require.LessOrEqual(t, len(errors), 1, stdout)
	return strings.Join(errors, "\n\n")
}
