// Package connecttest draws schemas and values of Kafka Connect for property tests.
package connecttest

import (
	"fmt"
	"math"
	"math/big"
	"strconv"

	"pgregory.net/rapid"

	"github.com/postrider/postrider/router/connect"
)

// Names of Connect's logical types.
const (
	Decimal   = "org.apache.kafka.connect.data.Decimal"
	Date      = "org.apache.kafka.connect.data.Date"
	Time      = "org.apache.kafka.connect.data.Time"
	Timestamp = "org.apache.kafka.connect.data.Timestamp"
)

// Schemas draws Connect schemas in which structs appear again, and values of them.
type Schemas struct {
	AnyNames bool // names have characters that Avro and Protobuf refuse
	Finite   bool // numbers are finite, and texts are valid UTF-8
	Filled   bool // no member with a default is missing
	// Messages are schemas that ProtobufConverter takes: members are structs or what a field can
	// hold, and items are not null.
	Messages bool

	structs []*connect.Schema
	names   int
}

var scalars = []connect.Schema{
	{Kind: connect.KindString}, {Kind: connect.KindBool}, {Kind: connect.KindInt16},
	{Kind: connect.KindInt32}, {Kind: connect.KindInt64}, {Kind: connect.KindFloat},
	{Kind: connect.KindDouble}, {Kind: connect.KindBytes},
	{Kind: connect.KindString, Name: "io.debezium.data.Uuid", Version: "1"},
	{Kind: connect.KindInt64, Name: "io.debezium.time.MicroTimestamp", Version: "1"},
	{Kind: connect.KindInt32, Name: Date, Version: "1"},
	{Kind: connect.KindInt32, Name: Time, Version: "1"},
	{Kind: connect.KindInt64, Name: Timestamp, Version: "1"},
	{Kind: connect.KindBytes, Name: Decimal, Version: "1"},
}

// Draw draws a schema with at most depth schemas in one another.
func (g *Schemas) Draw(t *rapid.T, depth int) *connect.Schema {
	s := g.kind(t, depth)
	s.Optional = rapid.Bool().Draw(t, "optional")
	return s
}

func (g *Schemas) kind(t *rapid.T, depth int) *connect.Schema {
	last := len(scalars) - 1
	if depth > 0 {
		last += 5
	}
	switch i := rapid.IntRange(0, last).Draw(t, "kind") - len(scalars); i {
	case 0, 1:
		items := g.Draw(t, depth-1)
		if g.Messages {
			items = g.item(t, depth-1)
		}
		if i == 0 {
			return &connect.Schema{Kind: connect.KindArray, Items: items}
		}
		return &connect.Schema{Kind: connect.KindMap, Items: items}
	case 2, 3:
		return g.Struct(t, depth)
	case 4:
		if len(g.structs) == 0 || g.Messages {
			return g.Struct(t, depth)
		}
		again := *rapid.SampledFrom(g.structs).Draw(t, "struct again")
		return &again
	default:
		return g.scalar(t, scalars[i+len(scalars)])
	}
}

// item draws what an array of Protobuf can hold.
func (g *Schemas) item(t *rapid.T, depth int) *connect.Schema {
	if depth > 0 && rapid.Bool().Draw(t, "struct in an array") {
		return g.Struct(t, depth)
	}
	return g.scalar(t, rapid.SampledFrom(scalars).Draw(t, "item"))
}

func (g *Schemas) scalar(t *rapid.T, s connect.Schema) *connect.Schema {
	if s.Name == Decimal {
		scale := rapid.IntRange(0, 5).Draw(t, "scale")
		s.Params = []connect.Parameter{{Key: "scale", Value: strconv.Itoa(scale)}}
		if rapid.Bool().Draw(t, "has a precision") {
			precision := strconv.Itoa(rapid.IntRange(max(scale, 1), 30).Draw(t, "precision"))
			s.Params = append(s.Params,
				connect.Parameter{Key: "connect.decimal.precision", Value: precision})
		}
	}
	if rapid.IntRange(0, 3).Draw(t, "has a default") == 0 {
		s.Def = g.Value(t, &s)
	}
	return &s
}

// Struct draws a struct.
func (g *Schemas) Struct(t *rapid.T, depth int) *connect.Schema {
	s := &connect.Schema{Kind: connect.KindStruct}
	if rapid.IntRange(0, 3).Draw(t, "has a name") > 0 {
		g.names++
		space := rapid.IntRange(0, 2).Draw(t, "namespace")
		s.Name = fmt.Sprintf("ns%d.Name%d", space, g.names)
		if g.AnyNames {
			s.Name = "my-" + s.Name + rapid.StringMatching(`[ a-zä-]{0,3}`).Draw(t, "end of the name")
		}
		s.Version, s.Doc = "2", rapid.StringN(0, 3, -1).Draw(t, "doc")
	}
	for i := range rapid.IntRange(0, 4).Draw(t, "members") {
		name := "m" + strconv.Itoa(i)
		if g.AnyNames {
			name = strconv.Itoa(i) + rapid.String().Draw(t, "name")
		}
		s.Fields = append(s.Fields, &connect.Field{Name: name, Schema: g.Draw(t, depth-1)})
	}
	if s.Name != "" {
		g.structs = append(g.structs, s)
	}
	return s
}

// Value draws a value of a schema that is not null.
func (g *Schemas) Value(t *rapid.T, s *connect.Schema) any {
	integer := func(low, high int64) int64 { return rapid.Int64Range(low, high).Draw(t, "integer") }
	switch s.Name {
	case Date:
		days := integer(math.MinInt32, math.MaxInt32)
		if g.Messages { // Java counts earlier days by the Julian calendar; years end at 9999
			days = integer(-141_427, 2_900_000)
		}
		return connect.Date{Millis: days * connect.MillisPerDay, DayOnly: true}
	case Time:
		return connect.Date{Millis: integer(0, connect.MillisPerDay-1)}
	case Timestamp:
		if g.Messages {
			return connect.Date{Millis: integer(-62_135_596_800_000, 253_402_300_799_999)}
		}
		return connect.Date{Millis: integer(-1<<50, 1<<50)}
	case Decimal:
		return decimal(t, s)
	}
	switch s.Kind {
	case connect.KindArray:
		out := make([]any, rapid.IntRange(0, 3).Draw(t, "length"))
		for i := range out {
			out[i] = g.ValueOrNull(t, s.Items)
		}
		return out
	case connect.KindMap:
		out := connect.Map{}
		for i := range rapid.IntRange(0, 3).Draw(t, "entries") {
			key := strconv.Itoa(i) + rapid.String().Draw(t, "key")
			out = append(out, connect.Entry{Key: connect.Text(key), Value: g.ValueOrNull(t, s.Items)})
		}
		return out
	case connect.KindStruct:
		out := &connect.Structure{Schema: s, Values: make([]any, len(s.Fields))}
		for i, f := range s.Fields {
			switch {
			case f.Schema.Def == nil || !g.Filled && rapid.Bool().Draw(t, "has a value"):
				out.Values[i] = g.ValueOrNull(t, f.Schema)
			case g.Filled:
				out.Values[i] = g.Value(t, f.Schema)
			}
		}
		return out
	}
	return g.plain(t, s.Kind, integer)
}

func (g *Schemas) plain(t *rapid.T, kind connect.Kind, integer func(low, high int64) int64) any {
	switch kind {
	case connect.KindString:
		text := rapid.String().Draw(t, "text")
		if !g.Finite && rapid.IntRange(0, 9).Draw(t, "lone surrogate") == 0 {
			text += "\xED\xA0\x80"
		}
		return connect.Text(text)
	case connect.KindBool:
		return rapid.Bool().Draw(t, "boolean")
	case connect.KindInt16:
		return integer(math.MinInt16, math.MaxInt16)
	case connect.KindInt32:
		return integer(math.MinInt32, math.MaxInt32)
	case connect.KindInt64:
		return integer(math.MinInt64, math.MaxInt64)
	case connect.KindFloat:
		if g.Finite {
			return rapid.Float32().Draw(t, "float")
		}
		return math.Float32frombits(rapid.Uint32().Draw(t, "float"))
	case connect.KindDouble:
		if g.Finite {
			return rapid.Float64().Draw(t, "double")
		}
		return math.Float64frombits(rapid.Uint64().Draw(t, "double"))
	default:
		b := rapid.SliceOfN(rapid.Byte(), 0, 8).Draw(t, "bytes")
		if rapid.Bool().Draw(t, "buffer") {
			return connect.Buffer(b)
		}
		return connect.ByteArray(b)
	}
}

func decimal(t *rapid.T, s *connect.Schema) any {
	numbers := map[string]int{"connect.decimal.precision": 64}
	for _, p := range s.Params {
		n, err := strconv.Atoi(p.Value)
		if err != nil {
			t.Fatal(err)
		}
		numbers[p.Key] = n
	}
	most := strconv.Itoa(numbers["connect.decimal.precision"])
	digits := rapid.StringMatching(`-?[0-9]{1,`+most+`}`).Draw(t, "digits")
	unscaled, ok := new(big.Int).SetString(digits, 10)
	if !ok {
		t.Fatal(digits)
	}
	return connect.Decimal{Unscaled: unscaled, Scale: numbers["scale"]}
}

// ValueOrNull draws a value of a schema, which is null at times if the schema is optional.
func (g *Schemas) ValueOrNull(t *rapid.T, s *connect.Schema) any {
	if s.Optional && rapid.IntRange(0, 2).Draw(t, "null") == 0 {
		return nil
	}
	return g.Value(t, s)
}
