package postgres

import (
	"cmp"
	"context"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// targets lists the attempts of a configuration: one or two for each host.
func targets(pc *pgconn.Config) []*pgconn.FallbackConfig {
	first := &pgconn.FallbackConfig{Host: pc.Host, Port: pc.Port, TLSConfig: pc.TLSConfig}
	return append([]*pgconn.FallbackConfig{first}, pc.Fallbacks...)
}

// Place is where the setting leads: host:port of each server, the database, empty if it is not
// given, and the user, whose name it has then. All are empty if the setting cannot be read.
func (c Config) Place() (servers []string, database, user string) {
	pc, err := ParseConfig(c)
	if err != nil {
		return nil, "", ""
	}
	for _, t := range targets(&pc.Config) { // one or two for each host
		server := net.JoinHostPort(t.Host, strconv.Itoa(int(t.Port)))
		if !slices.Contains(servers, server) {
			servers = append(servers, server)
		}
	}
	return servers, pc.Database, pc.User
}

func setTargets(pc *pgconn.Config, targets []*pgconn.FallbackConfig) {
	first := targets[0]
	pc.Host, pc.Port, pc.TLSConfig = first.Host, first.Port, first.TLSConfig
	pc.Fallbacks = targets[1:]
}

func severalHosts(targets []*pgconn.FallbackConfig) bool {
	return slices.ContainsFunc(targets,
		func(t *pgconn.FallbackConfig) bool { return !samePlace(t, targets[0]) })
}

func samePlace(a, b *pgconn.FallbackConfig) bool { return a.Host == b.Host && a.Port == b.Port }

// refuseDowngrade replaces the two attempts, with TLS and without, by which the driver expresses
// the modes prefer (the default) and allow, by one with sslmode=verify-full. Without it a
// connection silently has no encryption where the server refuses it; sslmode=disable asks for
// that. Sockets and loopback addresses keep both.
func refuseDowngrade(targets []*pgconn.FallbackConfig) []*pgconn.FallbackConfig {
	var kept []*pgconn.FallbackConfig
	for i := 0; i < len(targets); i++ {
		t := targets[i]
		if i+1 < len(targets) && !Local(t.Host) {
			next := targets[i+1]
			if samePlace(t, next) && (t.TLSConfig == nil) != (next.TLSConfig == nil) {
				tls := cmp.Or(t.TLSConfig, next.TLSConfig).Clone()
				tls.InsecureSkipVerify, tls.VerifyPeerCertificate, tls.ServerName = false, nil, t.Host
				t = &pgconn.FallbackConfig{Host: t.Host, Port: t.Port, TLSConfig: tls}
				i++
			}
		}
		kept = append(kept, t)
	}
	return kept
}

// Local reports whether a connection to host stays on this machine.
func Local(host string) bool {
	if network, _ := pgconn.NetworkAddress(host, 0); network == "unix" || host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

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
// list, where each would delay every connection by its connect_timeout: pgconn tries them in
// order. It blocks for a second at most, and does nothing for one host.
func PreferAnswering(ctx context.Context, pc *pgconn.Config) {
	hosts := targets(pc)
	if !severalHosts(hosts) {
		return
	}
	answering := answering(ctx, pc.DialFunc, hosts)
	slices.SortStableFunc(hosts, func(a, b *pgconn.FallbackConfig) int {
		return answering[address(b)] - answering[address(a)]
	})
	setTargets(pc, hosts)
}

func address(f *pgconn.FallbackConfig) [2]string {
	network, address := pgconn.NetworkAddress(f.Host, f.Port)
	return [2]string{network, address}
}

// answering dials all hosts at once; those that answer have 1. A server ignores a connection on
// which nothing is sent.
func answering(ctx context.Context, dial pgconn.DialFunc,
	hosts []*pgconn.FallbackConfig) map[[2]string]int {
	ctx, cancel := context.WithTimeout(ctx, hostTimeout)
	defer cancel()
	var pending [][2]string // in the order of the list
	for _, h := range hosts {
		if !slices.Contains(pending, address(h)) {
			pending = append(pending, address(h))
		}
	}
	type answer struct {
		from     [2]string
		accepted bool
		answered int // 1: accepted or refused
	}
	answers := make(chan answer)
	for _, from := range pending {
		// Ends with the dial, which ends with ctx; the loop below receives every answer.
		go func() {
			a := answer{from: from}
			conn, err := dial(ctx, from[0], from[1])
			if a.accepted = err == nil; a.accepted {
				_ = conn.Close()
			}
			if a.accepted || ctx.Err() == nil {
				a.answered = 1
			}
			answers <- a
		}()
	}
	answered := map[[2]string]int{}
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
