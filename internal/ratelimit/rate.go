// Package ratelimit limits how fast messages are published.
//
//	rate.go    Rate and TopicRate: the values of relay.max_rate and [[relay.rate]]
//	limiter.go Limiter: counts messages, and waits for the limits
//	pacer.go   Pacer: publishes lists of messages
//	state.go   what a Limiter reports
package ratelimit

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/postrider/postrider/internal/units"
)

// None is the text of the zero Rate.
const None = "none"

// leastBytes is the smallest limit in bytes. A row is counted in pieces of a tenth of the limit:
// with a lower one, those of the largest row would take longer to count than to send.
const leastBytes = 1 << 10

// Rate is a limit of what is published in a second. A zero member sets no limit.
type Rate struct {
	Rows  int64 // rows, which are messages
	Bytes int64 // of keys, values and headers
}

// TopicRate limits topics, all of them together.
type TopicRate struct {
	Topics []string // names, or patterns in which * stands for any characters
	Rate   Rate
}

// Parse reads "5000 rows/s", "10MiB/s", "5000 rows/s, 10MiB/s" or "none".
func Parse(text string) (Rate, error) {
	var r Rate
	if strings.TrimSpace(text) == None {
		return r, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		number, ofRows := strings.CutSuffix(part, "rows/s")
		size, perSecond := strings.CutSuffix(part, "/s")
		limit, least := &r.Bytes, int64(leastBytes)
		var n int64
		var err error
		switch {
		case ofRows:
			limit, least = &r.Rows, 1
			n, err = strconv.ParseInt(strings.TrimSpace(number), 10, 64)
		case perSecond:
			n, err = units.ParseSize(size)
		default:
			err = errors.New("no rate")
		}
		switch {
		case err != nil:
			return Rate{}, fmt.Errorf(
				`expected a rate such as "5000 rows/s", "10MiB/s" or both with a comma, or "none", got %q`,
				text)
		case n < least:
			return Rate{}, fmt.Errorf(`%q is too low: at least "1 rows/s" or "1KiB/s"; "none" sets no `+
				"limit, and postrider pause stops the relay", part)
		case *limit > 0:
			return Rate{}, fmt.Errorf("%q has two limits of one kind", text)
		}
		*limit = n
	}
	return r, nil
}

// String is the rate as Parse reads it.
func (r Rate) String() string {
	var parts []string
	if r.Rows > 0 {
		parts = append(parts, fmt.Sprintf("%d rows/s", r.Rows))
	}
	if r.Bytes > 0 {
		parts = append(parts, units.FormatSize(r.Bytes)+"/s")
	}
	if parts == nil {
		return None
	}
	return strings.Join(parts, ", ")
}

// MarshalText implements encoding.TextMarshaler.
func (r Rate) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (r *Rate) UnmarshalText(text []byte) (err error) {
	*r, err = Parse(string(text))
	return err
}
