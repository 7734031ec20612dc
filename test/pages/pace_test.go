package pages

import (
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/test/parts"
)

// figures are what differs from run to run.
var figures = regexp.MustCompile(`\d[0-9a-z]*`)

func TestPace_DoesWhatThePageSays(t *testing.T) {
	t.Parallel()
	p, s := open(t, "PACE.md"), newSite(t, outbox)
	settings := p.block("[relay]")
	s.configure(settings)
	require.Contains(t, s.run("postrider config print"), `"5000 rows/s, 10MiB/s"`)
	// A hundred times slower than the page.
	s.configure(strings.Replace(settings, "5000 rows/s, 10MiB/s", "50 rows/s", 1))
	r := s.start()
	for range 600 {
		s.insert(10)
	}
	degraded := p.block("degraded: the oldest transaction in flight was committed")
	_, said, _ := strings.Cut(strings.TrimSpace(degraded), "ago: ")
	parts.Await(t, "the status to name the limit", func() (bool, error) {
		return strings.Contains(figures.ReplaceAllString(s.get(r, "/status"), "0"), figures.ReplaceAllString(said, "0")), nil
	})
	never := p.inline("never at this rate: relay.max_rate lets 500 rows/s through, and about 900 rows/s come in")
	require.Contains(t, never, "relay.max_rate") // TestVerdict of internal/health has its text

	s.configure(settings)
	require.NoError(t, r.Signal(syscall.SIGHUP))
	limit := regexp.MustCompile(`postrider_relay_rate_limit_rows_per_second{.*limit="relay.max_rate".*} 5000\n`)
	parts.Await(t, "the limit of the page", func() (bool, error) { return limit.MatchString(s.metrics(r)), nil })
	p.exports(s, r, "postrider_relay_rate_")
	s.configure(strings.Replace(settings, `"5000 rows/s, 10MiB/s"`, p.inline(`"none"`), 1))
	require.NoError(t, r.Signal(syscall.SIGHUP))
	parts.Await(t, "no limit", func() (bool, error) { return !limit.MatchString(s.metrics(r)), nil })
	require.Len(t, s.broker.Consume(t, s.topic, 6000), 6000)
	require.Equal(t, 1, r.Log.Count("streaming started"), "no session ends")
}
