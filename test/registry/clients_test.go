package registry

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/bufbuild/protocompile"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/sr"
	"github.com/twmb/franz-go/pkg/sr/srfake"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/postrider/postrider/internal/embedded"
	"github.com/postrider/postrider/internal/registry"
	"github.com/postrider/postrider/router"
	"github.com/postrider/postrider/router/connect"
	"github.com/postrider/postrider/test/parts"
)

func TestMain(m *testing.M) { parts.Main(m) }

func of(k connect.Kind, name string, params ...connect.Parameter) *connect.Schema {
	return &connect.Schema{Kind: k, Name: name, Params: params}
}

func optional(s *connect.Schema) *connect.Schema {
	o := *s
	o.Optional = true
	return &o
}

func record(name string, fields ...any) *connect.Schema {
	s := &connect.Schema{Kind: connect.KindStruct, Name: name}
	for i := 0; i < len(fields); i += 2 {
		s.Fields = append(s.Fields, &connect.Field{Name: fields[i].(string), Schema: fields[i+1].(*connect.Schema)})
	}
	return s
}

func structure(s *connect.Schema, values ...any) *connect.Structure {
	return &connect.Structure{Schema: s, Values: values}
}

var (
	text    = of(connect.KindString, "")
	long    = of(connect.KindInt64, "")
	item    = record("shop.Item", "sku", text, "n", of(connect.KindInt32, ""))
	withDef = &connect.Schema{Kind: connect.KindInt64, Def: int64(7)}
	scalars = record("shop.Scalars", "i16", of(connect.KindInt16, ""), "i32", of(connect.KindInt32, ""), "i64", long,
		"f", of(connect.KindFloat, ""), "d", of(connect.KindDouble, ""), "b", of(connect.KindBool, ""), "s", text,
		"raw", of(connect.KindBytes, ""))
	members  = record("shop.Members", "none", optional(text), "some", optional(text), "preset", withDef)
	logical  = "org.apache.kafka.connect.data."
	logicals = record("shop.Logicals", "amount", of(connect.KindBytes, logical+"Decimal", connect.Parameter{Key: "scale", Value: "2"}),
		"day", of(connect.KindInt32, logical+"Date"), "clock", of(connect.KindInt32, logical+"Time"),
		"moment", of(connect.KindInt64, logical+"Timestamp"))
	debeziums = record("pg.public.outbox.order.Value", "id", of(connect.KindString, "io.debezium.data.Uuid"),
		"payload", optional(of(connect.KindString, "io.debezium.data.Json")), "at", of(connect.KindInt64, "io.debezium.time.MicroTimestamp"))
	order = optional(record("shop.Order", "first", item, "items", &connect.Schema{Kind: connect.KindArray, Items: item},
		"tags", &connect.Schema{Kind: connect.KindMap, Items: optional(text)}))
)

// pairs are schemas and values, and what the two clients make of them. kafkajs' client leaves logical types to the application.
var pairs = []struct {
	name         string
	schema       *connect.Schema
	value        any
	python, node string // of Avro
	json         string // of JSON Schema, for both
	protobuf     string // of Protobuf, in its own JSON
}{
	{"text", text, connect.Text("a 🚚"), `"a 🚚"`, `"a 🚚"`, `"a 🚚"`, `{"value":"a 🚚"}`},
	{"optional text", optional(text), connect.Text("x"), `"x"`, `"x"`, `"x"`, `{"value":"x"}`},
	{"scalars", scalars, structure(scalars, int64(-7), int64(1<<31-1), int64(1<<52), float32(1.5), 2.25, true, connect.Text("é"), connect.Buffer{0, 255}),
		`{"i16":-7,"i32":2147483647,"i64":4503599627370496,"f":1.5,"d":2.25,"b":true,"s":"é","raw":{"bytes":"AP8="}}`,
		`{"i16":-7,"i32":2147483647,"i64":4503599627370496,"f":1.5,"d":2.25,"b":true,"s":"é","raw":{"bytes":"AP8="}}`,
		`{"i16":-7,"i32":2147483647,"i64":4503599627370496,"f":1.5,"d":2.25,"b":true,"s":"é","raw":"AP8="}`,
		`{"i16":-7,"i32":2147483647,"i64":"4503599627370496","f":1.5,"d":2.25,"b":true,"s":"é","raw":"AP8="}`},
	{"members that are null or have a default", members, structure(members, nil, connect.Text("some"), int64(8)),
		`{"none":null,"some":"some","preset":8}`, `{"none":null,"some":"some","preset":8}`, `{"none":null,"some":"some","preset":8}`,
		`{"some":"some","preset":"8"}`},
	{"Connect's logical types", logicals, structure(logicals, connect.Decimal{Unscaled: big.NewInt(-1230), Scale: 2},
		connect.Date{Millis: 20_468 * 86_400_000, DayOnly: true}, connect.Date{Millis: 34_200_123}, connect.Date{Millis: 1_768_469_400_123}),
		`{"amount":{"decimal":"-12.30"},"day":{"date":"2026-01-15"},"clock":{"time":"09:30:00.123000"},"moment":{"timestamp":"2026-01-15T09:30:00.123000+00:00"}}`,
		`{"amount":{"bytes":"+zI="},"day":20468,"clock":34200123,"moment":1768469400123}`,
		`{"amount":"+zI=","day":20468,"clock":34200123,"moment":1768469400123}`,
		`{"amount":{"value":"+zI=","precision":4,"scale":2},"day":{"year":2026,"month":1,"day":15},"clock":{"hours":9,"minutes":30,"nanos":123000000},
		"moment":"2026-01-15T09:30:00.123Z"}`},
	{"Debezium's types", debeziums, structure(debeziums, connect.Text("00000000-0000-0000-0000-000000000001"), connect.Text(`{"a": 1}`), int64(1_768_469_400_123_456)),
		`{"id":"00000000-0000-0000-0000-000000000001","payload":"{\"a\": 1}","at":1768469400123456}`,
		`{"id":"00000000-0000-0000-0000-000000000001","payload":"{\"a\": 1}","at":1768469400123456}`,
		`{"id":"00000000-0000-0000-0000-000000000001","payload":"{\"a\": 1}","at":1768469400123456}`,
		`{"id":"00000000-0000-0000-0000-000000000001","payload":"{\"a\": 1}","at":"1768469400123456"}`},
	{"nested structs, arrays and maps", order, structure(order, structure(item, connect.Text("a"), int64(1)),
		[]any{structure(item, connect.Text("b"), int64(2)), structure(item, connect.Text("c"), int64(3))},
		connect.Map{{Key: connect.Text("k"), Value: connect.Text("v")}, {Key: connect.Text("n")}}),
		`{"first":{"sku":"a","n":1},"items":[{"sku":"b","n":2},{"sku":"c","n":3}],"tags":{"k":"v","n":null}}`,
		`{"first":{"sku":"a","n":1},"items":[{"sku":"b","n":2},{"sku":"c","n":3}],"tags":{"k":"v","n":null}}`,
		`{"first":{"sku":"a","n":1},"items":[{"sku":"b","n":2},{"sku":"c","n":3}],"tags":{"k":"v","n":null}}`,
		`{"first":{"sku":"a","n":1},"items":[{"sku":"b","n":2},{"sku":"c","n":3}],"tags":[{"key":"k","value":"v"},{"key":"n"}]}`},
}

// framed is the input of the programs: each pair in a topic of its own.
func framed(t *testing.T, url, framing string, formats []string) []byte {
	t.Helper()
	cfg, format := registry.DefaultConfig(), router.DefaultFormat()
	cfg.URLs, cfg.Timeout, cfg.Framing = []string{url}, time.Minute, framing
	var lines bytes.Buffer
	run := parts.Unique("run") // a real registry has the subjects of earlier ones
	for _, format.Value = range formats {
		r, err := registry.Open(cfg, format)
		require.NoError(t, err)
		for i, p := range pairs {
			topic := fmt.Sprintf("%s-%s-%d", run, format.Value, i)
			value, err := r.Value.Append(nil, topic, p.schema, p.value)
			require.NoError(t, err, p.name)
			record := map[string]string{"topic": topic, "format": format.Value, "value": base64.StdEncoding.EncodeToString(value)}
			if format.Value == "protobuf" && framing == registry.Confluent {
				record["files"], record["message"] = compile(t, url, value)
			}
			line, err := json.Marshal(record)
			require.NoError(t, err)
			lines.Write(append(line, '\n'))
		}
	}
	return lines.Bytes()
}

// imports are the files that Protocol Buffers' and Confluent's libraries bring along, after their public sources.
var imports = map[string]string{
	"confluent/type/decimal.proto": `syntax = "proto3"; package confluent.type; message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }`,
	"google/type/date.proto":       `syntax = "proto3"; package google.type; message Date { int32 year = 1; int32 month = 2; int32 day = 3; }`,
	"google/type/timeofday.proto": `syntax = "proto3"; package google.type;
		message TimeOfDay { int32 hours = 1; int32 minutes = 2; int32 seconds = 3; int32 nanos = 4; }`,
	"confluent/meta.proto": `syntax = "proto3"; package confluent; import "google/protobuf/descriptor.proto";
		message Meta { string doc = 1; map<string, string> params = 2; } extend google.protobuf.FieldOptions { Meta field_meta = 1088; }`,
}

// compile makes descriptors of the file that the registry has under the id of a value, as protoc does for the application that reads it.
func compile(t *testing.T, url string, value []byte) (files, message string) {
	t.Helper()
	api, err := sr.NewClient(sr.URLs(url))
	require.NoError(t, err)
	has, err := api.SchemaByID(t.Context(), int(binary.BigEndian.Uint32(value[1:])))
	require.NoError(t, err)
	sources := maps.Clone(imports)
	sources["top.proto"] = strings.Replace(has.Schema, "\nmessage ", "\nimport \"confluent/meta.proto\";\nmessage ", 1)
	compiler := protocompile.Compiler{Resolver: protocompile.WithStandardImports(&protocompile.SourceResolver{Accessor: protocompile.SourceAccessorFromMap(sources)})}
	linked, err := compiler.Compile(t.Context(), "top.proto")
	require.NoError(t, err, has.Schema)
	index := 0
	if value[5] != 0 {
		index = int(value[6] / 2)
	}
	var set descriptorpb.FileDescriptorSet
	seen := map[string]bool{}
	var add func(f protoreflect.FileDescriptor)
	add = func(f protoreflect.FileDescriptor) {
		if seen[f.Path()] {
			return
		}
		seen[f.Path()] = true
		for i := range f.Imports().Len() {
			add(f.Imports().Get(i).FileDescriptor)
		}
		set.File = append(set.File, protodesc.ToFileDescriptorProto(f))
	}
	add(linked[0])
	b, err := proto.Marshal(&set)
	require.NoError(t, err)
	return base64.StdEncoding.EncodeToString(b), string(linked[0].Messages().Get(index).FullName())
}

// server is the registry of POSTRIDER_TEST_REGISTRY, or franz-go's fake. Apicurio's deserializers have an API of their own, which
// the fake serves.
func server(t *testing.T, client string) (url string) {
	t.Helper()
	if url = os.Getenv("POSTRIDER_TEST_REGISTRY"); url != "" && client != "java" {
		return url
	}
	fake := srfake.New()
	t.Cleanup(fake.Close)
	serveApicurio(t, fake)
	return fake.URL()
}

// serveApicurio has a registry answer the requests of Apicurio's deserializers too, with the same ids.
func serveApicurio(t *testing.T, server *srfake.Registry) {
	t.Helper()
	api, err := sr.NewClient(sr.URLs(server.URL()))
	require.NoError(t, err)
	server.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		path, is := strings.CutPrefix(r.URL.Path, "/apis/registry/v2/ids/")
		if !is {
			return false
		}
		if strings.HasSuffix(path, "/references") {
			_, _ = w.Write([]byte("[]"))
			return true
		}
		id, err := strconv.Atoi(path[strings.LastIndexByte(path, '/')+1:])
		if err != nil {
			w.WriteHeader(http.StatusNotFound)
			return true
		}
		has, err := api.SchemaByID(r.Context(), id)
		if err != nil {
			w.WriteHeader(http.StatusNotFound)
			return true
		}
		_, _ = w.Write([]byte(has.Schema))
		return true
	})
}

// run installs the programs, once for each state of their files, and decodes what is framed.
func run(t *testing.T, name, framing string, formats []string, install string, command ...string) []string {
	t.Helper()
	sum := sha256.New()
	files, err := filepath.Glob("clients/*")
	require.NoError(t, err)
	fmt.Fprintln(sum, install, command)
	for _, file := range files {
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		fmt.Fprintf(sum, "%s %q\n", file, content)
	}
	cache, err := embedded.CacheDir()
	require.NoError(t, err)
	dir := filepath.Join(cache, fmt.Sprintf("registry-%s-%x", name, sum.Sum(nil)[:4]))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	require.NoError(t, embedded.PrepareOnce(ctx, dir, func(tmp string) error {
		if err := os.CopyFS(tmp, os.DirFS("clients")); err != nil {
			return err
		}
		cmd := exec.CommandContext(ctx, "sh", "-c", install)
		cmd.Dir, cmd.Env = tmp, parts.Environment()
		if output, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%w\n%s", err, output)
		}
		return nil
	}))
	url := server(t, name)
	cmd := exec.CommandContext(ctx, command[0], append(command[1:], url)...)
	cmd.Dir, cmd.Env = dir, parts.Environment()
	cmd.Stdin = bytes.NewReader(framed(t, url, framing, formats))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	output, err := cmd.Output()
	require.NoError(t, err, "%s", stderr.String())
	lines := strings.Split(strings.TrimSpace(string(output)), "\n")
	require.Len(t, lines, len(formats)*len(pairs), "%s", stderr.String())
	return lines
}

func TestValues_AreDecodedByConfluentsPythonClient(t *testing.T) {
	if err := exec.Command("python3", "-c", "import venv, ensurepip").Run(); err != nil {
		parts.Lacking(t, "python", "Debian packages python3 and python3-venv")
	}
	got := run(t, "python", registry.Confluent, []string{"avro", "json_schema", "protobuf"}, "python3 -m venv --copies .venv && .venv/bin/pip install -q -r requirements.txt",
		".venv/bin/python3", "decode.py")
	for i, p := range pairs {
		require.JSONEq(t, p.python, got[i], "avro: %s", p.name)
		require.JSONEq(t, p.json, got[len(pairs)+i], "json_schema: %s", p.name)
		require.JSONEq(t, p.protobuf, got[2*len(pairs)+i], "protobuf: %s", p.name)
	}
}

// Its Protobuf reads the first message of a file alone, and no imports but of schemas with references: no record of
// ProtobufConverter with a plain key or a date either.
func TestValues_AreDecodedByKafkajs(t *testing.T) {
	if _, err := exec.LookPath("npm"); err != nil {
		parts.Lacking(t, "node", "Debian packages nodejs and npm")
	}
	got := run(t, "node", registry.Confluent, []string{"avro", "json_schema"}, "npm install --silent --no-fund --no-audit", "node", "decode.js")
	for i, p := range pairs {
		require.JSONEq(t, p.node, got[i], "avro: %s", p.name)
		require.JSONEq(t, p.json, got[len(pairs)+i], "json_schema: %s", p.name)
	}
}

// Its Protobuf knows no places of messages, so that it reads Apicurio's own framing alone.
func TestValues_AreDecodedByApicuriosDeserializers(t *testing.T) {
	for _, command := range []string{"mvn", "javac"} {
		if _, err := exec.LookPath(command); err != nil {
			parts.Lacking(t, command, "Debian packages maven and default-jdk-headless")
		}
	}
	const install = "mvn -q -B dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory=jars"
	for framing, formats := range map[string][]string{
		registry.Confluent: {"avro", "json_schema"}, registry.Apicurio: {"avro", "json_schema", "protobuf"},
	} {
		got := run(t, "java", framing, formats, install, "java", "-cp", "jars/*", "Decode.java", framing)
		for i, p := range pairs {
			require.JSONEq(t, p.node, got[i], "avro: %s", p.name)
			require.JSONEq(t, p.json, got[len(pairs)+i], "json_schema: %s", p.name)
			if framing != registry.Apicurio {
				continue
			}
			switch message := got[2*len(pairs)+i]; {
			case p.schema.Kind == connect.KindString: // Java prints what a wrapper holds
				require.JSONEq(t, p.json, message, "protobuf: %s", p.name)
			case p.schema == logicals: // it does not have Confluent's files, which ProtobufConverter imports too
				require.Contains(t, message, "unable to find confluent/type/decimal.proto")
			default:
				require.JSONEq(t, p.protobuf, message, "protobuf: %s", p.name)
			}
		}
	}
}
