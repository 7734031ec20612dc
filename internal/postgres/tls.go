package postgres

import (
	"crypto/tls"
	"net"

	"github.com/jackc/pgx/v5/pgconn"
)

// refuseDowngrade replaces an attempt with TLS and one without by a single verified attempt. The
// driver expresses the modes prefer, which is the default, and allow as two neighbouring attempts
// at one host.
func refuseDowngrade(targets []*pgconn.FallbackConfig) []*pgconn.FallbackConfig {
	kept := make([]*pgconn.FallbackConfig, 0, len(targets))
	for i := 0; i < len(targets); i++ {
		t := targets[i]
		if i+1 == len(targets) || Local(t.Host) {
			kept = append(kept, t)
			continue
		}
		next := targets[i+1]
		samePlace := t.Host == next.Host && t.Port == next.Port
		if !samePlace || (t.TLSConfig == nil) == (next.TLSConfig == nil) {
			kept = append(kept, t)
			continue
		}
		withTLS := t.TLSConfig
		if withTLS == nil {
			withTLS = next.TLSConfig
		}
		kept = append(kept, &pgconn.FallbackConfig{
			Host: t.Host, Port: t.Port, TLSConfig: verified(withTLS, t.Host),
		})
		i++
	}
	return kept
}

func verified(c *tls.Config, host string) *tls.Config {
	c = c.Clone()
	c.InsecureSkipVerify = false
	c.VerifyPeerCertificate = nil
	c.ServerName = host
	return c
}

// Local reports whether a connection to host stays on this machine.
func Local(host string) bool {
	if network, _ := pgconn.NetworkAddress(host, 0); network == "unix" || host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}
