package slot

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
)

// TemporaryName is the name of a slot that ends with its connection, for the command that makes
// it. Slots belong to the whole server, and containers often share a process id: a random part
// tells them apart. The process id is for the reader of a list of slots.
func TemporaryName(purpose string) string {
	var random [8]byte
	_, _ = rand.Read(random[:]) // never fails
	return fmt.Sprintf("postrider_%s_%d_%s", purpose, os.Getpid(), hex.EncodeToString(random[:]))
}
