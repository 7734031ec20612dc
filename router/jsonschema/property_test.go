package jsonschema

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/postrider/postrider/router/connect/connecttest"
)

// Each value fits the schema that is registered for it, in the eyes of a validator that shares nothing with this package.
func TestAppend_FitsTheSchema(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := Options{NumericDecimals: rapid.Bool().Draw(t, "numeric"), Closed: rapid.Bool().Draw(t, "closed")}
		g := connecttest.Schemas{AnyNames: true, Finite: true, Filled: true}
		s := g.Draw(t, 3)
		made, err := New(s, o)
		require.NoError(t, err)
		doc, err := made.Append(nil, g.ValueOrNull(t, s))
		require.NoError(t, err)
		declared, err := Parse(made.Text(), nil, o)
		require.NoError(t, err, made.Text())
		got, err := declared.AppendJSON(nil, doc)
		require.NoError(t, err, "%s\n%s", made.Text(), doc)
		require.Equal(t, doc, got)
	})
}
