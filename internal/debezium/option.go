package debezium

import (
	"slices"
	"strings"
)

// class checks what kind of connector this is.
func (t *translator) class() {
	class, given := t.get("connector.class")
	switch simple := simpleName(class); {
	case !given:
		t.refuse("connector.class", "is missing: it is not a connector's configuration, or not all of "+
			"it")
	case simple == "PostgresConnector":
		t.notNeeded("connector.class", "what postrider is")
	case strings.Contains(class, "debezium"):
		t.refuse("connector.class", simple+" is for another database: postrider relays PostgreSQL's "+
			"outbox tables")
	default:
		t.refuse("connector.class", simple+" is not Debezium's connector for PostgreSQL "+
			"(io.debezium.connector.postgresql.PostgresConnector)")
	}
	t.given("name", "names nothing in postrider; metrics and logs have the slot's name")
}

// rest makes the items of all properties that have none yet.
func (t *translator) rest() {
	t.skippedOperations()
	t.customConverters()
	for _, name := range t.below("") {
		v, _ := t.get(name)
		why, notNeeded := known().notNeeded[name]
		if !notNeeded {
			why, notNeeded = known().withPrefix(name)
		}
		j, judged := known().judged[name]
		switch {
		case judged && slices.Contains(j.Fine, strings.ToLower(v)):
			t.notNeeded(name, j.Why)
		case judged:
			t.refuse(name, j.Refused)
		case notNeeded:
			t.notNeeded(name, why)
		case strings.HasPrefix(name, "driver."):
			t.refuse(name, "is for the JDBC driver: put what libpq has for it into postgres.url, and "+
				"remove it")
		default:
			t.unknown(name)
		}
	}
}

// unknown refuses a property that is not in the catalog, with what was probably meant.
func (t *translator) unknown(name string) {
	near := known().nearest(name)
	if t.connector.wraps && near == "" && !optionName.MatchString(name) {
		if t.hidden == nil {
			t.hidden = map[string]bool{}
		}
		t.hidden[name] = true
		t.refuse(name, "a line that begins like no option, maybe the rest of a value that was wrapped: "+
			"end each line of a value but the last with a backslash. It is not shown, since it may be a "+
			"part of a secret")
		return
	}
	text := "is unknown to postrider"
	switch near {
	case name:
		t.refuse(name, "cannot be judged before what else is refused is solved")
		return
	case "":
		text += "."
	default:
		text += "; did you mean " + near + "?"
	}
	t.refuse(name, text+" Correct or remove it: Kafka Connect ignores what it does not know, "+
		"postrider does not")
}

func (t *translator) skippedOperations() {
	const name = "skipped.operations"
	if t.skips("c") {
		t.refuse(name, "skips inserts, which are all that an outbox has: the connector publishes "+
			"nothing")
		return
	}
	t.given(name, "concerns updates and deletes, which never leave the server")
}

func (t *translator) skips(operation string) bool {
	v, _ := t.get("skipped.operations")
	return slices.Contains(list(v), operation)
}

// customConverters refuses the options of converters and post processors, which are refused.
func (t *translator) customConverters() {
	for _, property := range []string{"converters", "post.processors"} {
		v, _ := t.get(property)
		for _, alias := range list(v) {
			t.refuseBelow(alias+".", "belongs to "+property)
		}
	}
}
