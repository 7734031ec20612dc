package kafka

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"net"

	"github.com/postrider/postrider/internal/tlsfiles"
)

// client builds the TLS configuration for one connection to addr, reading the files.
func (t *TLSConfig) client(addr string) (*tls.Config, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("broker address: %w", err)
	}
	files := tlsfiles.Files{CA: t.CAFile, Cert: t.CertFile, Key: t.KeyFile,
		ServerName: cmp.Or(t.ServerName, host)}
	config, err := files.Client("sink.kafka.tls")
	if err != nil {
		return nil, err
	}
	config.InsecureSkipVerify = t.InsecureSkipVerify //nolint:gosec // an explicit setting, loudly documented
	return config, nil
}
