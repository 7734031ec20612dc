package check

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/sink/kafka"
)

func TestCheck_TopicOfDeadLettersKeepsThem(t *testing.T) {
	c := topicCheck{kafka: kafka.Config{Brokers: []string{"b:1"}}}
	for name, want := range map[string]struct {
		report   kafka.TopicReport
		severity Severity
		fix      string
	}{
		"missing": {kafka.TopicReport{Name: "d", Err: sink.ErrUnknownTopic}, SeverityError,
			"retention.ms=-1"},
		"compacted": {kafka.TopicReport{Name: "d", CleanupPolicy: "compact"}, SeverityError,
			"cleanup.policy=delete"},
		"a week": {kafka.TopicReport{Name: "d", CleanupPolicy: "delete",
			Retention: 7 * 24 * time.Hour}, SeverityWarning, "retention.ms=-1"},
		"for ever": {kafka.TopicReport{Name: "d", CleanupPolicy: "delete"}, SeverityOK, ""},
	} {
		findings := c.deadLetters(want.report)
		last := findings[len(findings)-1]
		require.Equal(t, want.severity, last.Severity, name)
		require.Contains(t, last.Fix, want.fix, name)
	}
}
