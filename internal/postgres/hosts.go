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
	// hostGrace is how long the hosts of the list behind one that takes a connection have after it.
	hostGrace = 100 * time.Millisecond
	// earlierGrace is how long those in front of it have: that it is nearer is no reason to prefer it.
	// No connection on earth takes that long, unless a packet is lost.
	earlierGrace = 500 * time.Millisecond
)

// PreferAnswering moves those of several hosts to the end that neither take nor refuse a TCP connection now.
// pgconn tries one host after the other, so that one which is powered off would hold up each connection for
// its connect_timeout. It blocks for a second at most, and leaves a config with one host alone. The host
// that comes first is the first of the list of those that answer, however far away, within earlierGrace
// of the first answer; the others keep their order, too, if they answer within hostGrace.
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
	var pending [][2]string // in the order of the list
	for _, h := range hosts {
		if !slices.Contains(pending, address(h)) {
			pending = append(pending, address(h))
		}
	}
	type answer struct {
		from          [2]string
		taken, spoken bool
	}
	answers := make(chan answer)
	for _, from := range pending {
		go func() { // ends with the dial, which ends with ctx; each is received below
			conn, err := dial(ctx, from[0], from[1])
			if err == nil {
				_ = conn.Close()
			}
			answers <- answer{from, err == nil, err == nil || ctx.Err() == nil}
		}()
	}
	answered := map[[2]string]bool{}
	earlier := len(pending) // of those pending, in front of every host that has taken a connection
	var first time.Time     // when the first did
	enough := time.NewTimer(hostTimeout)
	defer enough.Stop()
	for len(pending) > 0 {
		select {
		case a := <-answers:
			at := slices.Index(pending, a.from)
			pending = slices.Delete(pending, at, at+1)
			answered[a.from] = a.spoken
			switch {
			case a.taken:
				earlier = min(earlier, at)
			case at < earlier:
				earlier--
			}
			if a.taken && first.IsZero() {
				first = time.Now()
			}
			if !first.IsZero() {
				grace := hostGrace
				if earlier > 0 {
					grace = earlierGrace
				}
				enough.Reset(grace - time.Since(first))
			}
		case <-enough.C:
			cancel()
		}
	}
	return answered
}
