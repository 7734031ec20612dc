// Package poller replaces a program that polls an outbox table by postrider, with the commands of
// docs/MIGRATING-FROM-A-POLLER.md, for each table of docs/OUTBOX-TABLES.md that a poller reads,
// while rows are written.
package poller

import (
	"testing"

	"github.com/postrider/postrider/test/parts"
)

func TestMain(m *testing.M) { parts.Main(m) }
