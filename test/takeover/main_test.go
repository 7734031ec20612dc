// Package takeover has postrider take over the slot of a real Debezium connector, with the commands of docs/MIGRATING-FROM-DEBEZIUM.md.
package takeover

import (
	"testing"

	"github.com/postrider/postrider/test/parts"
)

func TestMain(m *testing.M) { parts.Main(m) }
