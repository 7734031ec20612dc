package postgres

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/secret"
)

const off = time.Hour // how far away a host is that is powered off

// Hosts are tried in the order of the list, with those last that do not answer. That a near one
// answers before a far one changes nothing.
func TestPreferAnswering_KeepsTheOrderOfHostsThatAnswer(t *testing.T) {
	const ms = time.Millisecond
	for _, test := range []struct {
		name   string
		away   [3]time.Duration // of each host
		order  string
		within time.Duration
	}{
		{"the first is far", [3]time.Duration{150 * ms, 0, 0}, "123", 150 * ms},
		{"the first is on the other side of the earth", [3]time.Duration{400 * ms, 0, 0}, "123",
			400 * ms},
		{"the first two are far", [3]time.Duration{400 * ms, 300 * ms, 0}, "123", 400 * ms},
		{"the first is off", [3]time.Duration{off, 0, 0}, "231", earlierGrace},
		{"the second is off", [3]time.Duration{0, off, 0}, "132", hostGrace},
		{"the third is off", [3]time.Duration{300 * ms, 0, off}, "123", 300 * ms},
		{"the first is off, the second far", [3]time.Duration{off, 300 * ms, 0}, "231", earlierGrace},
		{"only the last is on", [3]time.Duration{off, off, 900 * ms}, "312", hostTimeout},
		{"all are off", [3]time.Duration{off, off, off}, "123", hostTimeout},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := DefaultConfig()
			c.URL = secret.Of("postgres://u@h1:5432,h2:5432,h3:5432/db?sslmode=disable")
			synctest.Test(t, func(t *testing.T) {
				pc, err := ReplicationConfig(c)
				require.NoError(t, err)
				pc.DialFunc = func(ctx context.Context, _, addr string) (net.Conn, error) {
					away := test.away[addr[1]-'1']
					timer := time.NewTimer(away) // of the bubble's clock
					defer timer.Stop()
					select {
					case <-timer.C:
						conn, _ := net.Pipe()
						return conn, nil
					case <-ctx.Done():
						return nil, ctx.Err()
					}
				}
				began := time.Now()
				PreferAnswering(t.Context(), pc)
				require.LessOrEqual(t, time.Since(began), test.within)
				order := pc.Host[1:]
				for _, f := range pc.Fallbacks {
					order += f.Host[1:]
				}
				require.Equal(t, test.order, order)
			})
		})
	}
}

// One that refuses has answered, and is not waited for.
func TestPreferAnswering_CountsARefusalAsAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := DefaultConfig()
		c.URL = secret.Of("postgres://u@h1:5432,h2:5432/db?sslmode=disable")
		pc, err := ReplicationConfig(c)
		require.NoError(t, err)
		pc.DialFunc = func(_ context.Context, _, addr string) (net.Conn, error) {
			if addr == "h1:5432" {
				return nil, errors.New("connection refused")
			}
			conn, _ := net.Pipe()
			return conn, nil
		}
		began := time.Now()
		PreferAnswering(t.Context(), pc)
		require.Zero(t, time.Since(began))
		require.Equal(t, "h1", pc.Host)
	})
}
