package credentials_test

import (
	"testing"

	"github.com/postrider/postrider/test/parts"
)

func TestMain(m *testing.M) { parts.Main(m) }
