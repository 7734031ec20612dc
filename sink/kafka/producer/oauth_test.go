package producer

import (
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/credentials"
	"github.com/postrider/postrider/internal/secret"
	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/sink/kafka"
	"github.com/postrider/postrider/test/parts"
)

func withTokens(b *parts.Broker, o *parts.OIDC) kafka.Config {
	cfg := real(b)
	cfg.SASL.Mechanism = "OAUTHBEARER"
	cfg.SASL.OAuth = credentials.OIDC{TokenURL: o.TokenURL(), ClientID: parts.OIDCClient,
		ClientSecret: secret.Of(parts.OIDCSecret)}
	return cfg
}

// Sessions of the broker end with their tokens. The same session of the relay goes on.
func TestOAuth_TokensAreRenewedInTheMiddleOfAStream(t *testing.T) {
	t.Parallel()
	o := parts.NewOIDC(t, 4*time.Second)
	b := parts.ExclusiveKafka(t, o.Listener())
	topic := b.Topic(t, 3)
	got := newOutcomes()
	s := openSink(t, withTokens(b, o), got.done)
	sent := 0
	for begin := o.Issued.Load(); o.Issued.Load() < begin+4; {
		ms := numbered(topic, sent+50)[sent:]
		sent += len(ms)
		require.NoError(t, s.Publish(parts.Within(t, patience), ms))
		got.wait(t, sent)
	}
	for _, outcome := range got.wait(t, sent) {
		require.NoError(t, outcome.err)
	}
	requireInOrder(t, b.Consume(t, topic, sent), sent)
	require.NoError(t, s.Close(parts.Within(t, patience)))
}

// The provider is away for longer than a token lasts: the session waits, as for a broker.
func TestOAuth_OutlastsAProviderThatIsAway(t *testing.T) {
	t.Parallel()
	o := parts.NewOIDC(t, 5*time.Second)
	b := parts.ExclusiveKafka(t, o.Listener())
	topic := b.Topic(t, 3)
	got := newOutcomes()
	s := openSink(t, withTokens(b, o), got.done)
	require.NoError(t, s.Publish(parts.Within(t, patience), numbered(topic, 0+300)[0:]))
	got.wait(t, 300)

	var enough sync.WaitGroup
	enough.Add(5)
	var once [5]sync.Once
	o.Answer(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
		for i := range once {
			first := false
			if once[i].Do(func() { first = true }); first {
				enough.Done()
				return
			}
		}
	})
	sent := 300
	refused := make(chan struct{})
	go func() { enough.Wait(); close(refused) }()
	publish := func() {
		ms := numbered(topic, sent+10)[sent:]
		sent += len(ms)
		require.NoError(t, s.Publish(parts.Within(t, patience), ms))
	}
	for waiting := true; waiting; {
		select {
		case <-refused:
			waiting = false
		case <-time.After(100 * time.Millisecond): // the pace of new rows
			publish()
		}
	}
	o.Answer(nil)
	for _, outcome := range got.wait(t, sent) {
		require.NoError(t, outcome.err)
	}
	requireInOrder(t, b.Consume(t, topic, sent), sent)
	require.NoError(t, s.Close(parts.Within(t, patience)))
}

func TestOAuth_SaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	o := parts.NewOIDC(t, time.Hour)
	b := parts.ExclusiveKafka(t, o.Listener())
	cfg := withTokens(b, o)
	requireDeliversTo(t, cfg, b.Topic(t, 1))

	fails := func(t *testing.T, cfg kafka.Config, class error, texts ...string) {
		t.Helper()
		_, err := Open(parts.Within(t, patience), cfg, zerolog.Nop(), newOutcomes().done)
		t.Log(err)
		require.ErrorIs(t, err, class)
		require.NotContains(t, err.Error(), "canary")
		for _, text := range texts {
			require.ErrorContains(t, err, text)
		}
	}
	fresh := func() kafka.Config { return withTokens(b, o) } // no token is kept

	wrong := fresh()
	wrong.SASL.OAuth.ClientSecret = secret.Of("wr0ng-canary")
	fails(t, wrong, sink.ErrAuthentication, "invalid_client", "sink.kafka.sasl.oauth.client_id")

	for name, claims := range map[string]map[string]any{
		"other audience": {"aud": "elsewhere"},
		"other issuer":   {"iss": "https://elsewhere.example"},
		"ended":          {"exp": time.Now().Add(-time.Hour).Unix()},
	} {
		t.Run(name, func(t *testing.T) {
			o.Claims(claims)
			defer o.Claims(nil)
			fails(t, fresh(), sink.ErrAuthentication, "refused the token: invalid_token", "issuer, audience")
		})
	}
	o.Refuse(http.StatusBadRequest, "invalid_scope", "no such scope\nforged line")
	fails(t, fresh(), sink.ErrAuthentication, "invalid_scope: no such scope forged line", "oauth.scope")
	o.Answer(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte("<html>"))
	})
	fails(t, fresh(), sink.ErrUnreachable, "not a token", "token_url")
	o.Answer(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"access_token":"a\u0001auth=b-canary","token_type":"Bearer"}`))
	})
	fails(t, fresh(), sink.ErrUnreachable, "characters that no bearer token has")
	o.Answer(nil)

	hung := make(chan struct{})
	o.Answer(func(http.ResponseWriter, *http.Request) { <-hung })
	defer close(hung)
	silent := fresh()
	silent.DialTimeout = 300 * time.Millisecond
	fails(t, silent, sink.ErrUnreachable, "no answer in time")
}

// A broker without OAUTHBEARER, and a client without it.
func TestOAuth_NamesTheMechanism(t *testing.T) {
	t.Parallel()
	o := parts.NewOIDC(t, time.Hour)
	b := parts.ExclusiveKafka(t, o.Listener())
	cfg := real(b)
	cfg.SASL.Mechanism, cfg.SASL.Username, cfg.SASL.Password = "PLAIN", "rider", secret.Of("s3cret-canary")
	err := openFails(t, cfg)
	require.ErrorIs(t, err, sink.ErrAuthentication)
	require.ErrorContains(t, err, "sink.kafka.sasl.mechanism")
}
