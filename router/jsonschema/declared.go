package jsonschema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"github.com/postrider/postrider/router/connect"
)

// Declared is a JSON Schema that was given, and not made of a Connect schema. It may be used from
// any goroutine.
type Declared struct {
	schema  *jsonschema.Schema
	title   string
	options Options

	mu      sync.Mutex // held while a document is validated
	budget  *budget
	schemas int // in the text and in its references
}

// budget bounds how often a schema is applied to a part of a document: where branches of anyOf
// refer to the schema around them, that is as often as there are ways through them. Those that
// fail where only that counts, as in not and if, it does not see.
type budget struct{ left int }

// Validate implements jsonschema.SchemaExt.
func (b *budget) Validate(*jsonschema.ValidatorContext, any) {
	if b.left--; b.left < 0 {
		panic(tooManyWays{})
	}
}

type tooManyWays struct{}

func (tooManyWays) Error() string {
	return "the branches of the schema leave too many ways to validate it"
}

// base is the address of a schema without $id, to which the names of its references are relative.
const base = "registry:///"

// Parse reads a JSON Schema of any draft; without $schema it is one of draft 7, Confluent's
// default. References are the texts of other schemas by the names that $ref has for them; nothing
// is read from files or from the network.
func Parse(text string, references map[string]string, o Options) (*Declared, error) {
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("read the JSON Schema: %w", err)
	}
	members, _ := doc.(map[string]any)
	title, _ := members["title"].(string)
	id, _ := members["$id"].(string)
	root, err := url.Parse(base)
	if err == nil {
		root, err = root.Parse(id)
	}
	if err != nil {
		return nil, fmt.Errorf("read the JSON Schema: $id: %w", err)
	}
	root.Fragment = ""
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft7)
	c.UseLoader(jsonschema.SchemeURLLoader{}) // which loads nothing
	d := &Declared{title: title, options: o, budget: &budget{}}
	c.RegisterVocabulary(&jsonschema.Vocabulary{URL: base + "budget",
		Compile: func(*jsonschema.CompilerContext, map[string]any) (jsonschema.SchemaExt, error) {
			d.schemas++
			return d.budget, nil
		}})
	c.AssertVocabs()
	for name, text := range references {
		if err := addReference(c, root, name, text); err != nil {
			return nil, fmt.Errorf("read reference %s of the JSON Schema: %w", name, err)
		}
	}
	if err := c.AddResource(root.String(), doc); err != nil {
		return nil, fmt.Errorf("read the JSON Schema: %w", err)
	}
	if d.schema, err = c.Compile(root.String()); err != nil {
		return nil, fmt.Errorf("read the JSON Schema: %w", err)
	}
	var unfit *jsonschema.ValidationError
	if errors.As(d.validate(nil, 1), &unfit) && endless(unfit) {
		return nil, errors.New("read the JSON Schema: its $ref refers to itself without end")
	}
	return d, nil
}

// validate returns a *jsonschema.ValidationError for a document, of so many values, that does not
// fit.
func (d *Declared) validate(doc any, values int) (err error) {
	const each, most = 4096, 20_000_000 // a second or two
	d.mu.Lock()
	defer d.mu.Unlock()
	d.budget.left = max(2*values*d.schemas, min(values*each, most))
	defer func() {
		switch p := recover().(type) {
		case nil:
		case tooManyWays:
			err = p
		default:
			panic(p)
		}
	}()
	return d.schema.Validate(doc)
}

// endless reports whether a reference leads to itself.
func endless(err *jsonschema.ValidationError) bool {
	_, is := err.ErrorKind.(*kind.RefCycle)
	return is || slices.ContainsFunc(err.Causes, endless)
}

func addReference(c *jsonschema.Compiler, root *url.URL, name, text string) error {
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		return err
	}
	at, err := root.Parse(name)
	if err != nil {
		return err
	}
	return c.AddResource(at.String(), doc)
}

// Record is the title of the schema; empty where there is none.
func (d *Declared) Record() string { return d.title }

// AppendJSON appends a document as it is, if the schema holds for it. Errors are
// connect.Unwritable's.
func (d *Declared) AppendJSON(dst, doc []byte) ([]byte, error) {
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(doc))
	if err != nil || !utf8.Valid(doc) {
		return dst, connect.Unwritable("", "the document is no JSON in UTF-8")
	}
	values, err := measure(v, 1)
	if err != nil {
		return dst, err
	}
	if err := d.validate(v, values); err != nil {
		return dst, connect.Unwritable("have the application write what the schema describes",
			"%s", unfit(err))
	}
	return append(dst, doc...), nil
}

// What a document may have. The validator makes fractions of numbers: that of 1e999999 has 400 KB,
// that of 1e1000001 is nil, on which it panics, and one of many digits takes time that grows with
// their square. It keeps the place of each error, which is as long as the document is deep.
const (
	maxExponent = 1000
	maxDigits   = 1000
	maxDepth    = 200
)

// measure counts the values of a document that is inside of so many others.
func measure(v any, depth int) (values int, err error) {
	if depth > maxDepth {
		return 0, connect.Unwritable("have the application write it flatter",
			"the document has more than %d levels", maxDepth)
	}
	values = 1
	add := func(inner any) {
		if err == nil {
			var more int
			more, err = measure(inner, depth+1)
			values += more
		}
	}
	switch v := v.(type) {
	case json.Number:
		_, exponent, found := strings.Cut(strings.ToLower(string(v)), "e")
		n, parsed := strconv.Atoi(exponent)
		if len(v) > maxDigits || found && (parsed != nil || max(n, -n) > maxExponent) {
			return 0, connect.Unwritable("have the application write such a number as a text", "the "+
				"document has a number of more than %d digits, or with an exponent past %d", maxDigits,
				maxExponent)
		}
	case []any:
		for _, item := range v {
			add(item)
		}
	case map[string]any:
		for _, member := range v {
			add(member)
		}
	}
	return values, err
}

// Append appends a value of a Connect schema as JSON, if the declared schema holds for it. Errors
// are connect.Unwritable's.
func (d *Declared) Append(dst []byte, s *connect.Schema, v any) ([]byte, error) {
	values := d.options.encoder()
	doc, err := values.Value(s, nil, v)
	if err != nil {
		return dst, err
	}
	return d.AppendJSON(dst, doc)
}

// unfit is the first thing that does not fit: where, and the keyword of the schema. The text of
// the library has values of the document, which may be confidential.
func unfit(err error) string {
	var e *jsonschema.ValidationError
	if !errors.As(err, &e) {
		return err.Error()
	}
	for len(e.Causes) > 0 {
		e = e.Causes[0]
	}
	where := "the document"
	if len(e.InstanceLocation) > 0 {
		where = "member " + strings.Join(e.InstanceLocation, ".")
	}
	switch k := e.ErrorKind.(type) {
	case *kind.Type:
		return fmt.Sprintf("%s is of type %s where the schema has %s", where, k.Got,
			strings.Join(k.Want, " or "))
	case *kind.Required:
		return where + " has no member " + strings.Join(k.Missing, ", ")
	case *kind.AdditionalProperties:
		return where + " has a member that the schema does not have: " +
			strings.Join(k.Properties, ", ")
	}
	keyword := strings.Join(e.ErrorKind.KeywordPath(), "/")
	return where + " does not fit " + keyword + " of the schema"
}
