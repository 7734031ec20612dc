package faults

import (
	"encoding/binary"
	"fmt"
	"net/http"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hamba/avro/v2"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/sr"
	"github.com/twmb/franz-go/pkg/sr/srfake"

	"github.com/postrider/postrider/test/parts"
)

// avroText reads a value that is one text, or NULL.
func avroText(t *testing.T, registry *srfake.Registry) func([]byte) []byte {
	t.Helper()
	api, err := sr.NewClient(sr.URLs(registry.URL()))
	require.NoError(t, err)
	schemas := map[uint32]avro.Schema{}
	return func(value []byte) []byte {
		id := binary.BigEndian.Uint32(value[1:])
		if schemas[id] == nil {
			has, err := api.SchemaByID(t.Context(), int(id))
			require.NoError(t, err)
			schemas[id], err = avro.ParseWithCache(has.Schema, "", &avro.SchemaCache{})
			require.NoError(t, err)
		}
		var text any
		require.NoError(t, avro.Unmarshal(schemas[id], value[5:], &text))
		if union, ok := text.(map[string]any); ok {
			text = union["string"]
		}
		return []byte(text.(string))
	}
}

func TestFault45_ARegistryThatIsAwayHoldsUpNewSchemasAlone(t *testing.T) {
	t.Parallel()
	registry := srfake.New()
	t.Cleanup(registry.Close)
	var away atomic.Bool
	var refused atomic.Int64
	registry.Intercept(func(w http.ResponseWriter, _ *http.Request) bool {
		if away.Load() {
			refused.Add(1)
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		return away.Load()
	})
	r := newRig(t, server(t, parts.AnyVersion), parts.RealKafka(t))
	r.decode = avroText(t, registry)
	r.settings["format.value"] = `"avro"`
	r.settings["registry.urls"] = "[" + quote(registry.URL()) + "]"
	p := r.started(t)
	l := r.load(t, 100)
	rounds := full(t, 2, 50)
	for range rounds {
		l.more(t, 100)
		r.caughtUp(t)
		away.Store(true)
		l.more(t, 100)
		r.caughtUp(t) // the schema is known
		before := refused.Load()
		p.signal(t, syscall.SIGKILL)
		_ = p.Wait(t)
		p = r.start(t)
		l.more(t, 50)
		eventually(t, time.Minute, "requests that are refused", func() bool { return refused.Load() >= before+3 })
		away.Store(false)
		p.streams(t, time.Minute)
	}
	l.end(t)
	r.drained(t, time.Minute)
	p.stop(t)
	v := r.judge(t)
	requireNothingLost(t, v)
	matrix(t, 45, "", fmt.Sprintf("away %d times, with a kill each", rounds))
}
