package router

import (
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/magiconair/properties"

	"github.com/postrider/postrider/sink"
)

// Names of the headers, and of the properties of a span context, after W3C Trace Context. With
// tracing_headers HeaderTraceParent has a new span whenever a row is read.
const (
	HeaderTraceParent = "traceparent"
	HeaderTraceState  = "tracestate"
)

// spanLoader reads Java's properties format.
var spanLoader = properties.Loader{Encoding: properties.UTF8, DisableExpansion: true}

// appendTracing passes on the trace of a row: its trace id, with the number of a new span, and its
// state. A context that is no such thing begins a new trace, as in Debezium, whose tracing library
// makes a span for each row; the spans themselves go nowhere here.
func (r *rule) appendTracing(dst []sink.Header, p *plan, values [][]byte) ([]sink.Header, error) {
	context, err := p.spanContext(values)
	switch {
	case err != nil:
		return nil, err
	case context == nil && r.cfg.TracingContextOnly:
		return dst, nil
	case context == nil:
		context = properties.NewProperties()
	}
	trace, flags, ok := parseTraceParent(context.GetString(HeaderTraceParent, ""))
	state := ""
	if ok {
		state = parseTraceState(context.GetString(HeaderTraceState, ""))
	} else {
		trace, flags = randomHex(16), "01"
	}
	dst, err = r.appendText(dst, HeaderTraceParent, "00-"+trace+"-"+randomHex(8)+"-"+flags)
	if err == nil && state != "" {
		dst, err = r.appendText(dst, HeaderTraceState, state)
	}
	return dst, err
}

// spanContext reads the context of a row; nil if the row has none.
func (p *plan) spanContext(values [][]byte) (*properties.Properties, error) {
	if p.tracing == nil {
		return nil, nil
	}
	raw, err := p.tracing.Text(values[p.tracing.Index])
	if err != nil || raw == nil {
		return nil, err
	}
	context, err := spanLoader.LoadBytes(raw)
	if err != nil {
		return nil, fault(ReasonUnconvertible, "have the application write Java's properties "+
			"format there, or NULL", "column %s: %w", p.tracing.Name, err)
	}
	return context, nil
}

// randomHex makes the number of a trace or span, which is never zero.
func randomHex(bytes int) string {
	b := binary.BigEndian.AppendUint64(nil, rand.Uint64()|1)
	if bytes > 8 {
		b = binary.BigEndian.AppendUint64(b, rand.Uint64())
	}
	return hex.EncodeToString(b)
}

var traceParentForm = regexp.MustCompile(
	`^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?$`)

// parseTraceParent gives the trace id, and the flags of a span below it: of all flags only that it
// is sampled is passed on.
func parseTraceParent(s string) (trace, flags string, ok bool) {
	m := traceParentForm.FindStringSubmatch(s)
	if m == nil || m[1] == "ff" || m[1] == "00" && m[5] != "" || strings.Trim(m[2], "0") == "" ||
		strings.Trim(m[3], "0") == "" {
		return "", "", false
	}
	given, _ := strconv.ParseUint(m[4], 16, 8)
	return m[2], "0" + strconv.FormatUint(given&1, 10), true
}

// traceStateKey is made when a trace comes: its long repetitions take hundreds of kilobytes.
var traceStateKey = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(
		`^([a-z][a-z0-9_*/-]{0,255}|[a-z0-9][a-z0-9_*/-]{0,240}@[a-z][a-z0-9_*/-]{0,13})$`)
})

var traceStateSep = regexp.MustCompile(`[ \t]*,[ \t]*`)

// parseTraceState gives the state in its normal form; empty if one member of it is not valid.
func parseTraceState(s string) string {
	members := traceStateSep.Split(s, -1)
	seen := map[string]bool{}
	for _, m := range members {
		key, value, _ := strings.Cut(m, "=")
		if seen[key] || !traceStateKey().MatchString(key) || !validTraceStateValue(value) {
			return ""
		}
		seen[key] = true
	}
	if len(members) > 32 {
		return ""
	}
	return strings.Join(members, ",")
}

func validTraceStateValue(s string) bool {
	bad := func(c rune) bool { return c < ' ' || c > '~' || c == ',' || c == '=' }
	return s != "" && len(s) <= 256 && s[len(s)-1] != ' ' && !strings.ContainsFunc(s, bad)
}
