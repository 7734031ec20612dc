// Package tlsfiles makes TLS configurations of clients from PEM files, which it reads each time: a
// renewed certificate needs no restart. It also tells the expired certificate of a server.
package tlsfiles

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
)

var errNoCertificate = errors.New("contains no PEM certificate")

// Files are the files of one client. Empty ones are not given.
type Files struct {
	CA, Cert, Key string
	ServerName    string // that the server's certificate must carry
}

// Client reads the files. section is what the keys ca_file and cert_file of errors stand in.
func (f Files) Client(section string) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: f.ServerName}
	if f.CA != "" {
		pem, err := os.ReadFile(f.CA)
		if err != nil {
			return nil, fmt.Errorf("%s.ca_file: %w", section, err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s.ca_file: %s: %w", section, f.CA, errNoCertificate)
		}
	}
	if f.Cert != "" {
		pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
		if err != nil {
			return nil, fmt.Errorf("%s.cert_file: %w", section, err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// Expired reports whether a connection failed because a server's certificate is not valid now, by
// the clock of this machine.
func Expired(err error) bool {
	invalid, ok := errors.AsType[x509.CertificateInvalidError](err)
	return ok && invalid.Reason == x509.Expired
}
