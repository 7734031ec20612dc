package badinput

import (
	"flag"
	"testing"

	"github.com/postrider/postrider/test/parts"
)

var update = flag.Bool("update", false, "write testdata/messages.txt and the messages in docs/TROUBLESHOOTING.md anew")

func TestMain(m *testing.M) { parts.Main(m) }
