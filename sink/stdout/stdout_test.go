package stdout_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/sink/sinktest"
	"github.com/postrider/postrider/sink/stdout"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestEncode(t *testing.T) {
	for name, test := range map[string]struct {
		message sink.Message
		line    string
	}{
		"plain": {
			sink.Message{Topic: "orders", Key: []byte("7"), Value: []byte(`{"a":1}`), Partition: sink.ByKey},
			`{"topic":"orders","key":"7","value":"{\"a\":1}"}`,
		},
		"nulls": {
			sink.Message{Topic: "orders", Partition: 3},
			`{"topic":"orders","partition":3,"key":null,"value":null}`,
		},
		"empty is not null": {
			sink.Message{Topic: "orders", Key: []byte{}, Value: []byte{}},
			`{"topic":"orders","partition":0,"key":"","value":""}`,
		},
		"bytes": {
			sink.Message{Topic: "orders", Key: []byte{0xff, 0}, Value: []byte("é"), Partition: sink.ByKey},
			`{"topic":"orders","key_base64":"/wA=","value":"é"}`,
		},
		"headers and timestamp": {
			sink.Message{
				Topic: "orders", Key: []byte("k"), Value: []byte("a\nb"), Partition: sink.ByKey,
				Headers:   []sink.Header{{Key: "id", Value: []byte("1")}, {Key: "id"}, {Key: "raw", Value: []byte{0x80}}},
				Timestamp: time.Date(2026, 1, 2, 3, 4, 5, 6e6, time.FixedZone("", 3600)),
			},
			`{"topic":"orders","key":"k","value":"a\nb","headers":[{"key":"id","value":"1"},{"key":"id","value":null},` +
				`{"key":"raw","value_base64":"gA=="}],"timestamp":"2026-01-02T02:04:05.006Z"}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			line := stdout.Encode([]byte("before "), &test.message)
			require.Equal(t, "before "+test.line, string(line))
			require.True(t, json.Valid(line[len("before "):]))
		})
	}
}

func TestStdout_FulfilsTheContract(t *testing.T) {
	sinktest.Run(t, func(*testing.T) sinktest.Subject {
		var out bytes.Buffer
		return sinktest.Subject{
			Open: stdout.Open(&out), Topic: "orders", Partitions: 4, AnyTopic: true,
			Read: func(t *testing.T, _ int) []sinktest.Record { return parse(t, out.Bytes()) },
		}
	})
}

// parse reads lines back as a consumer of them would.
func parse(t *testing.T, lines []byte) []sinktest.Record {
	t.Helper()
	type field struct {
		Key         string  `json:"key"`
		Value       *string `json:"value"`
		ValueBase64 string  `json:"value_base64"`
	}
	text := func(plain *string, encoded string) []byte {
		switch {
		case plain != nil:
			return []byte(*plain)
		case encoded != "":
			raw, err := base64.StdEncoding.DecodeString(encoded)
			require.NoError(t, err)
			return raw
		}
		return nil
	}
	var records []sinktest.Record
	decoder := json.NewDecoder(bytes.NewReader(lines))
	for {
		var line struct {
			Partition   int32      `json:"partition"`
			Key         *string    `json:"key"`
			KeyBase64   string     `json:"key_base64"`
			Value       *string    `json:"value"`
			ValueBase64 string     `json:"value_base64"`
			Headers     []field    `json:"headers"`
			Timestamp   *time.Time `json:"timestamp"`
		}
		err := decoder.Decode(&line)
		if errors.Is(err, io.EOF) {
			return records
		}
		require.NoError(t, err)
		r := sinktest.Record{Partition: line.Partition, Key: text(line.Key, line.KeyBase64), Value: text(line.Value, line.ValueBase64)}
		for _, h := range line.Headers {
			r.Headers = append(r.Headers, sink.Header{Key: h.Key, Value: text(h.Value, h.ValueBase64)})
		}
		r.Timestamp = time.Now() // "the producer's clock"
		if line.Timestamp != nil {
			r.Timestamp = *line.Timestamp
		}
		records = append(records, r)
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestStdout_FailsWhatCouldNotBeWritten(t *testing.T) {
	var failed []error
	s, err := stdout.Open(brokenWriter{})(t.Context(), func(_ *sink.Message, err error) { failed = append(failed, err) })
	require.NoError(t, err)
	require.ErrorIs(t, s.Publish(t.Context(), []*sink.Message{{Topic: "a"}, {Topic: "b"}}), io.ErrClosedPipe)
	require.Len(t, failed, 2)
	require.ErrorIs(t, failed[0], io.ErrClosedPipe)
	require.ErrorIs(t, s.Publish(t.Context(), []*sink.Message{{Topic: "c"}}), io.ErrClosedPipe)
	require.Len(t, failed, 2)
}
