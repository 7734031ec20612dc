package badinput

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

const pagePath = "testdata/messages.txt"

const pageHead = `Every mistake, and what postrider says about it. Ports, paths, names and positions are made the same for all machines.
Written by go test ./test/badinput -update
`

// page is the golden file: one entry for each case, in the order of the list of cases.
type page struct {
	mu      sync.Mutex
	was     map[string]string // as it stands in the file
	written map[string]string // by this run
}

func readPage(t *testing.T) *page {
	t.Helper()
	p := &page{was: map[string]string{}, written: map[string]string{}}
	text, err := os.ReadFile(pagePath)
	if *update && os.IsNotExist(err) {
		return p
	}
	require.NoError(t, err)
	_, rest, _ := strings.Cut(string(text), "\n=== ")
	for entry := range strings.SplitSeq(rest, "\n=== ") {
		name, body, _ := strings.Cut(entry, "\n")
		p.was[name] = strings.TrimSpace(body)
	}
	return p
}

// compare holds an entry to the file.
func (p *page) compare(t *testing.T, name, body string) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	require.NotContains(t, p.written, name, "two cases of one name")
	p.written[name] = strings.TrimSpace(body)
	if !*update {
		require.Equal(t, p.was[name], p.written[name], "if the new message is better, run with -update")
	}
}

// text is the whole file, with the entries of this run, and those of the file for cases that did not run.
func (p *page) text(names []string) string {
	var b strings.Builder
	b.WriteString(pageHead)
	for _, name := range names {
		body, ran := p.written[name]
		if !ran {
			body = p.was[name]
		}
		if body != "" {
			fmt.Fprintf(&b, "\n=== %s\n%s\n", name, body)
		}
	}
	return b.String()
}

// entry is written while a case runs.
type entry struct{ strings.Builder }

func (e *entry) command(args []string) {
	fmt.Fprintf(e, "\n$ postrider %s\n", strings.Join(args, " "))
}

func (e *entry) ended(text string, code int) {
	fmt.Fprintf(e, "%s\nexit status %d\n", strings.TrimRight(text, "\n"), code)
}

// retried shows a log line the way a message is shown.
func (e *entry) retried(l logLine, p probe) {
	fmt.Fprintf(e, "%s: %s (%s, %s)\n  error: %s\n  wal:   %s\n  next:  %s\n", l.Level, l.Message, l.Reason, l.Class,
		l.Error, l.WAL, strings.ReplaceAll(l.Next, "\n", "\n         "))
	fmt.Fprintf(e, "/readyz: %d %s: %s\n", p.Code, p.Reason, p.Detail)
}
