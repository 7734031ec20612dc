package prune

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// letters are the ids of rows with open dead letters.
type letters struct {
	byRelation map[string][]string // by the name that the relation had when the row was written
	// elsewhere are those of relations that are none of the tables and partitions of now. A table
	// that was renamed keeps its coverage, which is by its OID, so they protect rows of every table.
	elsewhere []string
}

// of returns those that protect rows of a relation with one of these names. It is not nil.
func (l letters) of(names ...string) []string {
	ids := append([]string{}, l.elsewhere...)
	for _, name := range names {
		ids = append(ids, l.byRelation[name]...)
	}
	return ids
}

// readLetters reads the open dead letters. runs are of the partitioned tables.
func (p *Pruner) readLetters(ctx context.Context,
	runs map[string]*partitionRun) (l letters, err error) {
	if p.parts.DeadLetters == nil {
		return l, nil
	}
	own, foreign, err := p.parts.DeadLetters(ctx)
	if err != nil {
		return l, fmt.Errorf("read which rows have open dead letters: %w", err)
	}
	l.byRelation = map[string][]string{}
	maps.Copy(l.byRelation, own)
	for relation, ids := range foreign { // perhaps of this relay with another name of its slot
		l.byRelation[relation] = slices.Concat(own[relation], ids)
	}
	here := map[string]bool{}
	for _, src := range p.parts.Tables {
		here[src.Table] = true
	}
	for _, r := range runs {
		for _, partition := range r.table.Partitions {
			here[partition.Schema+"."+partition.Name] = true
		}
	}
	for relation, ids := range own {
		// a logical message is in no table
		if !here[relation] && !strings.HasPrefix(relation, "message:") {
			l.elsewhere = append(l.elsewhere, ids...)
		}
	}
	return l, nil
}
