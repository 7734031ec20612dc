package postgres

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

const (
	// hostTimeout bounds the look which of several hosts answer. A host that takes longer is tried last.
	hostTimeout = time.Second
	// hostGrace is how long the others have after the first host has answered.
	hostGrace = 100 * time.Millisecond
)

// PreferAnswering moves those of several hosts to the end that neither take nor refuse a TCP connection now.
// pgconn tries one host after the other, so that one which is powered off would hold up each connection for
// its connect_timeout. It blocks for a second at most, and leaves a config with one host alone.
func PreferAnswering(ctx context.Context, pc *pgconn.Config) {
	hosts := append([]*pgconn.FallbackConfig{{Host: pc.Host, Port: pc.Port, TLSConfig: pc.TLSConfig}}, pc.Fallbacks...)
	if !severalHosts(hosts) {
		return
	}
	answering := answering(ctx, pc.DialFunc, hosts)
	slices.SortStableFunc(hosts, func(a, b *pgconn.FallbackConfig) int {
		switch x, y := answering[address(a)], answering[address(b)]; {
		case x == y:
			return 0
		case x:
			return -1
		}
		return 1
	})
	pc.Host, pc.Port, pc.TLSConfig, pc.Fallbacks = hosts[0].Host, hosts[0].Port, hosts[0].TLSConfig, hosts[1:]
}

func address(f *pgconn.FallbackConfig) [2]string {
	network, address := pgconn.NetworkAddress(f.Host, f.Port)
	return [2]string{network, address}
}

// answering asks all hosts at once. A server takes no notice of a connection on which nothing is sent.
func answering(ctx context.Context, dial pgconn.DialFunc, hosts []*pgconn.FallbackConfig) map[[2]string]bool {
	ctx, cancel := context.WithTimeout(ctx, hostTimeout)
	defer cancel()
	asked := map[[2]string]bool{}
	for _, h := range hosts {
		asked[address(h)] = false
	}
	type answer struct {
		from          [2]string
		taken, spoken bool
	}
	answers := make(chan answer)
	for from := range asked {
		go func() { // ends with the dial, which ends with ctx; each is received below
			conn, err := dial(ctx, from[0], from[1])
			if err == nil {
				_ = conn.Close()
			}
			answers <- answer{from, err == nil, err == nil || ctx.Err() == nil}
		}()
	}
	for range asked {
		a := <-answers
		if asked[a.from] = a.spoken; a.taken {
			time.AfterFunc(hostGrace, cancel)
		}
	}
	return asked
}
