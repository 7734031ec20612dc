package page

import (
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// One value far above all others is marked, and the others are still to be told apart.
func TestPage_AnOutlierDoesNotFlattenTheChart(t *testing.T) {
	now := time.Now()
	s := healthy(now)
	samples := pastHour(now)
	samples[len(samples)/2].LatencyP99 = new(90.0)
	s.set("history", doc{"interval_seconds": 10, "samples": samples})
	base, _ := s.serve(t, "")
	p := open(t, base, 1280, 900)
	p.requireQuiet()
	const figure = `document.querySelector('[data-key="Commit to acknowledgement"]')`
	require.Contains(t, eval[string](p, figure+".querySelector('.top-value').textContent"), "▲ 1m 30s")
	require.Positive(t, eval[float64](p, figure+".querySelector('.beyond').getBBox().width"))
	spread := eval[float64](p, `(() => {
		const at = `+figure+`.querySelector('.line.b').getAttribute('d').matchAll(/[ML][\d.]+ ([\d.]+)/g);
		const heights = [...at].map((m) => 56 - Number(m[1])).sort((a, b) => a - b);
		return heights[Math.floor(heights.length / 2)];
	})()`)
	require.Greater(t, spread, 56*0.1, "half of the values are drawn above this, of 56")
	p.screenshot("outlier")
}

func TestRunbook_IsAPageOfItsOwn(t *testing.T) {
	base, _ := healthy(time.Now()).serve(t, "")
	p := blank(t, base, 1280, 900)
	p.do(chromedp.Navigate(base + "/runbook/postriderslotnearloss"))
	for _, scheme := range []string{"light", "dark"} {
		p.colours(scheme)
		for _, width := range []int64{1280, 390} {
			p.resize(width, 900)
			p.screenshot("runbook-" + scheme)
			require.LessOrEqual(t, eval[int64](p, "document.scrollingElement.scrollWidth"), width, "it scrolls sideways")
			require.Empty(t, eval[[]string](p, poorContrast))
		}
	}
	require.Equal(t, "PostriderSlotNearLoss", eval[string](p, "document.querySelector('main h3').textContent"))
	require.Equal(t, "SLOTS.md%23what-wal_status-says-and-what-to-do", eval[string](p, "document.querySelector('main a').getAttribute('href')"))
	p.requireQuiet()
}
