package faults

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/test/parts"
)

// tokenRig is a rig whose relay logs in to the broker by OAUTHBEARER.
func tokenRig(t *testing.T, lifetime time.Duration) (*rig, *parts.OIDC) {
	t.Helper()
	o := parts.NewOIDC(t, lifetime)
	r := newRig(t, server(t, parts.AnyVersion), parts.ExclusiveKafka(t, o.Listener()))
	r.settings["sink.kafka.sasl.mechanism"] = `"OAUTHBEARER"`
	r.settings["sink.kafka.sasl.oauth.token_url"] = quote(o.TokenURL())
	r.settings["sink.kafka.sasl.oauth.client_id"] = quote(parts.OIDCClient)
	r.settings["sink.kafka.sasl.oauth.client_secret"] = quote(parts.OIDCSecret)
	return r, o
}

func TestFault44_TokensOfTenSecondsEndNoSession(t *testing.T) {
	t.Parallel()
	r, o := tokenRig(t, 10*time.Second)
	p := r.started(t)
	l := r.load(t, 100)
	n := int64(full(t, 2, 65)) // of tokens: one lasts nine seconds
	eventually(t, 15*time.Minute, "tokens issued", func() bool { p.requireRunning(t); return o.Issued.Load() > n })
	l.end(t)
	r.drained(t, time.Minute)
	require.Zero(t, p.Log.Count(`"session ended"`))
	require.Zero(t, p.Log.Count(parts.OIDCSecret), "the secret in the log")
	p.stop(t)
	requireExact(t, r.judge(t))
	matrix(t, 44, "renewal", fmt.Sprintf("%d tokens of 10 s, 1 session", o.Issued.Load()))
}

// away answers requests for tokens like answer until there were n of them.
func (r *rig) away(t *testing.T, o *parts.OIDC, n int64, answer func(*parts.OIDC)) {
	t.Helper()
	before := o.Requests.Load()
	answer(o)
	eventually(t, 2*time.Minute, "refused requests for tokens", func() bool { return o.Requests.Load() >= before+n })
	o.Answer(nil)
}

func TestFault44_AProviderThatIsAwayEndsNoSession(t *testing.T) {
	t.Parallel()
	r, o := tokenRig(t, 5*time.Second)
	p := r.started(t)
	l := r.load(t, 100)
	rounds := full(t, 1, 20)
	for range rounds {
		l.more(t, 200)
		r.away(t, o, 10, func(o *parts.OIDC) {
			o.Answer(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
		})
	}
	l.more(t, 100)
	l.end(t)
	r.drained(t, time.Minute)
	require.Zero(t, p.Log.Count(`"session ended"`))
	p.stop(t)
	requireExact(t, r.judge(t))
	matrix(t, 44, "away", fmt.Sprintf("%d times until after the end of the token, 1 session", rounds))
}

func TestFault44_ARefusalKeepsTheWALAndSaysWhatToDo(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		refuse, accept func(*parts.OIDC)
		text           string
	}{
		"by the provider": {
			func(o *parts.OIDC) { o.Refuse(http.StatusUnauthorized, "invalid_client", "the secret was rotated") },
			func(o *parts.OIDC) { o.Answer(nil) },
			"check sink.kafka.sasl.oauth.client_id and client_secret",
		},
		"by the broker": {
			func(o *parts.OIDC) { o.Claims(map[string]any{"aud": "elsewhere"}) },
			func(o *parts.OIDC) { o.Claims(nil) },
			"compare issuer, audience, scope and lifetime",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, o := tokenRig(t, 5*time.Second)
			p := r.started(t)
			l := r.load(t, 100)
			rounds := full(t, 1, 20)
			for i := range rounds {
				l.more(t, 100)
				tt.refuse(o)
				eventually(t, time.Minute, "a session that ends", func() bool { return p.Log.Count(`"session ended"`) > i })
				l.more(t, 100)
				tt.accept(o)
				p.streams(t, time.Minute)
			}
			l.end(t)
			r.drained(t, time.Minute)
			require.Positive(t, p.Log.Count(tt.text))
			require.Zero(t, p.Log.Count(parts.OIDCSecret), "the secret in the log")
			p.stop(t)
			v := r.judge(t)
			requireNothingLost(t, v)
			matrix(t, 44, name, fmt.Sprintf("refused %d times, %d sessions ended", rounds, p.Log.Count(`"session ended"`)))
		})
	}
}
