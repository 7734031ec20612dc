package monitor

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPresence_CountsReturns(t *testing.T) {
	type answer struct {
		started int64 // zero: refused
		standby bool
	}
	refused, first, second, standby := answer{}, answer{started: 1}, answer{started: 2}, answer{started: 2, standby: true}
	for name, c := range map[string]struct {
		answers []answer
		returns int
	}{
		"there from the beginning":      {[]answer{first, first, first}, 0},
		"awaited from the beginning":    {[]answer{refused, refused, first}, 1},
		"away":                          {[]answer{first, refused, refused}, 0},
		"away and back as it was":       {[]answer{first, refused, refused, first}, 1},
		"away and restarted":            {[]answer{first, refused, second}, 1},
		"restarted between two answers": {[]answer{first, second}, 1},
		"twice":                         {[]answer{first, refused, second, refused, second}, 2},
		"a standby from the beginning":  {[]answer{standby, standby}, 0},
		"a standby that is promoted":    {[]answer{standby, standby, second}, 1},
		"another server that is a standby, and then promoted": {[]answer{first, standby, second}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPresence()
			for _, a := range c.answers {
				if a == refused {
					p.failed()
				} else {
					p.answered(time.Unix(a.started, 0), a.standby)
				}
			}
			require.Equal(t, c.returns, p.Returns())
		})
	}
}
