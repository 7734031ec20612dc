package conformance

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// golden is one recording.
type golden struct {
	ID              string           `json:"id"`
	DDL             texts            `json:"ddl"`
	Publication     texts            `json:"publication"`
	SQLBeforeStart  []statement      `json:"sql_before_start"`
	Router          options          `json:"router"`
	KeyConverter    string           `json:"key_converter"`
	ValueConverter  string           `json:"value_converter"`
	HeaderConverter string           `json:"header_converter"`
	ConverterOption options          `json:"converter_options"`
	Connector       options          `json:"connector"`
	Topics          map[string]int32 `json:"topics"`
	TracingLibrary  bool             `json:"tracing_library"`
	SQL             []statement      `json:"sql"`
	Records         []record         `json:"records"`
	Error           *failure         `json:"error"`
	Blocked         bool             `json:"blocked"`
	Volatile        []string         `json:"volatile"`
	SeenOutcomes    []outcome        `json:"seen_outcomes"`

	area string
}

// record is one record of a topic.
type record struct {
	Topic         string   `json:"topic"`
	Partition     *int32   `json:"partition"` // nil: the producer chose freely
	Key           content  `json:"key"`
	Value         content  `json:"value"`
	Headers       []header `json:"headers"`
	Timestamp     any      `json:"timestamp_ms"` // milliseconds, or "clock"
	PartitionFrom string   `json:"partition_from"`
}

// header is a pair of name and value.
type header struct {
	name  string
	value content
}

// outcome is one of several that Debezium had for the same input.
type outcome struct {
	Value   *content `json:"value"`   // of the first record
	Records []record `json:"records"` // all of them
	Error   *failure `json:"error"`
}

type failure struct{ Phase, Class, Message string }

// content is a key, a value or a header's value: nothing at all, bytes, or their hash.
type content struct {
	null   bool
	bytes  []byte
	sha256 string // instead of bytes
}

// statement is SQL, or one of the things beside it that a recording does.
type statement struct {
	SQL     string `json:"sql"`
	Session int    `json:"session"`
	Copy    string `json:"copy"`
	Data    string `json:"data"`
	SleepMS int    `json:"sleep_ms"`
}

type texts []string // one, or a list

func (t *texts) UnmarshalJSON(b []byte) error {
	var one *string
	if json.Unmarshal(b, &one) != nil {
		return json.Unmarshal(b, (*[]string)(t))
	}
	*t = nil
	if one != nil && *one != "" {
		*t = texts{*one}
	}
	return nil
}

type options map[string]string // as Kafka Connect has them: a value that is no string becomes one

func (o *options) UnmarshalJSON(b []byte) error {
	var values map[string]json.RawMessage
	if err := json.Unmarshal(b, &values); err != nil {
		return err
	}
	*o = options{}
	for name, value := range values {
		var s string
		if json.Unmarshal(value, &s) != nil {
			s = string(value)
		}
		(*o)[name] = s
	}
	return nil
}

func (s *statement) UnmarshalJSON(b []byte) error {
	if json.Unmarshal(b, &s.SQL) == nil {
		return nil
	}
	type object statement
	return json.Unmarshal(b, (*object)(s))
}

func (h *header) UnmarshalJSON(b []byte) error {
	var pair [2]json.RawMessage
	if err := json.Unmarshal(b, &pair); err != nil {
		return err
	}
	return errors.Join(json.Unmarshal(pair[0], &h.name), h.value.UnmarshalJSON(pair[1]))
}

func (c *content) UnmarshalJSON(b []byte) error {
	var v *struct{ UTF8, Base64, SHA256 *string }
	if err := json.Unmarshal(b, &v); err != nil {
		return err
	}
	*c = content{null: v == nil}
	switch {
	case v == nil:
	case v.UTF8 != nil:
		c.bytes = []byte(*v.UTF8)
	case v.Base64 != nil:
		var err error
		c.bytes, err = base64.StdEncoding.DecodeString(*v.Base64)
		return err
	case v.SHA256 != nil:
		c.sha256 = *v.SHA256
	default:
		return fmt.Errorf("content of an unknown kind: %s", b)
	}
	return nil
}

func (c content) equal(got []byte) bool {
	if c.sha256 != "" {
		sum := sha256.Sum256(got)
		return got != nil && hex.EncodeToString(sum[:]) == c.sha256
	}
	return c.null == (got == nil) && bytes.Equal(c.bytes, got)
}

func (g *golden) varies(member string) bool { return slices.Contains(g.Volatile, member) }

// shape is what two cases must have in common to use one database.
func (g *golden) shape() string {
	return strings.Join(g.DDL, ";\n") + "\n--\n" + strings.Join(g.publication(), ";\n")
}

func (g *golden) publication() []string {
	if len(g.Publication) > 0 {
		return g.Publication
	}
	return []string{"CREATE PUBLICATION dbz_publication FOR TABLE public.outbox"}
}

var catalogueStatement = regexp.MustCompile(`(?i)^\s*(alter|create|drop|comment|grant|revoke|reindex|vacuum|set|do)\b`)

// changesCatalogue tells that the database is of no use to other cases afterwards.
func (g *golden) changesCatalogue() bool {
	return slices.ContainsFunc(slices.Concat(g.SQLBeforeStart, g.SQL), func(s statement) bool { return catalogueStatement.MatchString(s.SQL) })
}

// goldenDir is where the recordings are, and whether they are those of the repository.
func goldenDir() (dir string, own bool) {
	if dir := os.Getenv("POSTRIDER_GOLDEN"); dir != "" {
		if _, err := os.Stat(dir); err != nil && !filepath.IsAbs(dir) {
			dir = filepath.Join("..", "..", dir) // as seen from where go test was typed
		}
		return dir, false
	}
	return filepath.Join("testdata", "golden"), true
}

// loadGolden reads the recordings of a directory, file by file.
func loadGolden(t *testing.T, dir string) []*golden {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	require.NoError(t, err)
	require.NotEmpty(t, files, "no recordings in %s", dir)
	var all []*golden
	for _, file := range files {
		raw, err := os.ReadFile(file)
		require.NoError(t, err)
		var f struct{ Cases []*golden }
		require.NoError(t, json.Unmarshal(raw, &f), file)
		for _, g := range f.Cases {
			g.area = strings.TrimSuffix(filepath.Base(file), ".json")
			all = append(all, g)
		}
	}
	return all
}

// byShape puts cases together that can use the same tables, those with the same topics next to each other.
func byShape(cases []*golden) [][]*golden {
	var groups [][]*golden
	at := map[string]int{}
	for _, g := range cases {
		i, known := at[g.shape()]
		if !known {
			i = len(groups)
			at[g.shape()] = i
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], g)
	}
	for _, group := range groups { // what spoils the tables comes last
		slices.SortStableFunc(group, func(a, b *golden) int {
			switch x, y := a.changesCatalogue(), b.changesCatalogue(); {
			case x == y:
				return 0
			case x:
				return 1
			}
			return -1
		})
	}
	// Long groups first, so that no worker is left alone with one at the end.
	slices.SortStableFunc(groups, func(a, b []*golden) int { return len(b) - len(a) })
	return groups
}
