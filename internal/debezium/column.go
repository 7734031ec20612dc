package debezium

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// columns judges the lists of columns. They matter only for columns that a router reads.
func (t *translator) columns() {
	for _, f := range []struct {
		name    string
		exclude bool
	}{
		{"column.include.list", false}, {"column.whitelist", false}, {"column.exclude.list", true},
		{"column.blacklist", true},
	} {
		if v, given := t.get(f.name); given {
			t.columnList(f.name, list(v), f.exclude)
		}
	}
	seen := t.formats[0] == "json+schema" || t.formats[1] == "json+schema" ||
		t.formats[2] == "json+schema"
	for _, name := range t.below("") {
		switch {
		case strings.HasPrefix(name, "column.mask.") || strings.HasPrefix(name, "column.truncate."):
			t.refuse(name, "changes the values of columns before they are published. Write what may be "+
				"seen into the row, and remove it")
		case strings.HasPrefix(name, "column.propagate.source.type") ||
			strings.HasPrefix(name, "datatype.propagate.source.type") || name == "include.schema.comments":
			if v, _ := t.get(name); strings.EqualFold(v, "false") {
				t.notNeeded(name, "the default")
			} else if seen {
				t.refuse(name, "adds to the schema, which consumers of json+schema see. Remove it, or use "+
					"schemas.enable=false")
			} else {
				t.notNeeded(name, "the schema is not in the records")
			}
		}
	}
}

// columnList refuses a list that removes a column that a router reads.
func (t *translator) columnList(name string, patterns []string, exclude bool) {
	for _, c := range t.readColumns() {
		column := c.Table + "." + c.Name
		matched, err := matchesAny(patterns, column)
		if err != nil {
			t.refuse(name, err.Error())
			return
		}
		if matched == exclude && c.Optional {
			t.refuse(name, fmt.Sprintf("takes away %s, which Debezium then leaves out where %s names it. "+
				"Take it out there too", column, c.Property))
			return
		}
		if matched == exclude {
			t.refuse(name, fmt.Sprintf("takes away %s, which %s names: Debezium fails with the first "+
				"row. Correct one or the other", column, c.Property))
			return
		}
	}
	t.notNeeded(name, "postrider publishes only the columns that the router names")
}

// readColumns lists what the routers read, in the order of the tables.
func (t *translator) readColumns() []Column {
	var columns []Column
	for _, r := range t.routes {
		ignore := strings.EqualFold(t.value(r.property("table.field.additional.missing"), ""),
			"ignore") ||
			strings.EqualFold(t.value(r.property("table.fields.additional.error.on.missing"), ""), "false")
		for _, table := range r.tables {
			for _, name := range slices.Sorted(maps.Keys(r.columns)) {
				option := r.columns[name]
				columns = append(columns, Column{
					Table: table, Name: name, Property: t.nameInFile(r.property(option)),
					Key:      r.section + "." + option,
					Optional: ignore && option == "table.fields.additional.placement",
				})
			}
		}
	}
	return columns
}
