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
func parsePlacements(list string) ([]placement, error) {
	if list == "" {
		return nil, nil
	}
	entries := strings.Split(list, ",")
	for len(entries) > 0 && entries[len(entries)-1] == "" {
		entries = entries[:len(entries)-1]
	}
	var out []placement
	for _, e := range entries {
		parts := strings.Split(e, ":")
		for len(parts) > 0 && parts[len(parts)-1] == "" {
			parts = parts[:len(parts)-1]
		}
		if len(parts) < 2 || len(parts) > 3 {
			return nil, fmt.Errorf(
				"entry %q is not of the form column:placement or column:placement:alias", e)
		}
		p := placement{column: strings.TrimSpace(parts[0]),
			to: strings.ToLower(strings.TrimSpace(parts[1]))}
		if p.column == "" {
			return nil, fmt.Errorf("entry %q names no column", e)
		}
		switch p.to {
		case toHeader, toEnvelope, toPartition:
		default:
			return nil, fmt.Errorf("entry %q: the placement is header, envelope or partition", e)
		}
		p.alias = p.column
		if len(parts) == 3 {
			p.alias = strings.TrimSpace(parts[2])
		}
		if p.to == toHeader && strings.HasPrefix(p.alias, ownPrefix) {
			return nil, fmt.Errorf("entry %q: names of headers that begin with %s are the "+
				"relay's; give another alias", e, ownPrefix)
		}
		out = append(out, p)
	}
	members := map[string]bool{"payload": true}
	for _, p := range out {
		if p.to != toEnvelope {
			continue
		}
		if p.alias == "" {
			return nil, fmt.Errorf(
				"the member of the envelope for %s has no name: its alias is blank", p.column)
		}
		if members[p.alias] {
			return nil, fmt.Errorf("the envelope would have two members %q; give an alias to %s",
				p.alias, p.column)
		}
		members[p.alias] = true
	}
	return out, nil
}
