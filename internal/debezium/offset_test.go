package debezium_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/debezium"
)

func TestParseOffset_ReadsWhatConnectAnswersAndOneAlone(t *testing.T) {
	alone := `{"lsn_proc":26500000,"messageType":"INSERT","lsn_commit":26499000,"lsn":26500008,"txId":771,"ts_usec":1793517600000000,"lsn_events_processed":2}`
	want := debezium.Offset{LSN: 26500008, TxID: 771, Type: "INSERT", Events: 2}
	got, err := debezium.ParseOffset([]byte(alone))
	require.NoError(t, err)
	require.Equal(t, want, got)

	got, err = debezium.ParseOffset([]byte(`{"offsets":[{"partition":{"server":"shop"},"offset":` +
		alone + "}]}\n"))
	require.NoError(t, err)
	require.Equal(t, want, got)

	// As a Java map of byte arrays on disk, with bytes in between that are not text.
	got, err = debezium.ParseOffset([]byte("\xac\xed\x00\x05sr\x00\x11java.util.HashMap{\xf3\x08\x00\x1d[\"kafka\",{\"server\":\"shop\"}]uq\x00~\x00\x02\x00\x8b" + alone + "x"))
	require.NoError(t, err)
	require.Equal(t, want, got)
}

func TestParseOffset_RefusesWhatSaysNothingOfTheStream(t *testing.T) {
	for text, says := range map[string]string{
		``:                 "nothing in it",
		`[]`:               "not the JSON of offsets",
		`{"offsets":[]}`:   "published nothing yet",
		`{"offsets":7}`:    "not the offsets",
		`{"lsn":"0/16"}`:   "not an offset",
		`{"file":"bin.1"}`: "no lsn",
		`{"offsets":[{"partition":{"server":"a"},"offset":null}]}`:                                      "it was reset",
		`{"offsets":[{"partition":{"server":"a"},"offset":{}},{"partition":{"server":"b"}}]}`:           `"a", "b"`,
		`{"lsn":5,"snapshot":"INITIAL","snapshot_completed":false}`:                                     "within its snapshot",
		`{"lsn":5,"snapshot":true}`:                                                                     "within its snapshot",
		`{"lsn":5,"messageType":"INSERT","incremental_snapshot_collections":"[{\"id\":\"public.a\"}]"}`: "incremental snapshot",
		`{"lsn":5,"messageType":"NOOP"}`:                                                                `"NOOP"`,
		"\xac\xed\x00\x05sr\x00":                                                                        "published nothing yet",
	} {
		_, err := debezium.ParseOffset([]byte(text))
		require.ErrorContains(t, err, says, text)
	}
}

func TestParseOffset_ReadsTheFileOfDebeziumServer(t *testing.T) {
	// A map with one entry, as java.io.ObjectOutputStream writes it: the class, its fields, and two
	// arrays of bytes.
	file := func(values ...string) []byte {
		text := "\xac\xed\x00\x05sr\x00\x11java.util.HashMap\x05\x07\xda\xc1\xc3\x16\x60\xd1\x03\x00\x02F\x00\x0aloadFactorI\x00\x09thresholdxp?@\x00\x00\x00\x00\x00\x0cw\x08\x00\x00\x00\x10\x00\x00\x00\x01"
		for _, v := range values {
			text += "ur\x00\x02[B\xac\xf3\x17\xf8\x06\x08T\xe0\x02\x00\x00xp\x00\x00\x00\x1a" +
				`["kafka",{"server":"shop"}]` + "uq\x00~\x00\x02\x00\x00\x00\x40" + v
		}
		return []byte(text + "x")
	}
	offset := `{"transaction_id":null,"lsn_proc":5,"messageType":"UPDATE","lsn":7,"txId":771}`
	got, err := debezium.ParseOffset(file(offset))
	require.NoError(t, err)
	require.Equal(t, debezium.Offset{LSN: 7, TxID: 771, Type: "UPDATE"}, got)

	_, err = debezium.ParseOffset(file(offset, offset))
	require.ErrorContains(t, err, "several offsets")
}
