package child

import (
	"strings"
	"sync"
)

// Output keeps the end of what a process printed. It is safe for concurrent use.
type Output struct {
	mu   sync.Mutex // guards tail
	tail []byte
}

// outputLimit is how much is kept: enough for a server's last lines, and short enough to print.
const outputLimit = 256 << 10

// Write never fails.
func (o *Output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.tail = append(o.tail, b...)
	if extra := len(o.tail) - outputLimit; extra > 0 {
		o.tail = append(o.tail[:0], o.tail[extra:]...)
	}
	return len(b), nil
}

// String returns what has been kept.
func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return string(o.tail)
}

// LastLines returns at most n lines from the end, for an error message.
func (o *Output) LastLines(n int) string {
	lines := strings.Split(strings.TrimSpace(o.String()), "\n")
	if len(lines) > n {
		lines = lines[len(lines)-n:]
	}
	return strings.Join(lines, "\n")
}
