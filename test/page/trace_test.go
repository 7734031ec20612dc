package page

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"
)

// find searches for an event until the page shows the answer: the server refuses searches that follow at once.
func (p *tab) find(id, shown string) {
	p.t.Helper()
	p.await("the answer: "+shown, fmt.Sprintf(`(() => {
		if (document.getElementById('trace').textContent.includes(%q)) return true;
		const form = document.getElementById('find-event');
		if (form.querySelector('button').disabled) return false;
		form.elements.id.value = %q;
		form.requestSubmit();
		return false;
	})()`, shown, id))
}

// The page shows whatever a search finds as text, and why there is none.
func TestPage_FindsAnEvent(t *testing.T) {
	const evil = `<img src=x onerror="window.hacked=1">`
	now := time.Now()
	s := healthy(now)
	s.trace = func(_ context.Context, id string) (int, any) {
		if id != "a b" {
			return http.StatusForbidden, doc{"error": evil + " cannot be searched", "next": "GRANT SELECT ON outbox TO relay;"}
		}
		event := doc{
			"state": "published", "id": id, "row": doc{"table": evil, "columns": []doc{}, "xid": 812}, "commit": doc{"lsn": "16/B374D848", "passed": true},
			"legs":         []doc{{"name": "inserted", "at": now, "by": "column created_at"}, {"name": "committed", "at": now, "by": evil, "seconds": -0.25}},
			"records":      []doc{{"topic": "orders", "partition": 2, "offset": 4711}, {"topic": "orders", "partition": 2, "offset": 4720}},
			"dead_letters": []doc{{"id": "ff", "cause": evil, "relation": "public.outbox"}},
		}
		return http.StatusOK, doc{
			"state": "published", "answer": "event a b is published: topic orders, partition 2, offset 4711", "why": evil, "next": "postrider deadletter list",
			"events": []doc{event}, "notes": []string{evil},
			"searched": doc{"tables": []string{evil}, "topics": []doc{{"topic": "orders", "partition": 2, "from": 1, "to": 5, "end": 9, "complete": false}}},
		}
	}
	base, _ := s.serve(t, "")
	p := open(t, base, 1280, 900)
	p.do(chromedp.Focus("#find-event input"))
	p.press("a b")
	p.press(kb.Enter)
	p.await("the answer", "document.getElementById('trace').textContent.includes('is published')")
	for _, shown := range []string{"offset 4711", "repetition 1", "offset 4720", "16/B374D848", "has passed it", "limit reached", "−250 ms", evil} {
		require.Contains(t, p.text("#trace"), shown)
	}
	p.screenshot("traced")
	require.True(t, eval[bool](p, "window.hacked === undefined && !document.querySelector('#trace img')"))
	p.requireQuiet()
	p.resize(390, 844)
	require.LessOrEqual(t, eval[int](p, "document.documentElement.scrollWidth"), 390)
	p.screenshot("traced-narrow")

	p.find("other", "cannot be searched")
	require.Contains(t, p.text("#trace"), "GRANT SELECT ON outbox TO relay;")
	for _, line := range p.console() {
		require.Contains(t, line, "the server responded with a status of 4", "the browser's own words about the answer")
	}
}

func TestPage_HasNoSearchWithoutOne(t *testing.T) {
	base, _ := healthy(time.Now()).serve(t, "")
	p := open(t, base, 1280, 900)
	require.True(t, eval[bool](p, "document.getElementById('trace').hidden"))
}
