package soak

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// line is a line of a relay's log.
type line struct {
	Time    time.Time
	Level   string
	Message string
	Error   string
	Reason  string
	LSN     string `json:"confirmed_flush_lsn"`
	cause   string // message and what has caused it, without numbers
	text    string
}

// causes are the fields that tell causes apart.
var causes = []string{"component", "message", "error", "reason", "event", "topic", "relation",
	"condition", "keys"}

// number is a position, an address, a number or a duration.
var number = regexp.MustCompile(`[0-9A-F]+/[0-9A-F]+|0x[0-9a-f]+|\d+`)

// linesOf reads the log of a process. A last line that is not complete is left out.
func linesOf(log []byte) (lines []line) {
	for text := range strings.Lines(string(log)) {
		var l line
		var fields map[string]any
		if json.Unmarshal([]byte(text), &l) != nil || json.Unmarshal([]byte(text), &fields) != nil {
			continue
		}
		l.text = strings.TrimSpace(text)
		for _, name := range causes {
			if value, ok := fields[name]; ok {
				l.cause += name + "=" + number.ReplaceAllString(fmt.Sprint(value), "#") + " "
			}
		}
		lines = append(lines, l)
	}
	return lines
}

// stroke is an action at its time.
type stroke struct {
	at     time.Time
	name   string
	quiet  bool // both relays had caught up before, and their monitors had looked
	faults int
}

// repeated returns the lines that a process has written more often than once for each fault, and
// once a minute, of one cause. Strokes that the relay had not recovered from before the next one
// count together.
func repeated(lines []line, strokes []stroke) (found []string) {
	type window struct {
		from, to time.Time
		faults   int
	}
	var windows []window
	for _, s := range strokes {
		if s.quiet || len(windows) == 0 {
			windows = append(windows, window{from: s.at})
		}
		windows[len(windows)-1].faults += s.faults
	}
	for i := range windows {
		windows[i].to = time.Now()
		if i+1 < len(windows) {
			windows[i].to = windows[i+1].from
		}
	}
	for _, w := range windows {
		by := map[string][]string{}
		for _, l := range lines {
			if !l.Time.Before(w.from) && l.Time.Before(w.to) && l.Level != "debug" {
				by[l.cause] = append(by[l.cause], l.text)
			}
		}
		limit := w.faults + int(w.to.Sub(w.from)/time.Minute)
		for cause, texts := range by {
			if len(texts) > limit {
				found = append(found, fmt.Sprintf("%d lines, and not %d, in %.1f s of: %s\n\t%s", len(texts),
					limit, w.to.Sub(w.from).Seconds(), cause, strings.Join(texts, "\n\t")))
			}
		}
	}
	slices.Sort(found)
	return found
}

func TestRepeated_FindsALineOfOneCause(t *testing.T) {
	t.Parallel()
	began := time.Now().Add(-10 * time.Minute)
	log := func(every time.Duration, text string) (lines []line) {
		for at := time.Duration(0); at < 5*time.Minute; at += every {
			lines = append(lines, linesOf(fmt.Appendf(nil, `{"time":%q,"level":"warn",%s,"acked_lsn":"0/%X"}`+"\n",
				began.Add(at).Format(time.RFC3339Nano), fmt.Sprintf(text, at/time.Second), at))...)
		}
		return lines
	}
	quiet := []stroke{{began, "one", true, 1}, {began.Add(5 * time.Minute), "two", true, 1}}
	const text = `"message":"session ended","error":"dial 127.0.0.1:%d: refused"`
	require.Len(t, log(time.Minute, text), 5)
	require.Empty(t, repeated(log(time.Minute, text), quiet))
	require.Len(t, repeated(log(30*time.Second, text), quiet), 1, "ports are not causes")
	require.Empty(t, repeated(append(log(time.Minute, text),
		log(time.Minute, `"message":"session ended","error":"reset%.0d"`)...), quiet))
	twice := append(log(5*time.Minute, text), log(5*time.Minute, text)...)
	require.Len(t, repeated(twice, []stroke{{began, "one", true, 1}, {began.Add(time.Second), "two", true, 1}}), 1)
	require.Empty(t, repeated(twice, []stroke{{began, "one", true, 1}, {began.Add(time.Second), "two", false, 1}}))
}
