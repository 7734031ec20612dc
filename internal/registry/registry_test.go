package registry

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"fmt"
	"io"
	"log"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/hamba/avro/v2"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/sr"
	"github.com/twmb/franz-go/pkg/sr/srfake"

	"github.com/postrider/postrider/internal/credentials"
	"github.com/postrider/postrider/internal/secret"
	"github.com/postrider/postrider/router"
	"github.com/postrider/postrider/router/connect"
	"github.com/postrider/postrider/test/parts"
)

func TestMain(m *testing.M) { parts.Main(m) }

// fake is franz-go's registry, which answers like Confluent's, with requests counted.
type fake struct {
	*srfake.Registry
	requests atomic.Int64
}

func newFake(t *testing.T, opts ...srfake.Option) *fake {
	t.Helper()
	f := &fake{Registry: srfake.New(opts...)}
	t.Cleanup(f.Close)
	f.answer(nil)
	return f
}

// answer has requests answered by a function; nil: by the registry.
func (f *fake) answer(answer http.HandlerFunc) {
	f.ClearInterceptors()
	f.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		f.requests.Add(1)
		if answer == nil {
			return false
		}
		answer(w, r)
		return true
	})
}

// refuse answers each request with an error of the registry's API.
func (f *fake) refuse(status, code int, text string) {
	f.answer(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = fmt.Fprintf(w, `{"error_code":%d,"message":%q}`, code, text)
	})
}

func at(urls ...string) Config {
	cfg := DefaultConfig()
	cfg.URLs = urls
	cfg.Timeout = 30 * time.Second
	return cfg
}

func avroFormat() router.Format {
	f := router.DefaultFormat()
	f.Key, f.Value = "avro", "avro"
	return f
}

func opened(t *testing.T, cfg Config, f router.Format) (router.Registries, *Client) {
	t.Helper()
	require.NoError(t, cfg.Validate())
	r, err := Open(cfg, f)
	require.NoError(t, err)
	client, err := New(cfg)
	require.NoError(t, err)
	return r, client
}

func record(name string, fields ...*connect.Field) *connect.Schema {
	return &connect.Schema{Kind: connect.KindStruct, Name: name, Fields: fields}
}

var orderSchema = record("shop.Order", &connect.Field{Name: "id",
	Schema: &connect.Schema{Kind: connect.KindInt64}}, &connect.Field{Name: "note",
	Schema: &connect.Schema{Kind: connect.KindString, Optional: true}})

func order(id int64, note any) *connect.Structure {
	return &connect.Structure{Schema: orderSchema, Values: []any{id, note}}
}

// decode reads framed bytes with the schema that the registry has under their id.
func decode(t *testing.T, f *fake, b []byte) (id int, text string, v any) {
	t.Helper()
	require.Equal(t, byte(0), b[0])
	id = int(binary.BigEndian.Uint32(b[1:]))
	api, err := sr.NewClient(sr.URLs(f.URL()))
	require.NoError(t, err)
	has, err := api.SchemaByID(t.Context(), id)
	require.NoError(t, err)
	parsed, err := avro.ParseWithCache(has.Schema, "", &avro.SchemaCache{})
	require.NoError(t, err)
	require.NoError(t, avro.Unmarshal(parsed, b[5:], &v))
	return id, has.Schema, v
}

func TestWriter_FramesValuesThatTheRegistryDecodes(t *testing.T) {
	f := newFake(t)
	r, _ := opened(t, at(f.URL()), avroFormat())
	b, err := r.Value.Append(nil, "orders", orderSchema, order(7, connect.Text("fragile")))
	require.NoError(t, err)
	id, _, v := decode(t, f, b)
	require.Equal(t, map[string]any{"id": int64(7), "note": map[string]any{"string": "fragile"}}, unwrap(v))
	require.True(t, f.SubjectExists("orders-value"))

	key, err := r.Key.Append(nil, "orders", connect.RequiredString, connect.Text("42"))
	require.NoError(t, err)
	_, _, v = decode(t, f, key)
	require.Equal(t, "42", v)
	require.True(t, f.SubjectExists("orders-key"))

	null, err := r.Value.Append(nil, "orders", orderSchema, nil)
	require.NoError(t, err)
	require.Nil(t, null, "a tombstone")

	// The same schema needs no request; a copy of it, as expanded JSON has in each row, neither.
	before := f.requests.Load()
	copied := *orderSchema
	again, err := r.Value.Append(nil, "orders", &copied, order(8, nil))
	require.NoError(t, err)
	require.Equal(t, uint32(id), binary.BigEndian.Uint32(again[1:])) //nolint:gosec // small
	require.Equal(t, before, f.requests.Load())
}

func unwrap(v any) any {
	m, ok := v.(map[string]any)
	if !ok {
		return v
	}
	if note, ok := m["note"].(string); ok {
		m["note"] = map[string]any{"string": note}
	}
	return m
}

func TestWriter_NamesSubjectsAsConfluentsStrategies(t *testing.T) {
	for strategy, want := range map[string]string{"topic": "orders-value", "record": "shop.Order",
		"topic_record": "orders-shop.Order"} {
		f := newFake(t)
		format := avroFormat()
		format.ValueStrategy = strategy
		r, _ := opened(t, at(f.URL()), format)
		_, err := r.Value.Append(nil, "orders", orderSchema, order(1, nil))
		require.NoError(t, err)
		require.True(t, f.SubjectExists(want), want)
		if strategy != "topic" {
			_, err = r.Value.Append(nil, "orders", connect.RequiredString, connect.Text("x"))
			requireRow(t, err, "its schema is no record")
		}
	}
}

// requireRow checks that an error concerns the row, and its policy.
func requireRow(t *testing.T, err error, text string) {
	t.Helper()
	var row *connect.ValueError
	require.ErrorAs(t, err, &row)
	require.ErrorContains(t, err, text)
	require.NotErrorIs(t, err, connect.ErrRegistry)
}

func TestClient_GoesOnWithKnownSchemasWhileTheRegistryIsAway(t *testing.T) {
	f := newFake(t)
	r, _ := opened(t, at(f.URL()), avroFormat())
	known, err := r.Value.Append(nil, "orders", orderSchema, order(1, nil))
	require.NoError(t, err)
	for name, answer := range map[string]http.HandlerFunc{
		"down": func(w http.ResponseWriter, _ *http.Request) {
			conn, _, _ := w.(http.Hijacker).Hijack()
			_ = conn.Close()
		},
		"500":     func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
		"429":     func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTooManyRequests) },
		"a page":  func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>canary")) },
		"404":     func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) },
		"nothing": func(http.ResponseWriter, *http.Request) {},
	} {
		t.Run(name, func(t *testing.T) {
			f.answer(answer)
			again, err := r.Value.Append(nil, "orders", orderSchema, order(1, nil))
			require.NoError(t, err)
			require.Equal(t, known, again)
			_, err = r.Value.Append(nil, "invoices", orderSchema, order(1, nil))
			t.Log(err)
			require.ErrorIs(t, err, connect.ErrRegistry)
			require.ErrorContains(t, err, "check registry.urls")
			var row *connect.ValueError
			require.NotErrorAs(t, err, &row, "it says nothing about the row")
		})
	}
	f.answer(nil)
	_, err = r.Value.Append(nil, "invoices", orderSchema, order(1, nil))
	require.NoError(t, err, "it is back")

	cfg := at(f.URL())
	cfg.OnUnavailable = Halt
	r, _ = opened(t, cfg, avroFormat())
	f.answer(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	_, err = r.Value.Append(nil, "orders", orderSchema, order(1, nil))
	require.ErrorIs(t, err, connect.ErrRegistryHalt)

	hung := make(chan struct{})
	defer close(hung)
	f.answer(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-hung:
		case <-r.Context().Done():
		}
	})
	cfg.Timeout = 100 * time.Millisecond
	r, _ = opened(t, cfg, avroFormat())
	_, err = r.Value.Append(nil, "orders", orderSchema, order(1, nil))
	require.ErrorIs(t, err, connect.ErrRegistryHalt)
}

// By this the relay counts as alive while many new subjects take long.
func TestRegistries_SayWhenTheyWereLastRequested(t *testing.T) {
	f := newFake(t)
	r, _ := opened(t, at(f.URL()), avroFormat())
	require.Zero(t, r.Requested())
	var during []time.Duration
	f.answer(func(w http.ResponseWriter, _ *http.Request) {
		at := r.Requested()
		during = append(during, r.Requested().Sub(at), time.Since(at))
		w.WriteHeader(http.StatusNotFound)
	})
	_, err := r.Value.Append(nil, "orders", orderSchema, order(1, nil))
	require.Error(t, err)
	require.NotEmpty(t, during)
	for _, d := range during {
		require.Positive(t, d, "a request that runs was made now, each time it is asked")
	}
	last := r.Requested()
	require.WithinDuration(t, time.Now(), last, time.Minute)
	require.Equal(t, last, r.Requested())
}

func TestClient_TriesTheNextURL(t *testing.T) {
	f := newFake(t)
	r, _ := opened(t, at("http://"+parts.Nobody(t), f.URL()), avroFormat())
	_, err := r.Value.Append(nil, "orders", orderSchema, order(1, nil))
	require.NoError(t, err)
}

// A server of the registry that hangs, or that cannot answer for now, is passed over as well.
func TestClient_TriesTheNextURLAfterAnAnswerThatIsNone(t *testing.T) {
	released := make(chan struct{})
	for name, answer := range map[string]http.HandlerFunc{
		"hangs":      func(http.ResponseWriter, *http.Request) { <-released },
		"503":        func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) },
		"413":        func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusRequestEntityTooLarge) },
		"429":        func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTooManyRequests) },
		"is endless": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.Copy(w, io.LimitReader(zeros{}, 2*maxAnswer)) },
	} {
		t.Run(name, func(t *testing.T) {
			first := httptest.NewServer(answer)
			defer first.Close()
			f := newFake(t)
			cfg := at(first.URL, f.URL())
			if name == "hangs" {
				defer close(released)
				cfg.Timeout = 5 * time.Second
			}
			r, _ := opened(t, cfg, avroFormat())
			_, err := r.Value.Append(nil, "orders", orderSchema, order(1, nil))
			require.NoError(t, err)
			f.answer(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
			r, _ = opened(t, cfg, avroFormat())
			_, err = r.Value.Append(nil, "orders", orderSchema, order(1, nil))
			require.ErrorIs(t, err, connect.ErrRegistry)
			require.ErrorContains(t, err, "Bad Gateway (502)")
		})
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { return len(b), nil }

// What is no answer of a registry is neither taken for an id nor kept, and concerns no row.
func TestClient_DoesNotBelieveWhatIsNoAnswer(t *testing.T) {
	f := newFake(t)
	r, _ := opened(t, at(f.URL()), avroFormat())
	latest, framed := avroFormat(), avroFormat()
	latest.ValueLatest, framed.Value = true, "framed"
	byLatest, _ := opened(t, at(f.URL()), latest)
	passing, _ := opened(t, at(f.URL()), framed)
	for _, text := range []string{`{}`, `null`, `{"status":"ok"}`, `{"id":-1}`, `{"id":4294967297}`, `[]`, `<html>`} {
		f.answer(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(text)) })
		_, err := r.Value.Append(nil, "orders", orderSchema, order(1, nil))
		require.ErrorIs(t, err, connect.ErrRegistry, text)
		_, err = byLatest.Value.Append(nil, "orders", jsonColumn, connect.Text(`{"id":1,"total":1}`))
		require.ErrorIs(t, err, connect.ErrRegistry, text)
		if text != `[]` {
			_, err = passing.Value.Append(nil, "orders", &connect.Schema{Kind: connect.KindBytes}, connect.Buffer{0, 0, 0, 0, 1, 2})
			require.ErrorIs(t, err, connect.ErrRegistry, text)
		}
		preview, err := Preview(at(f.URL()), avroFormat())
		require.NoError(t, err)
		_, err = preview.Value.Append(nil, "orders", orderSchema, order(1, nil))
		require.ErrorIs(t, err, connect.ErrRegistry, text)
		before := f.requests.Load()
		_, err = passing.Value.Append(nil, "orders", &connect.Schema{Kind: connect.KindBytes}, connect.Buffer{0, 0xff, 0, 0, 1, 2})
		requireRow(t, err, "its schema id 4278190081 is none of")
		require.Equal(t, before, f.requests.Load(), "no registry has such an id")
	}
	for _, code := range []int{404, 0} { // a proxy, or a path that is not the registry's
		f.refuse(http.StatusNotFound, code, "HTTP 404 Not Found")
		_, err := r.Value.Append(nil, "orders", orderSchema, order(1, nil))
		require.ErrorIs(t, err, connect.ErrRegistry)
		require.ErrorContains(t, err, "check registry.urls with its path")
		preview, err := Preview(at(f.URL()), avroFormat())
		require.NoError(t, err)
		_, err = preview.Value.Append(nil, "orders", orderSchema, order(1, nil))
		require.ErrorIs(t, err, connect.ErrRegistry)
		require.ErrorIs(t, Ping(t.Context(), at(f.URL())), connect.ErrRegistry)
	}
	f.answer(nil)
	_, err := r.Value.Append(nil, "orders", orderSchema, order(1, nil))
	require.NoError(t, err)
	_, _, err = f.RegisterSchema("orders-value", sr.Schema{Schema: declaredText})
	require.NoError(t, err)
	_, err = byLatest.Value.Append(nil, "orders", jsonColumn, connect.Text(`{"id":1,"total":1}`))
	require.NoError(t, err)
}

// Another server of the registry may not have yet what one has just registered.
func TestClient_WaitsForAServerThatIsBehind(t *testing.T) {
	f := newFake(t)
	f.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasPrefix(r.URL.Path, "/schemas/ids/") {
			return false
		}
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte(`{"error_code":40403,"message":"Schema not found"}`))
		return true
	})
	r, _ := opened(t, at(f.URL()), avroFormat())
	_, err := r.Value.Append(nil, "orders", orderSchema, order(1, nil))
	require.ErrorIs(t, err, connect.ErrRegistry)
	require.ErrorContains(t, err, "it has no schema with id 1, which it answered just before")
	f.answer(nil)
	_, err = r.Value.Append(nil, "orders", orderSchema, order(1, nil))
	require.NoError(t, err)
}

// The application registers a schema with one server, and the relay looks for its id at another one, which is behind.
func TestFramed_WaitsForAServerThatIsBehind(t *testing.T) {
	f := newFake(t)
	id, _, err := f.RegisterSchema("orders-value", sr.Schema{Schema: `"string"`})
	require.NoError(t, err)
	var looked atomic.Int32
	f.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasPrefix(r.URL.Path, "/schemas/ids/") || looked.Add(1) > 2 {
			return false
		}
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte(`{"error_code":40403,"message":"Schema not found"}`))
		return true
	})
	format := router.DefaultFormat()
	format.Value = "framed"
	r, _ := opened(t, at(f.URL()), format)
	value := connect.Buffer(append(appendHeader(nil, Confluent, id), 2, 'x'))
	_, err = r.Value.Append(nil, "orders", &connect.Schema{Kind: connect.KindBytes}, value)
	require.NoError(t, err)
	require.EqualValues(t, 3, looked.Load())
}

func TestClient_BoundsReferences(t *testing.T) {
	f, n := newFake(t), 0
	f.answer(func(w http.ResponseWriter, _ *http.Request) {
		n++
		_, _ = fmt.Fprintf(w, `{"subject":"s","version":1,"id":1,"schema":"\"string\"","references":[{"name":"n%d","subject":"s%d","version":1}]}`, n, n)
	})
	_, client := opened(t, at(f.URL()), avroFormat())
	_, err := client.References([]sr.SchemaReference{{Name: "n", Subject: "s", Version: 1}})
	require.ErrorIs(t, err, connect.ErrRegistryHalt)
	require.ErrorContains(t, err, "the schema refers to more than 1000 others")
}

// Encryption is a rule of the version.
func TestWriter_RefusesAVersionWithRules(t *testing.T) {
	f, format := newFake(t), avroFormat()
	format.ValueLatest = true
	f.answer(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"subject":"orders-value","version":3,"id":1,"schema":"\"string\"","ruleSet":{"domainRules":[{"name":"e","kind":"TRANSFORM","type":"ENCRYPT"}]}}`))
	})
	r, _ := opened(t, at(f.URL()), format)
	_, err := r.Value.Append(nil, "orders", connect.RequiredString, connect.Text("x"))
	require.ErrorIs(t, err, connect.ErrRegistryHalt)
	require.ErrorContains(t, err, "the schema of subject orders-value has rules for its values, such as encryption")

	// A registry adds the rules of a subject to what is registered.
	rules := `{"name":"e","kind":"TRANSFORM","type":"ENCRYPT","mode":"WRITEREAD"}`
	f.ClearInterceptors()
	f.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasPrefix(r.URL.Path, "/schemas/ids/") {
			return false
		}
		_, _ = fmt.Fprintf(w, `{"schema":"\"string\"","ruleSet":{"domainRules":[%s]}}`, rules)
		return true
	})
	r, _ = opened(t, at(f.URL()), avroFormat())
	_, err = r.Value.Append(nil, "orders", connect.RequiredString, connect.Text("x"))
	require.ErrorContains(t, err, "has rules for its values")
	rules = `{"type":"ENCRYPT","mode":"READ"},{"type":"ENCRYPT","mode":"WRITE","disabled":true}`
	_, err = r.Value.Append(nil, "orders", connect.RequiredString, connect.Text("x"))
	require.NoError(t, err, "no serializer executes these")
}

// Redpanda and Karapace compare with one version alone, and answer as their routers do for what they do not have.
func TestPreview_AsksRegistriesThatCompareWithOneVersion(t *testing.T) {
	f := newFake(t)
	f.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		switch r.URL.Path {
		case "/compatibility/subjects/orders-value/versions":
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write([]byte(`{"error_code":404,"message":"HTTP 404 Not Found"}`))
		case "/compatibility/subjects/orders-value/versions/latest":
			_, _ = w.Write([]byte(`{"is_compatible":false,"messages":["no"]}`))
		default:
			return false
		}
		return true
	})
	r, err := Preview(at(f.URL()), avroFormat())
	require.NoError(t, err)
	_, err = r.Value.Append(nil, "orders", orderSchema, order(1, nil))
	requireRow(t, err, "the schema is not compatible: no")
}

func TestClient_NamesTheFileThatIsMissing(t *testing.T) {
	cfg := at("https://" + parts.Nobody(t))
	cfg.TLS.CAFile = filepath.Join(t.TempDir(), "none.pem")
	err := Ping(t.Context(), cfg)
	require.ErrorContains(t, err, "none.pem: no such file")
	require.ErrorContains(t, err, "check that the file is there")
	cfg = at("http://" + parts.Nobody(t))
	cfg.Username, cfg.Password = "postrider", secret.File(filepath.Join(t.TempDir(), "password"))
	require.ErrorContains(t, Ping(t.Context(), cfg), "password: no such file")
	server := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	require.ErrorContains(t, Ping(t.Context(), at(server.URL)), "set registry.tls.ca_file")
}

// What the registry decides about a schema is about the row; a login or a registry that is read
// only is not.
func TestClient_DistinguishesTheRowFromTheRegistry(t *testing.T) {
	f := newFake(t)
	append1 := func() error {
		r, _ := opened(t, at(f.URL()), avroFormat())
		_, err := r.Value.Append(nil, "orders", orderSchema, order(1, nil))
		t.Log(err)
		return err
	}
	f.refuse(409, 409, "Schema being registered is incompatible")
	requireRow(t, append1(), "does not fit the versions of subject orders-value: Schema being registered "+
		"is incompatible (409)")
	f.refuse(422, 42201, "Invalid schema")
	requireRow(t, append1(), "the registry refuses its schema for subject orders-value")
	f.answer(func(w http.ResponseWriter, _ *http.Request) { // a proxy before it
		http.Error(w, "413 Request Entity Too Large", http.StatusRequestEntityTooLarge)
	})
	requireRow(t, append1(), "is too large for the registry, or for a proxy before it, under subject "+
		"orders-value: 413 Request Entity Too Large (413)")
	require.ErrorIs(t, Ping(t.Context(), at(f.URL())), connect.ErrRegistry)
	f.refuse(422, 422, "a code that is Karapace's")
	requireRow(t, append1(), "the registry refuses its schema")
	f.refuse(422, 42203, "Invalid compatibility level")
	require.ErrorIs(t, append1(), connect.ErrRegistry)
	f.refuse(409, 409, strings.Repeat("é", 400)+"\x00\xff")
	require.True(t, utf8.ValidString(append1().Error()))
	f.refuse(422, 42205, "Subject orders-value is in read-only mode")
	require.ErrorIs(t, append1(), connect.ErrRegistry)
	f.refuse(401, 40101, "Unauthorized")
	require.ErrorIs(t, append1(), connect.ErrRegistryLogin)
	f.refuse(403, 40301, "User is denied operation Write on Subject: orders-value")
	require.ErrorIs(t, append1(), connect.ErrRegistryLogin)
	require.ErrorContains(t, append1(), "denied operation Write")
}

// A registry whose topic takes no record of that size answers 500, as for what passes by itself.
func TestClient_NamesTheSizeOfASchemaBehindWhichARegistryFails(t *testing.T) {
	f := newFake(t)
	_, client := opened(t, at(f.URL()), avroFormat())
	f.refuse(http.StatusInternalServerError, 50001, "Error while registering schema")
	for size, want := range map[int]bool{1 << 20: false, 1<<20 + 1: true} {
		s := sr.Schema{Schema: `"` + strings.Repeat("x", size-len(`""`)) + `"`}
		_, err := client.ID("orders-value", s, Usage{Register: true})
		require.ErrorIs(t, err, connect.ErrRegistry)
		require.Equal(t, want, strings.Contains(err.Error(), "its schema has 1048577 bytes"), err)
	}
	f.refuse(http.StatusServiceUnavailable, 50003, "no leader")
	_, err := client.ID("orders-value", sr.Schema{Schema: strings.Repeat("x", 2<<20)}, Usage{})
	require.NotContains(t, err.Error(), "bytes")
}

func TestClient_RegistersNothingThatItMayNot(t *testing.T) {
	f := newFake(t)
	format := avroFormat()
	format.ValueAutoRegister = false
	r, _ := opened(t, at(f.URL()), format)
	_, err := r.Value.Append(nil, "orders", orderSchema, order(1, nil))
	requireRow(t, err, "the registry does not have its schema under subject orders-value")
	require.False(t, f.SubjectExists("orders-value"))

	registering, _ := opened(t, at(f.URL()), avroFormat())
	want, err := registering.Value.Append(nil, "orders", orderSchema, order(1, nil))
	require.NoError(t, err)
	got, err := r.Value.Append(nil, "orders", orderSchema, order(1, nil))
	require.NoError(t, err, "it is there now")
	require.Equal(t, want, got)
}

func TestClient_RefusesAnotherSchemaUnderAKnownID(t *testing.T) {
	f := newFake(t)
	f.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasPrefix(r.URL.Path, "/schemas/ids/") {
			return false
		}
		_, _ = w.Write([]byte(`{"schema":"{\"type\":\"record\",\"name\":\"Other\",\"fields\":[]}"}`))
		return true
	})
	r, _ := opened(t, at(f.URL()), avroFormat())
	_, err := r.Value.Append(nil, "orders", orderSchema, order(1, nil))
	t.Log(err)
	require.ErrorIs(t, err, connect.ErrRegistryHalt)
	require.ErrorContains(t, err, `"name":"Other"`)
	require.ErrorContains(t, err, "shop")
}

const declaredText = `{"type":"record","name":"Order","namespace":"shop","fields":[` +
	`{"name":"id","type":"long"},{"name":"note","type":["null","string"],"default":null},` +
	`{"name":"total","type":{"type":"bytes","logicalType":"decimal","precision":9,"scale":2}}]}`

var jsonColumn = &connect.Schema{Kind: connect.KindString, Optional: true, Name: "io.debezium.data.Json", Version: "1"}

// A document in the payload column is written by a schema that somebody has declared.
func TestWriter_WritesDocumentsByADeclaredSchema(t *testing.T) {
	file := filepath.Join(t.TempDir(), "order.avsc")
	require.NoError(t, os.WriteFile(file, []byte(declaredText), 0o600))
	for name, format := range map[string]func(*router.Format, *fake){
		"of a file": func(f *router.Format, _ *fake) { f.ValueSchemaFile = file },
		"the latest version": func(f *router.Format, registry *fake) {
			f.ValueLatest = true
			_, _, err := registry.RegisterSchema("orders-value", sr.Schema{Schema: declaredText})
			require.NoError(t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			f, with := newFake(t), avroFormat()
			format(&with, f)
			r, _ := opened(t, at(f.URL()), with)
			b, err := r.Value.Append(nil, "orders", jsonColumn, connect.Text(`{"total": 12.5, "id": 7}`))
			require.NoError(t, err)
			_, text, v := decode(t, f, b)
			require.JSONEq(t, declaredText, text)
			m := v.(map[string]any)
			require.Equal(t, int64(7), m["id"])
			require.Nil(t, m["note"])
			require.Equal(t, "25/2", m["total"].(*big.Rat).String())

			before := f.requests.Load()
			_, err = r.Value.Append(nil, "orders", jsonColumn, connect.Text(`{"id": "seven", "total": 1}`))
			requireRow(t, err, "id")
			_, err = r.Value.Append(nil, "orders", jsonColumn, connect.Text(`{"id": 1, "total": 1, "else": 2}`))
			requireRow(t, err, "else")
			require.Equal(t, before, f.requests.Load())
		})
	}
	f, format := newFake(t), avroFormat()
	format.ValueLatest = true
	r, _ := opened(t, at(f.URL()), format)
	_, err := r.Value.Append(nil, "orders", jsonColumn, connect.Text(`{}`))
	requireRow(t, err, "does not have its schema under subject orders-value")

	format = avroFormat()
	format.ValueLatest = true
	_, _, err = f.RegisterSchema("orders-value", sr.Schema{Schema: `{"type":"object"}`, Type: sr.TypeJSON})
	require.NoError(t, err)
	r, _ = opened(t, at(f.URL()), format)
	_, err = r.Value.Append(nil, "orders", jsonColumn, connect.Text(`{}`))
	requireRow(t, err, `version 1 of subject orders-value is a schema of type JSON, and format.value is "avro"`)

	format = avroFormat()
	format.ValueSchemaFile = filepath.Join(t.TempDir(), "none.avsc")
	_, err = Open(at(f.URL()), format)
	require.ErrorContains(t, err, "format.value.schema.file")
}

// The Connect schema of an expanded document is as large as the document, also where the value is refused by the declared one.
func TestWriter_KeepsABoundedNumberOfExpandedDocuments(t *testing.T) {
	file := filepath.Join(t.TempDir(), "order.avsc")
	require.NoError(t, os.WriteFile(file, []byte(declaredText), 0o600))
	for name, format := range map[string]func(*router.Format, *fake){
		"of a file": func(f *router.Format, _ *fake) { f.ValueSchemaFile = file },
		"the latest version": func(f *router.Format, registry *fake) {
			f.ValueLatest = true
			for i := range 3 {
				_, _, err := registry.RegisterSchema(fmt.Sprintf("orders-%d-value", i), sr.Schema{Schema: declaredText})
				require.NoError(t, err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			f, with := newFake(t), avroFormat()
			format(&with, f)
			r, _ := opened(t, at(f.URL()), with)
			w := r.Value.(*Writer)
			for i := range 20 {
				const members = 1000
				inner := &connect.Schema{Kind: connect.KindStruct}
				for n := range members << (i % 5) { // the largest is alone more than the bound
					inner.Fields = append(inner.Fields, &connect.Field{Name: fmt.Sprintf("%0300d", i*members<<5+n), Schema: connect.RequiredString})
				}
				s := record("shop.Order", &connect.Field{Name: "list", Schema: &connect.Schema{Kind: connect.KindArray, Items: inner}})
				_, err := w.Append(nil, fmt.Sprintf("orders-%d", i%3), s, &connect.Structure{Schema: s, Values: []any{nil}})
				requireRow(t, err, "list")
				names := 0
				for _, known := range w.recent {
					for _, p := range known {
						for _, member := range p.source.Fields[0].Schema.Items.Fields {
							names += len(member.Name)
						}
					}
				}
				require.LessOrEqual(t, names, recentBytes)
			}
		})
	}
}

// What a schema refers to comes from the registry, in a file as in the latest version.
func TestWriter_WritesBySchemasWithReferences(t *testing.T) {
	for format, c := range map[string]struct {
		customer, reference, schema, name, want string // want: the value without its frame
	}{
		"avro": {`{"type":"record","name":"Customer","namespace":"shop","fields":[{"name":"name","type":"string"}]}`, "shop.Customer",
			`{"type":"record","name":"Order","namespace":"shop","fields":[{"name":"customer","type":"Customer"}]}`, "shop.Order", "\x02A"},
		"json_schema": {`{"type":"object","required":["name"]}`, "customer.json", `{"title":"Order","properties":{"customer":{"$ref":"customer.json"}}}`,
			"Order", `{"customer": {"name": "A"}}`},
		"protobuf": {`syntax = "proto3"; package shop; message Customer { string name = 1; }`, "shop/customer.proto",
			`syntax = "proto3"; package shop; import "shop/customer.proto"; message Note {} message Order { Customer customer = 1; }`, "shop.Order",
			"\x02\x02\x0a\x03\x0a\x01A"},
	} {
		t.Run(format, func(t *testing.T) {
			f := newFake(t)
			_, _, err := f.RegisterSchema("customers-value", sr.Schema{Schema: c.customer, Type: kinds[format]})
			require.NoError(t, err)
			file := filepath.Join(t.TempDir(), "order")
			require.NoError(t, os.WriteFile(file, []byte(c.schema), 0o600))
			fromFile := avroFormat()
			fromFile.Key, fromFile.Value, fromFile.ValueSchemaFile = "string", format, file
			fromFile.ValueSchemaReferences = []string{c.reference + "=customers-value:1"}
			if format == "protobuf" {
				fromFile.ValueSchemaMessage = "shop.Order"
			}
			require.NoError(t, fromFile.Validate())
			doc := connect.Text(`{"customer": {"name": "A"}}`)

			f.refuse(http.StatusServiceUnavailable, 50003, "away")
			r, _ := opened(t, at(f.URL()), fromFile)
			_, err = r.Value.Append(nil, "orders", jsonColumn, doc)
			require.ErrorIs(t, err, connect.ErrRegistry, "what it refers to is there when the registry is")
			f.answer(nil)
			b, err := r.Value.Append(nil, "orders", jsonColumn, doc)
			require.NoError(t, err)
			require.Equal(t, c.want, string(b[5:]))
			has, found := f.GetSchema("orders-value", 1)
			require.True(t, found)
			require.Equal(t, []sr.SchemaReference{{Name: c.reference, Subject: "customers-value", Version: 1}}, has.References)

			fromFile.ValueStrategy = "record"
			r, _ = opened(t, at(f.URL()), fromFile)
			_, err = r.Value.Append(nil, "orders", jsonColumn, doc)
			require.NoError(t, err)
			require.True(t, f.SubjectExists(c.name))

			latest := fromFile
			latest.ValueStrategy, latest.ValueSchemaFile, latest.ValueSchemaReferences, latest.ValueLatest = "topic", "", nil, true
			require.NoError(t, latest.Validate())
			r, _ = opened(t, at(f.URL()), latest)
			again, err := r.Value.Append(nil, "orders", jsonColumn, doc)
			require.NoError(t, err)
			require.Equal(t, b, again)
			before := f.requests.Load()
			_, err = r.Value.Append(nil, "orders", jsonColumn, connect.Text(`{"customer": 7}`))
			var row *connect.ValueError
			require.ErrorAs(t, err, &row)
			require.Equal(t, before, f.requests.Load())

			unknown := map[string]string{c.reference + "=nobody-value:1": "nobody-value", "else=customers-value:1": "format.value.schema.file"}
			if format == "avro" { // whose names are those in the text
				delete(unknown, "else=customers-value:1")
			}
			for reference, text := range unknown {
				wrong := fromFile
				wrong.ValueSchemaReferences = []string{reference}
				r, _ = opened(t, at(f.URL()), wrong)
				_, err = r.Value.Append(nil, "orders", jsonColumn, doc)
				require.ErrorIs(t, err, connect.ErrRegistryHalt, "every row has it")
				require.ErrorContains(t, err, text)
			}
		})
	}
}

func TestWriter_WritesJSONWithItsSchema(t *testing.T) {
	f, format := newFake(t), avroFormat()
	format.Value = "json_schema"
	r, _ := opened(t, at(f.URL()), format)
	b, err := r.Value.Append(nil, "orders", orderSchema, order(7, nil))
	require.NoError(t, err)
	require.Equal(t, `{"id":7,"note":null}`, string(b[5:]))
	has, found := f.GetSchema("orders-value", 1)
	require.True(t, found)
	require.Equal(t, sr.TypeJSON, has.Type)
	require.Contains(t, has.Schema.Schema, `"title":"shop.Order"`)

	null, err := r.Value.Append(nil, "orders", jsonColumn, nil)
	require.NoError(t, err)
	require.Equal(t, "null", string(null[5:]), "a null that has a schema, as JsonSchemaConverter writes it")
	null, err = r.Value.Append(nil, "orders", nil, nil)
	require.NoError(t, err)
	require.Nil(t, null)

	file := filepath.Join(t.TempDir(), "order.json")
	format.ValueSchemaFile = file
	for text, want := range map[string]string{`{"type":["object","null"]}`: "", `{"type":"object"}`: "is of type null"} {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		r, _ = opened(t, at(f.URL()), format)
		null, err = r.Value.Append(nil, "orders", jsonColumn, nil)
		if want != "" {
			requireRow(t, err, want)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, "null", string(null[5:]), "a null, if the declared schema takes it")
	}
}

func TestWriter_WritesProtobufWithTheMessagesPlace(t *testing.T) {
	f, format := newFake(t), avroFormat()
	format.Key, format.Value, format.ValueOptional = "protobuf", "protobuf", true
	r, _ := opened(t, at(f.URL()), format)
	b, err := r.Value.Append(nil, "orders", orderSchema, order(7, connect.Text("a")))
	require.NoError(t, err)
	require.Equal(t, []byte{0, 0x08, 7, 0x12, 1, 'a'}, b[5:], "the first message of the file; field 1, a number, and field 2, a text")
	has, found := f.GetSchema("orders-value", 1)
	require.True(t, found)
	require.Equal(t, sr.TypeProtobuf, has.Type)
	require.Contains(t, has.Schema.Schema, "package shop;\n\nmessage Order {\n  int64 id = 1;\n  optional string note = 2;\n}")
	b, err = r.Key.Append(nil, "orders", connect.RequiredString, connect.Text("42"))
	require.NoError(t, err)
	require.Equal(t, []byte{2, 14, 0x0a, 2, '4', '2'}, b[5:], "StringValue is the eighth message of wrappers.proto")

	null, err := r.Value.Append(nil, "orders", orderSchema, nil)
	require.NoError(t, err)
	require.Nil(t, null, "a tombstone")
	_, err = r.Value.Append(nil, "orders", &connect.Schema{Kind: connect.KindArray, Items: connect.RequiredString}, []any{})
	requireRow(t, err, "no array as a whole value")
}

// A preview leaves nothing in the registry, and says before the first row what would be refused.
func TestPreview_RegistersNothingAndFindsWhatDoesNotFit(t *testing.T) {
	f := newFake(t)
	r, err := Preview(at(f.URL()), avroFormat())
	require.NoError(t, err)
	b, err := r.Value.Append(nil, "orders", orderSchema, order(1, nil))
	require.NoError(t, err)
	require.Equal(t, []byte{0, 0, 0, 0, 0}, b[:5], "it would be the first version")
	require.False(t, f.SubjectExists("orders-value"))

	registering, _ := opened(t, at(f.URL()), avroFormat())
	want, err := registering.Value.Append(nil, "orders", orderSchema, order(1, nil))
	require.NoError(t, err)
	r, err = Preview(at(f.URL()), avroFormat())
	require.NoError(t, err)
	got, err := r.Value.Append(nil, "orders", orderSchema, order(1, nil))
	require.NoError(t, err)
	require.Equal(t, want, got, "it is registered")

	f.Intercept(func(w http.ResponseWriter, r *http.Request) bool { // the fake has no rules of compatibility
		if !strings.HasPrefix(r.URL.Path, "/compatibility/") {
			return false
		}
		_, _ = w.Write([]byte(`{"is_compatible":false,"messages":["reader field note missing"]}`))
		return true
	})
	other := record("shop.Order", &connect.Field{Name: "other", Schema: connect.RequiredString})
	_, err = r.Value.Append(nil, "orders", other, &connect.Structure{Schema: other, Values: []any{connect.Text("x")}})
	requireRow(t, err, "does not fit the versions of subject orders-value: the schema is not compatible: "+
		"reader field note missing")
}

func TestWriter_PassesOnWhatIsFramedAlready(t *testing.T) {
	f := newFake(t)
	id, _, err := f.RegisterSchema("orders-value", sr.Schema{Schema: `"string"`})
	require.NoError(t, err)
	other, _, err := f.RegisterSchema("invoices-value", sr.Schema{Schema: `"long"`})
	require.NoError(t, err)
	format := avroFormat()
	format.Value = "framed"
	r, _ := opened(t, at(f.URL()), format)
	framed := func(id int) connect.Buffer {
		return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(id)), "\x02x"...) //nolint:gosec // small
	}
	bytesSchema := &connect.Schema{Kind: connect.KindBytes}
	got, err := r.Value.Append(nil, "orders", bytesSchema, framed(id))
	require.NoError(t, err)
	require.True(t, bytes.Equal(framed(id), got))

	before := f.requests.Load()
	_, err = r.Value.Append(nil, "orders", bytesSchema, framed(id))
	require.NoError(t, err)
	require.Equal(t, before, f.requests.Load(), "the id is known")

	byRecord := format
	byRecord.ValueStrategy = "record"
	of, _ := opened(t, at(f.URL()), byRecord)
	_, err = of.Value.Append(nil, "orders", bytesSchema, framed(other))
	require.NoError(t, err, "the record is not known")
	_, err = of.Value.Append(nil, "orders", bytesSchema, framed(9999))
	requireRow(t, err, "its schema id 9999 is not in the registry")
	for text, v := range map[string]any{
		"is none of subject orders-value": framed(other),
		"id 9999 is none of":              framed(9999),
		"do not begin with a schema id":   connect.Buffer("{}"),
		"format framed takes bytes":       connect.Text("{}"),
	} {
		_, err = r.Value.Append(nil, "orders", bytesSchema, v)
		requireRow(t, err, text)
	}
}

// Apicurio's registry has the API of Confluent's, but its serializers of version 2 write 8 bytes for an id.
func TestFraming_OfApicurioHasEightBytes(t *testing.T) {
	f := newFake(t)
	id, _, err := f.RegisterSchema("orders-value", sr.Schema{Schema: `"string"`})
	require.NoError(t, err)
	cfg, format := at(f.URL()), avroFormat()
	cfg.Framing, format.Key, format.Value = Apicurio, "avro", "framed"
	r, _ := opened(t, cfg, format)
	key, err := r.Key.Append(nil, "orders", connect.RequiredString, connect.Text("42"))
	require.NoError(t, err)
	require.Equal(t, append([]byte{0, 0, 0, 0, 0, 0, 0, 0, byte(id)}, "\x0442"...), key, "the same schema has the same id")

	bytesSchema := &connect.Schema{Kind: connect.KindBytes}
	got, err := r.Value.Append(nil, "orders", bytesSchema, connect.Buffer(key))
	require.NoError(t, err)
	require.Equal(t, key, got)
	_, err = r.Value.Append(nil, "orders", bytesSchema, connect.Buffer(key[:8]))
	requireRow(t, err, "do not begin with a schema id")
	_, err = r.Value.Append(nil, "orders", bytesSchema, connect.Buffer{0, 0xff, 0, 0, 0, 0, 0, 0, 1})
	requireRow(t, err, "do not begin with a schema id")

	cfg.Framing = "kafka"
	require.ErrorContains(t, cfg.Validate(), `registry.framing: "kafka" is none of confluent, apicurio`)
}

func TestClient_LogsIn(t *testing.T) {
	f := newFake(t, srfake.WithAuth("Basic cG9zdHJpZGVyOnMzY3JldC1jYW5hcnk="))
	cfg := at(f.URL())
	cfg.Username, cfg.Password = "postrider", secret.Of("s3cret-canary")
	_, client := opened(t, cfg, avroFormat())
	require.NoError(t, client.ping(t.Context()))
	cfg.Password = secret.Of("wr0ng-canary")
	_, client = opened(t, cfg, avroFormat())
	err := client.ping(t.Context())
	require.ErrorIs(t, err, connect.ErrRegistryLogin)
	require.NotContains(t, err.Error(), "canary")

	o := parts.NewOIDC(t, time.Hour)
	var header, extra string
	bearer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header, extra = r.Header.Get("Authorization"), r.Header.Get("target-sr-cluster")
		_, _ = w.Write([]byte(`{"compatibilityLevel":"BACKWARD"}`))
	}))
	t.Cleanup(bearer.Close)
	cfg = at(bearer.URL)
	cfg.Headers = []string{"target-sr-cluster=lsrc-1"}
	cfg.OAuth = credentials.OIDC{TokenURL: o.TokenURL(), ClientID: parts.OIDCClient,
		ClientSecret: secret.Of(parts.OIDCSecret)}
	_, client = opened(t, cfg, avroFormat())
	require.NoError(t, client.ping(t.Context()))
	require.True(t, strings.HasPrefix(header, "Bearer ey"))
	require.Equal(t, "lsrc-1", extra)
	o.Refuse(http.StatusUnauthorized, "invalid_client", "")
	_, client = opened(t, cfg, avroFormat())
	require.ErrorIs(t, client.ping(t.Context()), connect.ErrRegistryLogin)
}

// A provider that does not answer leaves the request its time: the last token is still valid.
func TestClient_RequestsWithTheLastTokenWhileTheProviderHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := New(at("http://registry.example"))
		require.NoError(t, err)
		hangs := false
		c.tokens = credentials.NewSource(func(ctx context.Context) (credentials.Token, error) {
			if hangs {
				<-ctx.Done()
				return credentials.Token{}, ctx.Err()
			}
			return credentials.Token{Value: "t", Expires: time.Now().Add(time.Hour)}, nil
		})
		for range 2 {
			ctx, cancel := c.context(1)
			r := httptest.NewRequestWithContext(ctx, http.MethodGet, "http://registry.example/config", nil)
			require.NoError(t, c.prepare(r))
			require.Equal(t, "Bearer t", r.Header.Get("Authorization"))
			deadline, _ := ctx.Deadline()
			require.GreaterOrEqual(t, time.Until(deadline), c.cfg.Timeout, "which is for the registry itself")
			cancel()
			hangs = true
			time.Sleep(50 * time.Minute)
		}
	})
}

func TestClient_VerifiesTheRegistrysCertificate(t *testing.T) {
	a := parts.NewAuthority(t)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"compatibilityLevel":"BACKWARD"}`))
	}))
	server.TLS = a.Server(x509.Certificate{})
	server.StartTLS()
	t.Cleanup(server.Close)
	cfg := at(server.URL)
	cfg.TLS.CAFile = a.CAFile()
	_, client := opened(t, cfg, avroFormat())
	require.NoError(t, client.ping(t.Context()))
	cfg.TLS.CAFile = parts.NewAuthority(t).CAFile()
	_, client = opened(t, cfg, avroFormat())
	require.ErrorIs(t, client.ping(t.Context()), connect.ErrRegistry)

	expired := httptest.NewUnstartedServer(http.NotFoundHandler())
	expired.TLS = a.Server(x509.Certificate{NotAfter: time.Now().Add(-time.Minute)})
	expired.StartTLS()
	t.Cleanup(expired.Close)
	cfg = at(expired.URL)
	cfg.TLS.CAFile = a.CAFile()
	require.ErrorContains(t, Ping(t.Context(), cfg), "give the registry a new certificate")
}

// A registry that takes a client certificate alone; the files are read for each connection.
func TestClient_ShowsItsCertificate(t *testing.T) {
	a := parts.NewAuthority(t)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.TLS.PeerCertificates[0].Subject.CommonName != "relay" {
			w.WriteHeader(http.StatusForbidden)
		}
		_, _ = w.Write([]byte(`{"compatibilityLevel":"BACKWARD"}`))
	}))
	server.TLS = a.Server(x509.Certificate{})
	server.TLS.ClientAuth = tls.RequireAndVerifyClientCert
	server.TLS.ClientCAs = a.Pool()
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	cfg := at(server.URL)
	cfg.TLS.CAFile = a.CAFile()
	_, client := opened(t, cfg, avroFormat())
	require.ErrorIs(t, client.ping(t.Context()), connect.ErrRegistry, "no certificate")
	cfg.TLS.CertFile, cfg.TLS.KeyFile = a.Issue("relay", x509.Certificate{})
	_, client = opened(t, cfg, avroFormat())
	require.NoError(t, client.ping(t.Context()))

	server.CloseClientConnections()
	other, otherKey := parts.NewAuthority(t).Issue("stranger", x509.Certificate{})
	for from, to := range map[string]string{other: cfg.TLS.CertFile, otherKey: cfg.TLS.KeyFile} {
		content, err := os.ReadFile(from)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(to, content, 0o600))
	}
	require.ErrorIs(t, client.ping(t.Context()), connect.ErrRegistry, "the files are read again")
}

func TestConfig_NamesTheKeyThatIsWrong(t *testing.T) {
	for key, spoil := range map[string]func(*Config){
		"urls":           func(c *Config) { c.URLs = []string{"registry:8081"} },
		"username":       func(c *Config) { c.Username = "u" },
		"headers":        func(c *Config) { c.Headers = []string{"Authorization=Bearer canary"} },
		"timeout":        func(c *Config) { c.Timeout = 0 },
		"on_unavailable": func(c *Config) { c.OnUnavailable = "skip" },
		"tls.cert_file":  func(c *Config) { c.TLS.KeyFile = "key.pem" },
		"oauth.client_id": func(c *Config) {
			c.OAuth = credentials.OIDC{TokenURL: "https://l.example/t", ClientSecret: secret.Of("canary")}
		},
		"oauth": func(c *Config) {
			c.Username, c.Password = "u", secret.Of("canary")
			c.OAuth = credentials.OIDC{TokenFile: "token"}
		},
	} {
		t.Run(key, func(t *testing.T) {
			cfg := at("https://registry.example.com")
			require.NoError(t, cfg.Validate())
			spoil(&cfg)
			require.ErrorContains(t, cfg.Validate(), "registry."+key+":")
			require.NotContains(t, cfg.Validate().Error(), "canary")
		})
	}
	cfg := at("http://registry.example.com")
	cfg.Username, cfg.Password = "u", secret.Of("p")
	require.ErrorContains(t, cfg.Validate(), "in the clear")
}

// Names of topics and members of payloads come from rows: what is kept of them is bounded.
func TestWriter_KeepsABoundedNumberOfSchemas(t *testing.T) {
	f := newFake(t)
	r, err := Preview(at(f.URL()), avroFormat()) // the fake is slow with many long schemas
	require.NoError(t, err)
	w := r.Value.(*Writer)
	long := strings.Repeat("a", 64<<10)
	for i := range 200 { // 13 MB of schemas
		s := record("shop.Order", &connect.Field{Name: fmt.Sprintf("%s%d", long, i), Schema: connect.RequiredString})
		_, err := r.Value.Append(nil, fmt.Sprintf("orders-%d", i%3), s, &connect.Structure{Schema: s, Values: []any{connect.Text("x")}})
		require.NoError(t, err)
		kept := 0
		for _, known := range w.recent {
			require.LessOrEqual(t, len(known), recentSchemas)
			for _, p := range known {
				kept += recentCost + p.size
			}
		}
		require.Equal(t, w.kept, kept)
		require.LessOrEqual(t, kept, recentBytes)
	}
	known := map[int]bool{}
	for i := range maxKnown + 1 {
		keep(known, i, true)
	}
	require.Len(t, known, 1)
}
