package child

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// FreePort looks below the range from which systems take the ports of outgoing connections, so
// that a stopped server's port is still free when it starts again.
func FreePort() (int, error) {
	var err error
	for range 50 {
		port := 20000 + rand.IntN(10000)
		var listener net.Listener
		listener, err = net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			return port, listener.Close()
		}
	}
	return 0, fmt.Errorf("find a free port: %w", err)
}
