package router

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode"

	"github.com/postrider/postrider/router/javaregex"
)

// topicCacheBytes bounds the routed values that are remembered, with their topics. Outboxes have a
// handful of aggregate types, or ten thousand tenants; a table that is routed by something else
// (an id) must not grow the map without end. A value that is not remembered costs a match of the
// pattern for every row.
const (
	topicCacheBytes = 4 << 20
	topicCacheEntry = 96   // what one takes beside its two texts
	topicCacheFault = 1024 // and what a fault takes
)

// maxCachedValue is the length of the longest routed value that is remembered: no topics have
// longer ones, but a writer of rows could fill the memory with them.
const maxCachedValue = 1024

// topics turns routed values into topic names and remembers them.
type topics struct {
	pattern     *javaregex.Pattern
	replacement javaregex.Replacement
	convert     func(string) string
	allow       []string // patterns; empty: every topic
	refuse      []string // names that no event may have
	known       map[string]topicResult
	bytes       int // of known, about; <= topicCacheBytes
}

type topicResult struct {
	name string
	err  error
}

func newTopics(cfg *Config, own []string) (*topics, error) {
	p, err := javaregex.Compile(cfg.TopicRegex)
	if err != nil {
		return nil, fmt.Errorf("compile router.route.topic.regex: %w", err)
	}
	r, err := javaregex.ParseReplacement(cfg.TopicReplacement, p)
	// an empty pattern matches no topic: its replacement is never used
	if err != nil && cfg.TopicRegex != "" {
		return nil, fmt.Errorf("read router.route.topic.replacement: %w", err)
	}
	t := &topics{pattern: p, replacement: r, allow: cfg.TopicAllow, refuse: own,
		known: make(map[string]topicResult)}
	switch cfg.TopicCase {
	case "lower":
		t.convert = strings.ToLower
	case "kebab":
		t.convert = kebab
	}
	return t, nil
}

// of gives the topic of a routed value. The value is copied if it has to be kept.
func (t *topics) of(value []byte) (string, error) {
	if r, ok := t.known[string(value)]; ok {
		return r.name, r.err
	}
	name, bad := t.route(string(value))
	r := topicResult{name: name}
	size := topicCacheEntry + len(value) + len(name)
	if bad != nil {
		r.err = bad
		size += topicCacheFault
	}
	// a busy machine may be why a match took too long
	if len(value) > maxCachedValue || bad != nil && bad.Reason == ReasonRegexTimeout {
		return r.name, r.err
	}
	if t.bytes+size > topicCacheBytes {
		clear(t.known)
		t.bytes = 0
	}
	t.known[string(value)] = r
	t.bytes += size
	return r.name, r.err
}

func (t *topics) route(value string) (string, *RowError) {
	name := value
	if t.convert != nil {
		name = t.convert(name)
	}
	matched, err := t.pattern.Matches(name)
	if err == nil && matched {
		name, err = t.pattern.ReplaceFirst(name, t.replacement)
	}
	problem := topicProblem(name)
	switch {
	case err != nil:
		return "", fault(ReasonRegexTimeout,
			"simplify router.route.topic.regex: it backtracks too long for this value",
			"match route.topic.regex with %.100q: %w", value, err)
	case problem != "":
		hint := "router.route.topic.regex does not match the value, so that it became the name " +
			"itself; change the pattern, or what the application writes"
		if matched {
			hint = "change router.route.topic.regex and router.route.topic.replacement, or what the " +
				"application writes to the routed column"
		}
		return "", fault(ReasonInvalidTopic, hint,
			"routed value %.100q gives the topic name %.300q, which %s", value, name, problem)
	case slices.Contains(t.refuse, name):
		return "", fault(ReasonInvalidTopic,
			"have the application write another value, or change router.route.topic.replacement",
			"routed value %.100q gives the topic %s, which is the relay's own: events must not "+
				"be written there", value, name)
	case len(t.allow) > 0 && !slices.ContainsFunc(t.allow, func(pattern string) bool {
		allowed, _ := path.Match(pattern, name) // topics have no slashes
		return allowed
	}):
		return "", fault(ReasonInvalidTopic,
			"add the topic to router.topic_allow, if the application is meant to write to it",
			"routed value %.100q gives the topic %s, which router.topic_allow does not list",
			value, name)
	}
	return name, nil
}

// allowProblem is what is wrong with an entry of router.topic_allow; empty if nothing is.
func allowProblem(pattern string) string {
	if pattern != "" && strings.Trim(pattern, "*") == "" {
		return "allows every topic: leave the list empty for that"
	}
	return PatternProblem(pattern)
}

// PatternProblem returns what is wrong with a pattern of topics, in which * stands for any
// characters; empty: nothing.
func PatternProblem(pattern string) string {
	switch {
	case pattern == "":
		return "is empty"
	case strings.HasPrefix(pattern, "__"):
		return "can match no topic: names with two underscores in front are refused"
	}
	return topicProblem(strings.ReplaceAll(pattern, "*", "x"))
}

// topicProblem is why Kafka would refuse a name; empty if it would not. Names with two
// underscores in front are internal ones.
func topicProblem(name string) string {
	switch {
	case name == "":
		return "is empty"
	case len(name) > 249:
		return "is longer than 249 characters"
	case name == "." || name == "..":
		return "is not allowed"
	case strings.HasPrefix(name, "__"):
		return "is reserved for Kafka itself (two underscores in front)"
	}
	for _, c := range name {
		if !inTopics(c) {
			return fmt.Sprintf("has the character %q; allowed are letters, digits, dot, "+
				"underscore and hyphen", c)
		}
	}
	return ""
}

// inTopics reports whether Kafka takes a character in the name of a topic.
func inTopics(c rune) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' ||
		c == '_' || c == '-'
}

// TopicName is a text as the name of a topic, as Debezium makes it: what cannot be in one is an
// underscore for each of Java's characters.
func TopicName(text string) string {
	var out strings.Builder
	for _, c := range text {
		switch {
		case inTopics(c):
			out.WriteRune(c)
		case c > 0xFFFF: // two of Java's characters
			out.WriteString("__")
		default:
			out.WriteByte('_')
		}
	}
	return out.String()
}

// kebab turns ORDER_CREATED, OrderCreated and "order created" into order-created.
func kebab(s string) string {
	var out strings.Builder
	in := []rune(s)
	for i, c := range in {
		if c == '_' || c == ' ' || c == '-' {
			if out.Len() > 0 && !strings.HasSuffix(out.String(), "-") {
				out.WriteByte('-')
			}
			continue
		}
		if unicode.IsUpper(c) && i > 0 {
			previous := in[i-1]
			nextLower := i+1 < len(in) && unicode.IsLower(in[i+1])
			if unicode.IsLower(previous) || unicode.IsDigit(previous) ||
				unicode.IsUpper(previous) && nextLower {
				out.WriteByte('-')
			}
		}
		out.WriteRune(unicode.ToLower(c))
	}
	return strings.TrimSuffix(out.String(), "-")
}
