package router

import (
	"fmt"
	"strings"
	"unicode"
)

// topicCacheSize bounds the routed values that are remembered. Outboxes have a handful of aggregate types; a table that is
// routed by something else (an id) must not grow the map without end.
const topicCacheSize = 4096

// topics turns routed values into topic names and remembers them.
type topics struct {
	pattern     *javaPattern
	replacement replacement
	convert     func(string) string
	known       map[string]topicResult
}

type topicResult struct {
	name  string
	fault *rowFault
}

func newTopics(cfg *Config) (*topics, error) {
	p, err := compileJava(cfg.TopicRegex)
	if err != nil {
		return nil, fmt.Errorf("compile router.route.topic.regex: %w", err)
	}
	r, err := parseReplacement(cfg.TopicReplacement, p)
	if err != nil && cfg.TopicRegex != "" { // an empty pattern matches no topic: its replacement is never used
		return nil, fmt.Errorf("read router.route.topic.replacement: %w", err)
	}
	t := &topics{pattern: p, replacement: r, known: make(map[string]topicResult)}
	switch cfg.TopicCase {
	case "lower":
		t.convert = strings.ToLower
	case "kebab":
		t.convert = kebab
	}
	return t, nil
}

// of gives the topic of a routed value. The value is copied if it has to be kept.
func (t *topics) of(value []byte) (string, *rowFault) {
	if r, ok := t.known[string(value)]; ok {
		return r.name, r.fault
	}
	r := t.route(string(value))
	if r.fault != nil && r.fault.reason == ReasonRegexTimeout {
		return "", r.fault // a busy machine may be why
	}
	if len(t.known) >= topicCacheSize {
		clear(t.known)
	}
	t.known[string(value)] = r
	return r.name, r.fault
}

func (t *topics) route(value string) topicResult {
	name := value
	if t.convert != nil {
		name = t.convert(name)
	}
	matched, err := t.pattern.matches(name)
	if err == nil && matched {
		name, err = t.pattern.replaceFirst(name, t.replacement)
	}
	if err != nil {
		return topicResult{fault: fault(ReasonRegexTimeout, "simplify router.route.topic.regex: it backtracks too long for this value",
			"match route.topic.regex with %.100q: %w", value, err)}
	}
	if problem := topicProblem(name); problem != "" {
		f := fault(ReasonInvalidTopic, "", "routed value %.100q gives the topic name %.300q, which %s", value, name, problem)
		f.hint = "change router.route.topic.regex and router.route.topic.replacement, or what the application writes to the routed column"
		if !matched {
			f.hint = "router.route.topic.regex does not match the value, so that it became the name itself; change the pattern, or what the application writes"
		}
		return topicResult{fault: f}
	}
	return topicResult{name: name}
}

// topicProblem says why Kafka would refuse a name; empty if it would not. Names with two underscores in front are internal ones.
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
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '.' && c != '_' && c != '-' {
			return fmt.Sprintf("has the character %q; allowed are letters, digits, dot, underscore and hyphen", c)
		}
	}
	return ""
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
			if unicode.IsLower(previous) || unicode.IsDigit(previous) || unicode.IsUpper(previous) && nextLower {
				out.WriteByte('-')
			}
		}
		out.WriteRune(unicode.ToLower(c))
	}
	return strings.TrimSuffix(out.String(), "-")
}
