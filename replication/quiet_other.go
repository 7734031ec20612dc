//go:build !linux

package replication

import "net"

// lowWater is known on Linux alone.
type lowWater struct{}

func lowWaterOf(net.Conn) (lowWater, bool) { return lowWater{}, false }

func (lowWater) set(int) error { return nil }

func (lowWater) readNow([]byte) (int, error) { return 0, nil }

func (lowWater) unread() (int, error) { return worthReading, nil }
