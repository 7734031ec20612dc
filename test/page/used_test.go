package page

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/check"
	"github.com/postrider/postrider/internal/health"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/slot/monitor"
)

func TestPage_TopicNamesAreText(t *testing.T) {
	const evil = `<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>`
	now := time.Now()
	s := inTrouble(now)
	list := topics(now)
	list[0]["topic"], list[0]["warnings"] = evil, []string{evil}
	s.set("topics", doc{"topics": list})
	s.set("events", doc{"events": []relay.Published{{At: now, Topic: evil, Relation: evil, EventID: evil, LSN: evil}}})
	s.set("errors", doc{"errors": []doc{{"reason": evil, "class": evil, "count": 1, "first_seen": now, "last_seen": now, "text": evil, "wal": evil, "next": evil, "runbook": evil}}})
	s.set("verdict", health.Verdict{
		State: health.Failing, Reason: evil, WAL: evil, Next: evil, Runbook: evil,
		Conditions: []health.Condition{{Name: evil, Severity: health.Critical, Reason: evil, Cause: evil}, {Name: evil, Severity: evil, Reason: "second"}},
	})
	o := observation(now)
	o.Slot.Name, o.Slot.Error, o.Slot.InvalidationReason = evil, evil, evil
	o.Blockers = []monitor.Blocker{{Kind: evil, Application: evil, User: evil, Database: evil, State: evil, GID: evil}}
	o.Standbys = []monitor.StandbySlot{{Name: evil}}
	o.Notes = []monitor.Note{{Value: evil, Text: evil}}
	o.Events = []monitor.Event{{Code: evil, Text: evil}}
	s.set("slot", o)
	p := pipeline(now)
	p["error"], p["phase"], p["snapshot"] = evil, evil, doc{"table": evil, "rows": 1, "estimated_rows": 2}
	s.set("pipeline", p)
	s.set("check", doc{"findings": []check.Finding{{Severity: evil, Code: evil, Subject: evil, Observed: evil, Required: evil, Fix: evil}}})
	s.set("config", doc{"file": evil, "values": []doc{{"key": evil, "value": evil, "origin": evil}}})
	s.set("build", doc{"version": evil, "commit": evil, "go_version": evil, "server_version": evil})

	base, _ := s.serve(t, "")
	page := open(t, base, 1280, 900)
	for _, part := range pageParts {
		if part != "history" {
			require.Contains(t, eval[string](page, fmt.Sprintf("document.getElementById(%q).textContent", part)), "<img src=x onerror=", part)
		}
	}
	require.Zero(t, eval[int](page, "document.querySelectorAll('main img, main script, main iframe').length"))
	require.True(t, eval[bool](page, "window.hacked === undefined"))
	require.Empty(t, eval[[]string](page, "[...document.querySelectorAll('main a')].map((a) => a.href).filter((to) => !to.startsWith(location.origin))"))
	page.screenshot("evil")
	page.requireQuiet()
}

func TestPage_PausesEvents(t *testing.T) {
	now := time.Now()
	s := healthy(now)
	base, _ := s.serve(t, "")
	p := open(t, base, 1280, 900)
	ids := "[...document.querySelectorAll('#events tbody tr')].map((r) => r.dataset.key).join()"
	first := eval[string](p, ids)
	p.do(chromedp.Click("#pause"))
	require.Equal(t, "Resume", p.text("#pause"))
	require.Equal(t, "true", eval[string](p, "document.getElementById('pause').ariaPressed"))

	s.set("events", doc{"events": append([]relay.Published{{At: now.Add(time.Second), Topic: "outbox.event.new", LSN: "5/A3B11400"}}, events(now)[:99]...)})
	p.await("a word of what is newer", "document.querySelector('[data-view=paused]').textContent.includes('1 newer')")
	require.Equal(t, first, eval[string](p, ids), "what is paused stays")
	p.screenshot("paused")

	p.do(chromedp.Click("#pause"))
	p.await("the newest event", "document.querySelector('#events tbody tr').textContent.includes('outbox.event.new')")
	p.requireQuiet()
}

func TestPage_IsUsedByKeyboard(t *testing.T) {
	s := inTrouble(time.Now())
	base, _ := s.serve(t, "")
	p := open(t, base, 1280, 900)

	p.press(kb.Tab)
	require.Equal(t, "Skip to the verdict", p.text(":focus"))
	require.True(t, eval[bool](p, "document.activeElement.getBoundingClientRect().top >= 0"), "it can be seen now")
	p.press(kb.Enter)
	p.await("the verdict in focus", "document.activeElement.id === 'verdict'")

	// Every stop on the way, until it begins anew.
	stops, unseen := []string{}, []string{}
	for range 200 {
		p.press(kb.Tab)
		stop := eval[string](p, `(() => {
			const e = document.activeElement;
			if (e === document.body || e.classList.contains('skip')) return '';
			const seen = getComputedStyle(e).outlineStyle !== 'none' && e.getBoundingClientRect().height > 0;
			return (seen ? '' : 'UNSEEN ') + [e.localName, e.id || e.dataset.action || e.ariaLabel || e.textContent.trim().slice(0, 30)].join(' ');
		})()`)
		if stop == "" {
			break
		}
		if strings.HasPrefix(stop, "UNSEEN") {
			unseen = append(unseen, stop)
		}
		stops = append(stops, stop)
	}
	require.Empty(t, unseen, "stops without a visible focus")
	for _, wanted := range []string{
		"button copy", "a Runbook: Postrider", "div Blockers", "div Topics", "button sort", "div Recent events", "button pause", "input all-keys", "input filter-keys", "summary 13 in order",
	} {
		require.True(t, slices.ContainsFunc(stops, func(stop string) bool { return strings.HasPrefix(stop, wanted) }), "no stop at %q:\n%s", wanted, strings.Join(stops, "\n"))
	}

	press := func(selector, key string) {
		p.do(chromedp.Focus(selector))
		p.press(key)
	}
	press("#pause", " ")
	p.await("paused events", "document.getElementById('pause').ariaPressed === 'true'")
	press("#verdict .conditions summary", kb.Enter)
	p.await("an unfolded condition", "document.querySelector('#verdict details').open && document.querySelector('#verdict details .command').checkVisibility()")
	press("#topics th:nth-child(2) button", kb.Enter)
	p.await("topics by rate", "document.querySelector('#topics th:nth-child(2)').ariaSort === 'descending'")
	require.Contains(t, p.text("#topics tbody tr"), "outbox.event.order")
	press("#filter-keys", "sasl")
	p.await("the keys with sasl", "document.querySelectorAll('#config tbody tr').length === 1")

	plot := `.chart[data-key="Lag"] .plot`
	press(plot, kb.ArrowLeft)
	p.await("a moment under the cursor", "/^at \\d/.test(document.querySelector('#history .at').textContent)")
	newest := p.text("#history .at")
	p.press(kb.Home)
	p.await("the oldest moment", fmt.Sprintf("document.querySelector('#history .at').textContent !== %q", newest))
	require.Contains(t, p.text(`.chart[data-key="Lag"] figcaption`), "KiB")
	require.Equal(t, 5, eval[int](p, "document.querySelectorAll('.cursor').length"), "in every chart")
	p.requireQuiet()
}

func TestPage_KeepsFocusAndWhatIsUnfoldedWhileItChanges(t *testing.T) {
	s := inTrouble(time.Now())
	base, _ := s.serve(t, "")
	p := open(t, base, 1280, 900)
	p.do(chromedp.Click("#verdict .conditions details summary"), chromedp.Focus("#verdict .conditions details .command button"))
	p.await("focus", "document.activeElement.textContent === 'Copy'")

	v := s.get("verdict").(health.Verdict)
	v.Reason = "something else"
	conditions := slices.Clone(v.Conditions)
	conditions[1].Reason = "501 messages are in flight"
	v.Conditions = slices.Insert(conditions, 1, health.Condition{Name: "PostriderPaused", Severity: health.Warning, Reason: "paused"})
	s.set("verdict", v)
	p.await("the new condition", "document.getElementById('verdict').textContent.includes('501 messages')")
	require.Equal(t, "Copy", p.text(":focus"))
	require.Equal(t, 1, eval[int](p, "document.querySelectorAll('#verdict details[open]').length"))
	require.Contains(t, p.text("#verdict details[open]"), "501 messages")
	p.requireQuiet()
}

func TestPage_CopiesTheCommandWithoutItsRemark(t *testing.T) {
	s := healthy(time.Now())
	s.set("verdict", health.Verdict{State: health.Failing, Reason: "the slot nears its limit", Next: "ALTER SYSTEM SET max_slot_wal_keep_size = '16GB'; SELECT pg_reload_conf(); -- if the disk has room"})
	base, _ := s.serve(t, "")
	p := open(t, base, 1280, 900)
	// A headless browser has no clipboard of a person's: the page's call is what can be seen.
	p.do(chromedp.Evaluate[chromedp.Void](`Object.defineProperty(navigator, 'clipboard', { value: { writeText: async (text) => { window.copied = text; } } })`))
	p.do(chromedp.Click("#verdict .finding .command button"))
	p.await("a copy", "window.copied !== undefined")
	require.Equal(t, "ALTER SYSTEM SET max_slot_wal_keep_size = '16GB'; SELECT pg_reload_conf();", eval[string](p, "window.copied"))
	require.Contains(t, p.text("#verdict"), "if the disk has room")
	s.set("verdict", health.Verdict{State: health.Failing, Reason: "no topic", Next: "kafka-topics.sh --create --topic a   # for one\nor let the relay create it"})
	p.await("a line for each alternative", "document.querySelector('#verdict .command code').textContent === 'kafka-topics.sh --create --topic a' && document.querySelector('#verdict .explained').textContent.includes('or let the relay')")
	s.set("verdict", health.Verdict{State: health.Failing, Reason: "the slot nears its limit", Next: "ask the owner of the database"})
	p.await("a sentence, which is not copied", "document.querySelector('#verdict .explained').textContent.includes('ask the owner') && !document.querySelector('#verdict .command')")
	p.requireQuiet()
}

func TestPage_ThemeIsKept(t *testing.T) {
	base, _ := healthy(time.Now()).serve(t, "")
	p := open(t, base, 1280, 900)
	p.colours("light")
	background := "getComputedStyle(document.documentElement).backgroundColor"
	light := eval[string](p, background)
	p.do(chromedp.Click("[data-action=theme]"), chromedp.Click("[data-action=theme]"))
	require.Equal(t, "Theme: dark", p.text("[data-action=theme]"))
	dark := eval[string](p, background)
	require.NotEqual(t, light, dark)
	p.navigate()
	require.Equal(t, dark, eval[string](p, background), "after it was opened again")
	p.do(chromedp.Click("[data-action=theme]"))
	require.Equal(t, "Theme: auto", p.text("[data-action=theme]"))
	require.Equal(t, light, eval[string](p, background))
	p.colours("dark")
	require.Equal(t, dark, eval[string](p, background), "as the system prefers")
	p.requireQuiet()
}

func TestPage_TakesManyTopicsWithLongNames(t *testing.T) {
	now := time.Now()
	s := healthy(now)
	var many []doc
	for i := range 200 {
		topic := maps.Clone(topics(now)[i%4])
		topic["topic"] = fmt.Sprintf("%03d-%s", i, strings.Repeat("long.", 49))
		many = append(many, topic)
	}
	s.set("topics", doc{"topics": many})
	base, _ := s.serve(t, "")
	p := open(t, base, 380, 900)
	require.Equal(t, 200, eval[int](p, "document.querySelectorAll('#topics tbody tr').length"))
	require.LessOrEqual(t, eval[int](p, "document.scrollingElement.scrollWidth"), 380)
	p.screenshot("many-topics")
	p.requireQuiet()
}
