package protobuf

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/router/connect"
)

const declaredText = `syntax = "proto3";
package shop;
import "shop/customer.proto";
import "google/protobuf/timestamp.proto";
import "google/type/money.proto";
import "confluent/meta.proto";
message Note { string text = 1; }
message Order {
  message Line { int32 n = 1; }
  int64 id = 1 [(confluent.field_meta).doc = "number"];
  shop.Customer customer = 2;
  google.protobuf.Timestamp at_time = 3;
  google.type.Money total = 4;
  repeated Line lines = 5;
}`

var references = map[string]string{"shop/customer.proto": `syntax = "proto3"; package shop; import "shop/name.proto"; message Customer { Name name = 1; }`,
	"shop/name.proto": `syntax = "proto3"; package shop; message Name { string text = 1; }`}

func TestDeclared_WritesDocumentsAsMessages(t *testing.T) {
	d, err := Parse(declaredText, references, "shop.Order", Options{})
	require.NoError(t, err)
	require.Equal(t, "shop.Order", d.Record())
	got, err := d.AppendJSON([]byte("front"), []byte(`{"lines": [{"n": 3}], "id": "9007199254740993", "atTime": "1970-01-01T00:00:01Z",
		"customer": {"name": {"text": "A"}}, "total": {"currencyCode": "EUR"}}`))
	require.NoError(t, err)
	require.Equal(t, "front\x02\x02"+ // the second message of the file
		"\x08\x81\x80\x80\x80\x80\x80\x80\x10"+"\x12\x05\x0a\x03\x0a\x01A"+"\x1a\x02\x08\x01"+"\x22\x05\x0a\x03EUR"+"\x2a\x02\x08\x03", string(got))

	d, err = Parse(declaredText, references, "", Options{})
	require.NoError(t, err)
	require.Equal(t, "shop.Note", d.Record(), "the first one")
	got, err = d.AppendJSON(nil, []byte(`{"text": "a"}`))
	require.NoError(t, err)
	require.Equal(t, "\x00\x0a\x01a", string(got))

	d, err = Parse(declaredText, references, "shop.Order.Line", Options{})
	require.NoError(t, err)
	s := &connect.Schema{Kind: connect.KindStruct, Fields: []*connect.Field{{Name: "n", Schema: &connect.Schema{Kind: connect.KindInt32}}}}
	got, err = d.Append(nil, s, &connect.Structure{Schema: s, Values: []any{int64(7)}})
	require.NoError(t, err)
	require.Equal(t, "\x04\x02\x00\x08\x07", string(got), "two places: the second message, and the first in it")
}

func TestFront_NamesTheMessageForApicurio(t *testing.T) {
	d, err := Parse(declaredText, references, "shop.Note", Options{NamesMessage: true})
	require.NoError(t, err)
	got, err := d.AppendJSON(nil, []byte(`{"text": "a"}`))
	require.NoError(t, err)
	require.Equal(t, "\x06\x0a\x04Note\x0a\x01a", string(got))
	_, err = Parse(declaredText, references, "shop.Order.Line", Options{NamesMessage: true})
	require.ErrorContains(t, err, "message shop.Order.Line is inside of another one")
	s, err := New(connect.RequiredString, Options{NamesMessage: true})
	require.NoError(t, err)
	got, err = s.Append(nil, connect.Text("a"))
	require.NoError(t, err)
	require.Equal(t, "\x0d\x0a\x0bStringValue\x0a\x01a", string(got))
}

func TestDeclared_SaysWhatDoesNotFitWithoutTheValue(t *testing.T) {
	d, err := Parse(declaredText, references, "shop.Order", Options{})
	require.NoError(t, err)
	for doc, want := range map[string]string{
		`{"id": "secret"}`:                       "the document is no message shop.Order: invalid value for int64 field id at line and column 1:8",
		`{"total": {"secret: x)": 1}, "id": 2}`:  `unknown field "secret: x)" at line and column 1:12`,
		`{"id": 1, "id": 2}`:                     `duplicate field "id" at line and column 1:11`,
		`{"at_time": "secret"}`:                  "what is at line and column 1:13 does not fit",
		`["secret"]`:                             "does not fit",
		`{"lines": {"n": "secret"}}`:             "what is at line and column 1:11 does not fit",
		`{"customer": {"name": {"text": 123}}} `: "invalid value for string field text at line and column 1:32",
		`"secret"`:                               "does not fit",
	} {
		_, err := d.AppendJSON(nil, []byte(doc))
		var row *connect.ValueError
		require.ErrorAs(t, err, &row, doc)
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), `"secret"`)
		require.NotContains(t, err.Error(), "123")
	}
	_, err = d.AppendJSON(nil, []byte(`{"`+strings.Repeat("a", 10_000)+`": 1}`))
	require.Less(t, len(err.Error()), 1100, "names come from the row")
	d, err = Parse(`syntax = "proto2"; message A { required string a = 1; }`, nil, "", Options{})
	require.NoError(t, err)
	_, err = d.AppendJSON(nil, []byte(`{}`))
	require.ErrorContains(t, err, "required field A.a not set")
}

func TestParse_ImportsWhatConfluentsClientsHave(t *testing.T) {
	for _, file := range []string{"confluent/meta.proto", "confluent/type/decimal.proto", "confluent/type/variant.proto", "google/type/date.proto",
		"google/type/postal_address.proto", "google/protobuf/any.proto", "schema.proto"} {
		_, err := Parse(`syntax = "proto3"; import "`+file+`"; message A {}`, map[string]string{"schema.proto": `syntax = "proto3";`}, "", Options{})
		require.NoError(t, err)
	}
}

func TestParse_RefusesWhatIsNoSchema(t *testing.T) {
	for text, want := range map[string]string{
		`{"type":"string"}`: "read the Protobuf schema", `syntax = "proto3";`: "it has no message",
		`syntax = "proto3"; import "else.proto"; message A {}`:             "else.proto",
		`syntax = "proto3"; import "google/type/else.proto"; message A {}`: "google/type/else.proto",
	} {
		_, err := Parse(text, nil, "", Options{})
		require.ErrorContains(t, err, want)
	}
	_, err := Parse(declaredText, references, "shop.Nothing", Options{})
	require.ErrorContains(t, err, "it has no message shop.Nothing")
}
