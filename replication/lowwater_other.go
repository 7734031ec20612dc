//go:build !linux

package replication

import "github.com/jackc/pgx/v5/pgconn"

// lowWaterConn exists on Linux only. Elsewhere a Stream has none.
type lowWaterConn struct{ local, nonBlocking bool }

func lowWaterDial(dial pgconn.DialFunc, _ func(*lowWaterConn)) pgconn.DialFunc { return dial }

func (*lowWaterConn) setRcvLowat(int32) {}

func (*lowWaterConn) shrinkRecvBuf(bool) {}

func (*lowWaterConn) await() {}
