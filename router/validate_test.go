package router

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestValidate_AcceptsTheDefaults(t *testing.T) {
	require.NoError(t, DefaultConfig().Validate())
	require.NoError(t, DefaultFormat().Validate())
	require.Empty(t, DefaultConfig().Warnings())
}

func TestValidate_NamesEveryWrongKeyAtOnce(t *testing.T) {
	c := DefaultConfig()
	c.OpInvalidBehavior = "invalidOption"
	c.AdditionalPlacement = "type:body"
	c.AdditionalMissing = "zzz"
	c.TopicRegex = " [[a-z]"
	c.NullBehavior = "zzz"
	c.EmptyArrayBehavior = "zzz"
	c.DecimalHandling = "float"
	c.NullKey = "drop"
	c.FieldID = " "
	err := c.Validate()
	for _, want := range []string{
		`router.table.op.invalid.behavior = "invalidOption": must be one of warn, error, fatal`,
		`router.table.fields.additional.placement = "type:body"`,
		`router.table.field.additional.missing = "zzz": must be one of error, ignore`,
		`router.route.topic.regex = " [[a-z]": at character`,
		`router.table.json.payload.null.behavior`,
		`router.table.json.payload.empty.array.behavior`,
		`router.decimal.handling.mode = "float"`,
		`router.null_key = "drop": must be one of refuse, publish`,
		`router.table.field.event.id is empty`,
	} {
		require.ErrorContains(t, err, want)
	}
}

func TestValidate_LeavesTheRelaysHeadersToIt(t *testing.T) {
	c := DefaultConfig()
	c.HeaderID = "postrider.source"
	c.AdditionalPlacement = "type:header:postrider.lsn"
	err := c.Validate()
	require.ErrorContains(t, err, `router.header_id = "postrider.source"`)
	require.ErrorContains(t, err, `entry "type:header:postrider.lsn": names of headers that begin with postrider. are the relay's`)
}

func TestValidate_FindsGroupReferencesBeforeTheFirstRow(t *testing.T) {
	c := DefaultConfig()
	c.TopicReplacement = "x.$7"
	require.ErrorContains(t, c.Validate(), "the pattern has 1 groups")
}

// Kafka Connect trims it, and each topic would be without a name.
func TestValidate_RefusesABlankReplacement(t *testing.T) {
	for _, blank := range []string{"", " "} {
		c := DefaultConfig()
		c.TopicReplacement = blank
		require.ErrorContains(t, c.Validate(), "route.topic.replacement is empty")
	}
}

func TestValidate_TakesWordsInAnyCase(t *testing.T) {
	c := DefaultConfig()
	c.OpInvalidBehavior, c.AdditionalMissing, c.NullBehavior = " FATAL ", "IGNORE", "OPTIONAL_BYTES"
	require.NoError(t, c.Validate())
	require.Equal(t, "ignore", c.normalised().AdditionalMissing)
}

func TestConfig_FollowsTheRetiredOptionWithAWarning(t *testing.T) {
	c := DefaultConfig()
	no := false
	c.AdditionalErrorOnMissing = &no
	require.Equal(t, "ignore", c.normalised().AdditionalMissing)
	require.Contains(t, c.Warnings()[0], "table.field.additional.missing")
}

func TestParsePlacements(t *testing.T) {
	got, err := parsePlacements(" type : HEADER : evt ,a:envelope:,p:partition,")
	require.NoError(t, err)
	require.Equal(t, []placement{{"type", toHeader, "evt"}, {"a", toEnvelope, "a"}, {"p", toPartition, "p"}}, got)
	for _, bad := range []string{"type", "a:header:b:c", "type:body", ":header", "type:header, ,x:header", ",type:header", "type:envelope: ",
		"type:envelope:payload", "a:envelope:x,b:envelope:x", "type:header:postrider.source"} {
		_, err := parsePlacements(bad)
		require.Error(t, err, bad)
	}
}

func TestKebab(t *testing.T) {
	for in, want := range map[string]string{"ORDER_CREATED": "order-created", "OrderCreated": "order-created", "orderCreated": "order-created",
		"HTTPRequest": "http-request", "order created": "order-created", "Order2Paid": "order2-paid", "__A__": "a", "": ""} {
		require.Equal(t, want, kebab(in), in)
	}
}

func TestTopics_ForgetNothingButDoNotGrow(t *testing.T) {
	cfg := DefaultConfig()
	topics, err := newTopics(&cfg, nil)
	require.NoError(t, err)
	for i := range 2 * topicCacheBytes / topicCacheEntry {
		name, fault := topics.of(strconv.AppendInt(nil, int64(i), 10))
		if want := "outbox.event." + strconv.Itoa(i); fault != nil || name != want || topics.bytes > topicCacheBytes {
			require.Nil(t, fault)
			require.Equal(t, want, name)
			require.LessOrEqual(t, topics.bytes, topicCacheBytes)
		}
	}
	require.Less(t, len(topics.known), topicCacheBytes/topicCacheEntry)
	for i := range 2 * topicCacheBytes / topicCacheFault {
		_, fault := topics.of(fmt.Appendf(nil, "no topic %d", i))
		require.NotNil(t, fault)
		require.LessOrEqual(t, topics.bytes, topicCacheBytes)
	}
}

func TestTopics_RememberTenThousand(t *testing.T) {
	cfg := DefaultConfig()
	topics, err := newTopics(&cfg, nil)
	require.NoError(t, err)
	values := make([][]byte, 10_000)
	for i := range values {
		values[i] = fmt.Appendf(nil, "tenant-%05d.orders", i)
	}
	all := func() {
		for _, v := range values {
			_, fault := topics.of(v)
			require.Nil(t, fault)
		}
	}
	all()
	require.Zero(t, testing.AllocsPerRun(1, all), "each value is matched once")
}
