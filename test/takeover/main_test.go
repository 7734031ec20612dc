// Package takeover has postrider take over the slot of a real Debezium connector, with the
// commands of docs/MIGRATING-FROM-DEBEZIUM.md, and holds postrider slot advance to the offsets
// that Debezium stores: what they cover was published, and what they do not cover was not.
package takeover

import (
	"testing"

	"github.com/postrider/postrider/test/parts"
)

func TestMain(m *testing.M) { parts.Main(m) }
