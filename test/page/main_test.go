// Package page tests the status page in a real Chromium: with scenes that are made up, for what seldom happens, and with the built
// binary between a real PostgreSQL and a real Kafka.
//
// Screenshots are artefacts: go test ./test/page -artifacts -outputdir DIR keeps them.
package page

import (
	"testing"

	"github.com/postrider/postrider/test/parts"
)

func TestMain(m *testing.M) { parts.Main(m) }
