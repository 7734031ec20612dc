// Package diagnosis tests what every command says of every cause: the same words, and a next step that
// improves the state when it is executed as it is printed. PostgreSQL and Kafka are real.
//
// A condition is what is wrong. The matrix has each condition times each command: a command names the
// cause, or the table has the reason why it does not depend on it.
package diagnosis

import (
	"flag"
	"testing"

	"github.com/postrider/postrider/test/parts"
)

// long runs the conditions of a shared server on every version of PostgreSQL.
var long = flag.Bool("long", false, "on all versions of PostgreSQL")

func TestMain(m *testing.M) {
	parts.Main(m)
}
