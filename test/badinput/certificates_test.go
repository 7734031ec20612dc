package badinput

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// issued is a server's certificate for 127.0.0.1, and the authority that signed it. All PEM.
type issued struct {
	authority, certificate, key []byte
}

// shared by all servers of the run: making them takes as long as a case.
var issuedOnce = sync.OnceValues(func() (issued, error) { return issue("test authority") })

func certificates(t *testing.T) issued {
	t.Helper()
	made, err := issuedOnce()
	require.NoError(t, err)
	return made
}

// otherAuthority has signed nothing.
func otherAuthority(t *testing.T) string {
	t.Helper()
	made, err := issue("another authority")
	require.NoError(t, err)
	return string(made.authority)
}

func issue(by string) (issued, error) {
	root := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: by}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	rootPEM, rootKey, err := sign(root, root, nil)
	if err != nil {
		return issued{}, err
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "127.0.0.1"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, NotBefore: root.NotBefore, NotAfter: root.NotAfter,
	}
	leafPEM, leafKey, err := sign(leaf, root, rootKey)
	if err != nil {
		return issued{}, err
	}
	der, err := x509.MarshalECPrivateKey(leafKey)
	if err != nil {
		return issued{}, err
	}
	return issued{rootPEM, leafPEM, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})}, nil
}

// sign makes a key and a certificate for it; without the parent's key it signs itself.
func sign(template, parent *x509.Certificate, parentKey *ecdsa.PrivateKey) ([]byte, *ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	if parentKey == nil {
		parentKey = key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, parentKey)
	if err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), key, nil
}

// serverCertificate is what PostgreSQL reads from its data directory.
func serverCertificate(t *testing.T) map[string][]byte {
	t.Helper()
	made := certificates(t)
	return map[string][]byte{"server.crt": made.certificate, "server.key": made.key}
}

// brokerTLS is for an in-process broker.
func brokerTLS(t *testing.T) *tls.Config {
	t.Helper()
	made := certificates(t)
	pair, err := tls.X509KeyPair(made.certificate, made.key)
	require.NoError(t, err)
	return &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
}
