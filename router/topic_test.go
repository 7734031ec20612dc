package router

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/replication"
)

// routed gives the topic of a row, or the error.
func routed(t *testing.T, own []string, value string, change func(*Config)) (string, error) {
	t.Helper()
	cfg := DefaultConfig()
	cfg.TopicReplacement = "${routedByValue}"
	if change != nil {
		change(&cfg)
	}
	r, err := New([]Config{cfg}, DefaultFormat(), Options{OwnTopics: own})
	require.NoError(t, err)
	m, err := r.Route(insert(outbox(), baseID, value, "k", "T", "{}"))
	if err != nil {
		return "", err
	}
	return m.Topic, nil
}

func TestTopics_RefuseThoseOfKafkaAndOfTheRelay(t *testing.T) {
	own := []string{"postrider.dead_letters", "postrider.positions", "copied"}
	for _, value := range append(own, "__consumer_offsets", "__transaction_state", "__x") {
		for _, allow := range [][]string{nil, own, {"*.dead_letters", "*onsumer*", "postrider*", "c*"}} {
			_, err := routed(t, own, value, func(c *Config) { c.TopicAllow = allow })
			var row *RowError
			require.ErrorAs(t, err, &row, "%s with %v", value, allow)
			require.Equal(t, ReasonInvalidTopic, row.Reason)
		}
	}
	topic, err := routed(t, own, "postrider.position", nil)
	require.NoError(t, err)
	require.Equal(t, "postrider.position", topic)
}

func TestTopics_AllowThoseOfTheList(t *testing.T) {
	for pattern, names := range map[string]struct{ yes, no []string }{
		"orders":      {[]string{"orders"}, []string{"order", "orders2", "Orders", "xorders"}},
		"outbox.*":    {[]string{"outbox.", "outbox.a", "outbox.a.b"}, []string{"outbox", "outboxa", "a.outbox.a"}},
		"*.events":    {[]string{".events", "a.events"}, []string{"events", "a.events.b", "aevents"}},
		"a*b*c":       {[]string{"abc", "abbcc", "axxbxxc", "abcbc"}, []string{"acb", "ab", "bc", "abcd", "ac"}},
		"aa*aa":       {[]string{"aaaa", "aaxaa"}, []string{"aaa", "aa"}},
		"a.c":         {[]string{"a.c"}, []string{"abc"}}, // a dot is a dot
		"a*b*b*b*b*b": {[]string{"abbbbb"}, []string{"abbbb", strings.Repeat("ab", 100) + "c"}},
	} {
		allow := func(c *Config) { c.TopicAllow = []string{"elsewhere", pattern} }
		for _, name := range names.yes {
			topic, err := routed(t, nil, name, allow)
			require.NoError(t, err, "%s for %s", pattern, name)
			require.Equal(t, name, topic)
		}
		for _, name := range names.no {
			_, err := routed(t, nil, name, allow)
			var row *RowError
			require.ErrorAs(t, err, &row, "%s for %s", pattern, name)
			require.Equal(t, ReasonInvalidTopic, row.Reason)
			require.Contains(t, row.Hint, "router.topic_allow")
		}
	}
}

func TestTopics_AreAllowedByNamesAndPatternsOnly(t *testing.T) {
	for _, wrong := range []string{"", "*", "**", "__consumer_offsets", "__*", "a b", "a/b", "ä*", ".", strings.Repeat("x", 250), "a?"} {
		cfg := DefaultConfig()
		cfg.TopicAllow = []string{"orders", wrong}
		require.ErrorContains(t, cfg.Validate(), "router.topic_allow", "%q", wrong)
	}
	cfg := DefaultConfig()
	cfg.TopicAllow = []string{"orders", "outbox.event.*", "*-events"}
	require.NoError(t, cfg.Validate())
}

func TestTopics_RememberNoLongValues(t *testing.T) {
	cfg := DefaultConfig()
	topics, err := newTopics(&cfg, nil)
	require.NoError(t, err)
	for i := range 100 {
		_, bad := topics.of([]byte(strings.Repeat("x", 2000+i)))
		require.NotNil(t, bad)
	}
	require.Empty(t, topics.known)
	_, bad := topics.of([]byte("x"))
	require.Nil(t, bad)
	require.Len(t, topics.known, 1)
}

func TestHeadersColumn_RefusesWhatConsumersCouldBeDeceivedWith(t *testing.T) {
	cfg := DefaultConfig()
	cfg.HeadersColumn = "headers"
	cfg.PositionHeaders = true
	r, err := New([]Config{cfg}, DefaultFormat(), Options{})
	require.NoError(t, err)
	rel := outbox()
	rel.Columns = append(rel.Columns, replication.Column{Name: "headers", TypeOID: 3802, TypeMod: -1})
	long, longer := strings.Repeat("n", 255), strings.Repeat("v", 64<<10)
	for headers, ok := range map[string]bool{
		`{"a": "b", "ä ö": "1\t2", "n": null, "o": {"x": "\n"}}`: true,
		`{"` + long + `": "` + longer + `"}`:                     true,
		`{"` + long + `n": "b"}`:                                 false,
		`{"a": "` + longer + `v"}`:                               false,
		`{"": "b"}`:                                              false,
		`{"a\nb": "c"}`:                                          false,
		`{"a\u0000": "c"}`:                                       false,
		`{"a\u0085": "c"}`:                                       false,
		`{"a": "b\r\nSet-Cookie: c"}`:                            false,
		`{"a": "b\u0000"}`:                                       false,
		`{"postrider.lsn": "FFFFFFFF/FFFFFFFF"}`:                 false,
		`{"postrider.source": "7/1/slot"}`:                       false,
		`{"__debezium.context.taskId": "0"}`:                     false,
	} {
		ev := insert(rel, baseID, "User", "k", "T", "{}", headers)
		m, err := r.Route(ev)
		if ok {
			require.NoError(t, err, "%.80s", headers)
			require.Equal(t, HeaderLSN, m.Headers[len(m.Headers)-2].Key)
			continue
		}
		var row *RowError
		require.ErrorAs(t, err, &row, "%.80s", headers)
		require.Equal(t, ReasonInvalidHeaders, row.Reason)
	}
}
