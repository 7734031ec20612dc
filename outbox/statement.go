package outbox

import "strings"

// insertSQL is the statement for any number of events. Its one parameter is an array of objects:
// row has the columns by name, which the server reads as the types of the table, and payload has
// the payload, apart from it so that JSON null is not NULL.
//
// Every name has its schema: whatever an application has as search_path, no function or operator
// that another role made is called.
func insertSQL(c *columns) string {
	// json keeps the text of a document, jsonb is read once.
	kind := JSONB
	if c.cfg.PayloadType == JSON {
		kind = JSON
	}
	payload := `e.value OPERATOR(pg_catalog.->) 'payload'`
	switch c.cfg.PayloadType {
	case Text:
		payload = `e.value OPERATOR(pg_catalog.->>) 'payload'`
	case Bytea:
		payload = `pg_catalog.decode(e.value OPERATOR(pg_catalog.->>) 'payload', 'base64')`
	}
	var names, values []string
	for _, name := range c.names {
		names, values = append(names, quote(name)), append(values, "r."+quote(name))
	}
	names, values = append(names, quote(c.cfg.FieldPayload)), append(values, payload)
	return strings.NewReplacer("<table>", c.cfg.quotedTable(), "<names>", strings.Join(names, ", "),
		"<values>", strings.Join(values, ", "), "<kind>", kind).Replace(
		`INSERT INTO <table> (<names>) SELECT <values>` +
			` FROM pg_catalog.<kind>_array_elements($1::pg_catalog.<kind>) e,` +
			` pg_catalog.<kind>_populate_record(NULL::<table>,` +
			` e.value OPERATOR(pg_catalog.->) 'row') r`)
}

// messageSQL is the statement for one logical message, which costs the server least: $1 is its
// prefix, $2 its content. messagesSQL is that for any other number: $2 is an array of contents.
const (
	messageSQL  = `SELECT pg_catalog.pg_logical_emit_message(true, $1::pg_catalog.text, $2::pg_catalog.text)`
	messagesSQL = `SELECT pg_catalog.pg_logical_emit_message(true, $1::pg_catalog.text,` +
		` m.value::pg_catalog.text) FROM pg_catalog.json_array_elements($2::pg_catalog.json) m`
)
