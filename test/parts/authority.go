package parts

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
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Authority issues certificates for one test.
type Authority struct {
	t    testing.TB
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewAuthority makes one for a test.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{t: t, dir: t.TempDir()}
	a.cert, a.key = a.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: "test authority"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign,
	}, nil, nil)
	return a
}

func (a *Authority) sign(template, parent *x509.Certificate,
	parentKey *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(a.t, err)
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.NotBefore = time.Now().Add(-time.Hour)
	if template.NotAfter.IsZero() {
		template.NotAfter = time.Now().Add(24 * time.Hour)
	}
	if parent == nil {
		parent, parentKey = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, parentKey)
	require.NoError(a.t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(a.t, err)
	return cert, key
}

// Pool is what a server trusts.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// CAFile is what a client trusts.
func (a *Authority) CAFile() string {
	return a.write("ca.pem", "CERTIFICATE", a.cert.Raw)
}

func (a *Authority) write(name, kind string, der []byte) string {
	a.t.Helper()
	path := filepath.Join(a.dir, name)
	require.NoError(a.t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}),
		0o600))
	return path
}

// Issue writes a certificate for 127.0.0.1 and its key.
func (a *Authority) Issue(name string, template x509.Certificate) (certFile, keyFile string) {
	a.t.Helper()
	template.Subject = pkix.Name{CommonName: name}
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	if template.IPAddresses == nil && template.DNSNames == nil {
		template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	}
	cert, key := a.sign(&template, a.cert, a.key)
	der, err := x509.MarshalECPrivateKey(key)
	require.NoError(a.t, err)
	return a.write(name+".pem", "CERTIFICATE", cert.Raw), a.write(name+".key", "EC PRIVATE KEY", der)
}

// Keystore writes a certificate and its key into one file, as Kafka's type PEM demands.
func (a *Authority) Keystore(name string, template x509.Certificate) string {
	a.t.Helper()
	certFile, keyFile := a.Issue(name, template)
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	require.NoError(a.t, err)
	der, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	require.NoError(a.t, err)
	path := a.write(name+".keystore.pem", "PRIVATE KEY", der)
	file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(a.t, err)
	block := pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[0]}
	require.NoError(a.t, pem.Encode(file, &block))
	require.NoError(a.t, file.Close())
	return path
}

// Server is the TLS configuration of a server with a certificate of its own.
func (a *Authority) Server(template x509.Certificate) *tls.Config {
	a.t.Helper()
	certFile, keyFile := a.Issue("server", template)
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	require.NoError(a.t, err)
	return &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
}
