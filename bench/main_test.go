package bench

import (
	"testing"

	"postrider/test/parts"
)

func TestMain(m *testing.M) { parts.Main(m) }
