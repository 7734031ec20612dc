package postgres

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

const (
	// hostTimeout bounds PreferAnswering. A host that takes longer is tried last.
	hostTimeout = time.Second
	// hostGrace is how long after the first accepted connection the later hosts of the list may
	// answer.
	hostGrace = 100 * time.Millisecond
	// earlierGrace is the same for hosts in front of every accepting one: a near host is not
	// preferred. No connection on earth takes that long, unless a packet is lost.
	earlierGrace = 500 * time.Millisecond
)

// PreferAnswering moves hosts that neither accept nor refuse a TCP connection to the end of the
// list: pgconn tries one host after the other, so each host that is powered off would delay every
// connection by its connect_timeout. The order is otherwise kept, among hosts that answer in time
// (see hostGrace and earlierGrace). It blocks for a second at most, and does nothing for one host.
func PreferAnswering(ctx context.Context, pc *pgconn.Config) {
	hosts := targets(pc)
	if !severalHosts(hosts) {
		return
	}
	answering := answering(ctx, pc.DialFunc, hosts)
	silent := func(f *pgconn.FallbackConfig) bool { return !answering[address(f)] }
	last := slices.DeleteFunc(slices.Clone(hosts),
		func(f *pgconn.FallbackConfig) bool { return !silent(f) })
	setTargets(pc, append(slices.DeleteFunc(hosts, silent), last...))
}

func address(f *pgconn.FallbackConfig) [2]string {
	network, address := pgconn.NetworkAddress(f.Host, f.Port)
	return [2]string{network, address}
}

// answering dials all hosts at once. A server ignores a connection on which nothing is sent.
func answering(
	ctx context.Context, dial pgconn.DialFunc, hosts []*pgconn.FallbackConfig,
) map[[2]string]bool {
	ctx, cancel := context.WithTimeout(ctx, hostTimeout)
	defer cancel()
	var pending [][2]string // in the order of the list
	for _, h := range hosts {
		if !slices.Contains(pending, address(h)) {
			pending = append(pending, address(h))
		}
	}
	type answer struct {
		from               [2]string
		accepted, answered bool // answered: accepted or refused
	}
	answers := make(chan answer)
	for _, from := range pending {
		// Ends with the dial, which ends with ctx; the loop below receives every answer.
		go func() {
			conn, err := dial(ctx, from[0], from[1])
			if err == nil {
				_ = conn.Close()
			}
			answers <- answer{from, err == nil, err == nil || ctx.Err() == nil}
		}()
	}
	answered := map[[2]string]bool{}
	earlier := len(pending) // how many of pending are in front of every accepting host
	var first time.Time     // of an accepted connection
	enough := time.NewTimer(hostTimeout)
	defer enough.Stop()
	for len(pending) > 0 {
		select {
		case a := <-answers:
			at := slices.Index(pending, a.from)
			pending = slices.Delete(pending, at, at+1)
			answered[a.from] = a.answered
			switch {
			case a.accepted:
				earlier = min(earlier, at)
			case at < earlier:
				earlier--
			}
			if a.accepted && first.IsZero() {
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
