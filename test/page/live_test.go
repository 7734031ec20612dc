package page

import (
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/health"
	"github.com/postrider/postrider/test/parts"
)

func TestPage_ComesBackWithTheRelay(t *testing.T) {
	s := healthy(time.Now())
	base, stop := s.serve(t, "")
	p := open(t, base, 1280, 900)
	p.requireQuiet()

	stop()
	p.await("a word that nobody answers", "document.documentElement.dataset.stream === 'lost' && !document.getElementById('banner').hidden")
	require.Contains(t, p.text("#banner"), "the relay does not answer")
	require.Contains(t, p.text("#banner"), "Everything below is as it was at")
	require.Equal(t, "No data · orders · postrider", eval[string](p, "document.title"))
	require.Contains(t, p.text("#verdict"), "No data", "what was well need not be well now")
	require.Contains(t, p.text("#verdict"), "streaming for 3h12m", "what was known is still to be read")
	p.await("an age", "/Data is \\d+s old/.test(document.getElementById('banner').textContent)")
	p.screenshot("lost")

	s.set("verdict", health.Verdict{State: health.Degraded, Reason: "the first session is not open yet"})
	s.serve(t, strings.TrimPrefix(base, "http://"))
	p.await("live again", "document.documentElement.dataset.stream === 'live' && document.getElementById('banner').hidden")
	p.await("the new verdict", "document.getElementById('verdict').textContent.includes('the first session')")
	require.Equal(t, "Degraded · orders · postrider", eval[string](p, "document.title"))
	for _, line := range p.console() {
		require.Contains(t, line, "net::ERR_", "only the browser's own words about the connection")
	}
	p.requireQuiet()
}

func TestPage_IsLoadedAnewWithANewBinary(t *testing.T) {
	s := healthy(time.Now())
	base, _ := s.serve(t, "")
	p := open(t, base, 1280, 900)
	p.do(chromedp.Evaluate[chromedp.Void]("window.old = true"))
	s.set("build", doc{"version": "v1.0.0"})
	p.await("the page of the new binary", "window.old === undefined && document.getElementById('build')?.textContent.includes('v1.0.0')")
	p.requireQuiet()
}

func TestPage_SaysHowOldTheDataIsWhenTheNetworkStalls(t *testing.T) {
	base, _ := healthy(time.Now()).serve(t, "")
	proxy, err := parts.StartProxy(strings.TrimPrefix(base, "http://"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, proxy.Close()) })
	p := open(t, "http://"+proxy.Addr(), 1280, 900)
	proxy.Stall()
	p.await("the age of the data", "/Data is \\d+s old/.test(document.getElementById('banner').textContent) && !document.getElementById('banner').hidden")
	p.screenshot("stalled")
	proxy.Resume()
	p.await("live again", "document.documentElement.dataset.stream === 'live'")
	require.True(t, eval[bool](p, "document.getElementById('banner').hidden"))
	p.requireQuiet()
}

func TestPage_AgesTick(t *testing.T) {
	s := healthy(time.Now())
	base, _ := s.serve(t, "")
	p := open(t, base, 1280, 900)
	first := p.text("#build time")
	p.await("an age that has grown", "document.querySelector('#check time').textContent !== "+quoted(p.text("#check time")))
	require.NotEmpty(t, first)
	p.requireQuiet()
}

func quoted(s string) string { return "'" + s + "'" }
