package kafka

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
)

var errNoCertificate = errors.New("contains no PEM certificate")

// client builds the TLS configuration for one connection to addr, reading the files.
func (t *TLSConfig) client(addr string) (*tls.Config, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("broker address: %w", err)
	}
	config := &tls.Config{
		MinVersion:         tls.VersionTLS12,
		ServerName:         host,
		InsecureSkipVerify: t.InsecureSkipVerify, //nolint:gosec // an explicit setting, loudly documented
	}
	if t.ServerName != "" {
		config.ServerName = t.ServerName
	}
	if t.CAFile != "" {
		pem, err := os.ReadFile(t.CAFile)
		if err != nil {
			return nil, fmt.Errorf("sink.kafka.tls.ca_file: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("sink.kafka.tls.ca_file: %s: %w", t.CAFile, errNoCertificate)
		}
	}
	if t.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("sink.kafka.tls.cert_file: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}
