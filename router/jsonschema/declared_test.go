package jsonschema

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/router/connect"
)

const declaredText = `{"$schema":"http://json-schema.org/draft-07/schema#","title":"Order","type":"object","required":["id"],"additionalProperties":false,` +
	`"properties":{"id":{"type":"integer"},"customer":{"$ref":"customer.json"},"state":{"enum":["new","paid"]},"note":{"type":["string","null"],"pattern":"^[a-z]*$"}}}`

var references = map[string]string{"customer.json": `{"type":"object","properties":{"name":{"$ref":"name.json#/definitions/name"}}}`,
	"name.json": `{"definitions":{"name":{"type":"string"}}}`}

func TestDeclared_PassesOnWhatFits(t *testing.T) {
	for _, id := range []string{"", `"$id":"order.json",`, `"$id":"https://example.com/schemas/order.json",`} {
		d, err := Parse("{"+id+declaredText[1:], references, Options{})
		require.NoError(t, err)
		require.Equal(t, "Order", d.Record())
		const doc = `{"id": 9007199254740993, "customer": {"name": "A"}, "state": "new", "note": null}`
		got, err := d.AppendJSON([]byte("front"), []byte(doc))
		require.NoError(t, err)
		require.Equal(t, "front"+doc, string(got), "as it was written")
		for doc, want := range map[string]string{
			`{}`: "the document has no member id", `{"id": "secret"}`: "member id is of type string where the schema has integer",
			`{"id": 1, "customer": {"name": 7}}`: "member customer.name is of type number where the schema has string",
			`{"id": 1, "else": "secret"}`:        "the document has a member that the schema does not have: else",
			`{"id": 1, "state": "secret"}`:       "member state does not fit enum of the schema",
			`{"id": 1, "note": "secret-7"}`:      "member note does not fit pattern of the schema",
			`{"id":`:                             "the document is no JSON in UTF-8",
			"{\"id\":1,\"note\":\"\xff\"}":       "the document is no JSON in UTF-8",
		} {
			_, err := d.AppendJSON(nil, []byte(doc))
			var row *connect.ValueError
			require.ErrorAs(t, err, &row, doc)
			require.ErrorContains(t, err, want)
			require.NotContains(t, err.Error(), "secret")
		}
	}
	d, err := Parse(declaredText, references, Options{})
	require.NoError(t, err)
	_, err = d.AppendJSON(nil, []byte(`{"id":1,"`+strings.Repeat("ä", 10_000)+`":1}`))
	require.Less(t, len(err.Error()), 1100, "names come from the row")
	d, err = Parse(`{"type":"object","properties":{"a":{"type":"null"}}}`, nil, Options{})
	require.NoError(t, err)
	s := &connect.Schema{Kind: connect.KindStruct, Fields: []*connect.Field{{Name: "a", Schema: optional(of(connect.KindString, ""))}}}
	got, err := d.Append(nil, s, &connect.Structure{Schema: s, Values: []any{nil}})
	require.NoError(t, err)
	require.JSONEq(t, `{"a":null}`, string(got))
	_, err = d.Append(nil, s, &connect.Structure{Schema: s, Values: []any{connect.Text("secret")}})
	require.ErrorContains(t, err, "member a is of type string where the schema has null")
}

// A row may have any number, and the validator makes fractions of them.
func TestDeclared_RefusesNumbersThatTakeTheMemory(t *testing.T) {
	d, err := Parse(`{"properties":{"n":{"minimum":1,"multipleOf":1}}}`, nil, Options{})
	require.NoError(t, err)
	for _, number := range []string{"1e1000001", "1E+99999999999999999999", "1e-1001", "-1e1001", strings.Repeat("7", 1001)} {
		for _, doc := range []string{`{"n": ` + number + `}`, `{"list": [{"n": ` + number + `}]}`} {
			_, err := d.AppendJSON(nil, []byte(doc))
			var row *connect.ValueError
			require.ErrorAs(t, err, &row, doc)
			require.ErrorContains(t, err, "a number of more than 1000 digits, or with an exponent past 1000")
		}
	}
	_, err = d.AppendJSON(nil, []byte(`{"n": 1e1000, "list": [1e-1000, 0.5E+3]}`))
	require.NoError(t, err)
}

// Each level of the document doubles the ways through this schema.
func TestDeclared_BoundsTheWaysThroughASchema(t *testing.T) {
	const branch = `{"type":"object","required":["no"],"properties":{"a":{"$ref":"#"}}}`
	d, err := Parse(`{"anyOf":[`+branch+`,`+branch+`,{"type":"null"}]}`, nil, Options{})
	require.NoError(t, err)
	_, err = d.AppendJSON(nil, []byte(strings.Repeat(`{"a":`, 40)+"1"+strings.Repeat("}", 40)))
	var row *connect.ValueError
	require.ErrorAs(t, err, &row)
	require.ErrorContains(t, err, "too many ways")
	_, err = d.AppendJSON(nil, []byte(`null`))
	require.NoError(t, err, "the next one has its own bound")
	_, err = d.AppendJSON(nil, []byte(strings.Repeat(`{"a":`, 201)+"1"+strings.Repeat("}", 201)))
	require.ErrorContains(t, err, "the document has more than 200 levels")
	wide, err := Parse(`{"items":{"allOf":[`+strings.Repeat(`{"minimum":0},`, 200)+`true]}}`, nil, Options{})
	require.NoError(t, err)
	_, err = wide.AppendJSON(nil, []byte("["+strings.Repeat("1,", 5_000)+"1]"))
	require.NoError(t, err, "the work grows with the document alone")
	list, err := Parse(`{"items":{"properties":{"a":{"type":"integer"}}}}`, nil, Options{})
	require.NoError(t, err)
	_, err = list.AppendJSON(nil, []byte("["+strings.Repeat(`{"a":1},`, 20_000)+`{"a":2}]`))
	require.NoError(t, err)
}

// A schema comes from a file or from the registry: what it refers to is in its references alone.
func TestParse_ReadsNothingFromElsewhere(t *testing.T) {
	for text, want := range map[string]string{
		`{`: "read the JSON Schema", `{"type":"text"}`: "read the JSON Schema",
		`{"$ref":"file:///etc/hostname"}`: "file:///etc/hostname", `{"$ref":"http://127.0.0.1:1/x.json"}`: "http://127.0.0.1:1/x.json",
		`{"$ref":"else.json"}`: "else.json", `{"$id":"%zz"}`: "$id",
		`{"$ref":"#"}`: "its $ref refers to itself without end", `{"anyOf":[{"$ref":"#"}]}`: "its $ref refers to itself without end",
	} {
		_, err := Parse(text, nil, Options{})
		require.ErrorContains(t, err, want)
	}
	_, err := Parse(`{}`, map[string]string{"a.json": "{"}, Options{})
	require.ErrorContains(t, err, "reference a.json")
}

func TestNew_ClosesObjects(t *testing.T) {
	inner := &connect.Schema{Kind: connect.KindStruct, Optional: true}
	s := &connect.Schema{Kind: connect.KindStruct, Fields: []*connect.Field{{Name: "a", Schema: inner}}}
	schema, err := New(s, Options{Closed: true})
	require.NoError(t, err)
	require.JSONEq(t, `{"type":"object","properties":{"a":{"oneOf":[{"type":"null"},{"type":"object","properties":{},"additionalProperties":false}],
		"connect.index":0}},"additionalProperties":false}`, schema.Text())
}
