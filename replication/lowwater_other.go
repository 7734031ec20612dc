//go:build !linux

package replication

import (
	"net"
	"time"
)

// tcpSocket is known on Linux alone.
type tcpSocket struct{}

func tcpOf(net.Conn) (tcpSocket, bool) { return tcpSocket{}, false }

func (tcpSocket) lowWater(int) error { return nil }

func (tcpSocket) receive(int) error { return nil }

func (tcpSocket) free() error { return nil }

func (tcpSocket) roundTrip() (time.Duration, error) { return 0, nil }

func (tcpSocket) readNow([]byte) (int, error) { return 0, nil }

func (tcpSocket) await(int) {}
