package router

import (
	"fmt"
	"strings"
)

// Where an additional column goes.
const (
	toHeader    = "header"
	toEnvelope  = "envelope"
	toPartition = "partition"
)

// placement is one entry of table.fields.additional.placement.
type placement struct {
	column string
	to     string
	alias  string // the column's name if none was given
}

// parsePlacements reads "column:placement[:alias],...". As Debezium it takes a trailing comma, an
// empty alias, blanks around the parts and any case of the placement; unlike Debezium it refuses
// unknown placements here and not with the first row.
func parsePlacements(list string) (out []placement, err error) {
	list = strings.TrimRight(list, ",")
	if list == "" {
		return nil, nil
	}
	members := map[string]bool{"payload": true}
	for e := range strings.SplitSeq(list, ",") {
		parts := strings.Split(strings.TrimRight(e, ":"), ":")
		if len(parts) < 2 || len(parts) > 3 {
			return nil, fmt.Errorf(
				"entry %q is not of the form column:placement or column:placement:alias", e)
		}
		p := placement{column: strings.TrimSpace(parts[0]), to: normal(parts[1])}
		p.alias = p.column
		if len(parts) == 3 {
			p.alias = strings.TrimSpace(parts[2])
		}
		switch inEnvelope := p.to == toEnvelope; {
		case p.column == "":
			return nil, fmt.Errorf("entry %q names no column", e)
		case !inEnvelope && p.to != toHeader && p.to != toPartition:
			return nil, fmt.Errorf("entry %q: the placement is header, envelope or partition", e)
		case p.to == toHeader && strings.HasPrefix(p.alias, ownPrefix):
			return nil, fmt.Errorf("entry %q: names of headers that begin with %s are the "+
				"relay's; give another alias", e, ownPrefix)
		case inEnvelope && p.alias == "":
			return nil, fmt.Errorf(
				"the member of the envelope for %s has no name: its alias is blank", p.column)
		case inEnvelope && members[p.alias]:
			return nil, fmt.Errorf("the envelope would have two members %q; give an alias to %s",
				p.alias, p.column)
		case inEnvelope:
			members[p.alias] = true
		}
		out = append(out, p)
	}
	return out, nil
}
