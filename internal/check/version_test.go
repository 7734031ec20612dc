package check_test

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
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/test/parts/testdb"

	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/check"
	"github.com/postrider/postrider/internal/check/checktest"
	"github.com/postrider/postrider/internal/embedded"
	"github.com/postrider/postrider/slot"
	"github.com/postrider/postrider/test/parts"
)

// otherPID gives the client the number of a process that is not the server's, as poolers do.
func otherPID(m pgproto3.BackendMessage) {
	if key, ok := m.(*pgproto3.BackendKeyData); ok {
		key.ProcessID += 1_000_000
	}
}

func TestCheck_NoticesAPooler(t *testing.T) {
	p := checktest.Shared(t, "17")
	p.Outbox()
	pre := preflight(p)
	require.Equal(t, check.SeverityOK, checktest.Finding(t, check.Server(t.Context(), pre), "pooler").Severity)

	t.Run("that refuses replication", func(t *testing.T) {
		pre := pre
		pre.Postgres = testdb.ConfigOf(testdb.Between{Answer: otherPID, Startup: func(params map[string]string) *pgproto3.ErrorResponse {
			if params["replication"] == "" {
				return nil
			}
			return &pgproto3.ErrorResponse{Severity: "FATAL", Code: "08P01", Message: "unsupported startup parameter: replication"}
		}}.Start(t, p.DSN))
		findings := check.Server(t.Context(), pre)
		require.Equal(t, check.SeverityWarning, checktest.Finding(t, findings, "pooler").Severity)
		f := checktest.Finding(t, findings, "replication_connection")
		require.Equal(t, check.SeverityError, f.Severity)
		require.Equal(t, check.ClassConfiguration, f.Class)
		require.Contains(t, f.Fix, "PgBouncer")
		require.Len(t, errorsOf(findings), 1)
	})
	t.Run("that refuses every connection", func(t *testing.T) {
		pre := pre
		pre.Postgres = testdb.ConfigOf(testdb.Between{Startup: func(map[string]string) *pgproto3.ErrorResponse {
			return &pgproto3.ErrorResponse{Severity: "FATAL", Code: "08P01", Message: "unsupported startup parameter: options"}
		}}.Start(t, p.DSN))
		findings := check.Server(t.Context(), pre)
		require.Len(t, findings, 1)
		require.Equal(t, check.ClassConfiguration, findings[0].Class)
		require.Contains(t, findings[0].Fix, "PgBouncer")
	})
	t.Run("that shares its processes", func(t *testing.T) {
		pre := pre
		pre.Postgres = testdb.ConfigOf(testdb.Between{Answer: otherPID, Startup: func(params map[string]string) *pgproto3.ErrorResponse {
			delete(params, "options")
			return nil
		}}.Start(t, p.DSN))
		findings := check.Server(t.Context(), pre)
		require.Len(t, findings, 1)
		require.Equal(t, "pooler", findings[0].Code)
		require.Equal(t, check.SeverityError, findings[0].Severity)
		require.Equal(t, check.ClassConfiguration, findings[0].Class)
		require.Contains(t, findings[0].Fix, "PgBouncer")
	})
	t.Run("of Amazon, which takes no options", func(t *testing.T) {
		pre := pre
		pre.Postgres = testdb.ConfigOf(testdb.Between{Startup: func(map[string]string) *pgproto3.ErrorResponse {
			return &pgproto3.ErrorResponse{Severity: "FATAL", Code: "0A000", Message: "Feature not supported: RDS Proxy currently doesn't support command-line options."}
		}}.Start(t, p.DSN))
		require.Equal(t, check.SeverityError, checktest.Finding(t, check.Server(t.Context(), pre), "pooler").Severity)
	})
	t.Run("that passes replication through", func(t *testing.T) {
		pre := pre
		pre.Postgres = testdb.ConfigOf(testdb.Between{Answer: otherPID}.Start(t, p.DSN))
		findings := check.Server(t.Context(), pre)
		require.Equal(t, check.SeverityWarning, checktest.Finding(t, findings, "pooler").Severity)
		require.Equal(t, check.SeverityOK, checktest.Finding(t, findings, "replication_connection").Severity)
		require.Empty(t, errorsOf(findings))
	})
	t.Run("that drops parameters", func(t *testing.T) {
		pre := pre
		pre.Postgres = testdb.ConfigOf(testdb.Between{Answer: otherPID, Startup: func(params map[string]string) *pgproto3.ErrorResponse {
			delete(params, "wal_sender_timeout")
			params["options"] += " -c wal_sender_timeout=0"
			return nil
		}}.Start(t, p.DSN))
		f := checktest.Finding(t, check.Server(t.Context(), pre), "wal_sender_timeout")
		require.Equal(t, check.SeverityWarning, f.Severity)
		require.Contains(t, f.Fix, "PgBouncer")
	})
}

// No server with these bugs is at hand: one that says it was one is.
func TestCheck_KnowsVersionsThatHurt(t *testing.T) {
	p := checktest.Shared(t, "17")
	p.Outbox()
	for _, c := range []struct {
		says     string
		severity check.Severity
		required string
	}{
		{"17.6", check.SeverityOK, ""},
		{"17.11 (Debian 17.11-1.pgdg12+1)", check.SeverityOK, ""},
		{"18.0", check.SeverityOK, ""},
		{"18beta1", check.SeverityOK, ""},
		{"17.5 (Debian 17.5-1.pgdg12+1)", check.SeverityWarning, "invalid memory alloc request size"},
		{"16.9", check.SeverityWarning, "16.10"},
		{"15.13", check.SeverityWarning, "15.14"},
		{"14.18", check.SeverityWarning, "14.19"},
		{"17.4", check.SeverityWarning, "added to the publication"},
		{"14.3", check.SeverityWarning, "added to the publication"},
		{"19.1", check.SeverityInfo, "14 to 18"},
		{"13.22", check.SeverityError, "14 or newer"},
		{"15.2-YB-2.25.1.0-b0", check.SeverityError, "YugabyteDB"},
	} {
		t.Run(c.says, func(t *testing.T) {
			pre := preflight(p)
			pre.Postgres = testdb.ConfigOf(testdb.Between{Answer: func(m pgproto3.BackendMessage) {
				if s, ok := m.(*pgproto3.ParameterStatus); ok && s.Name == "server_version" {
					s.Value = c.says
				}
			}}.Start(t, p.DSN))
			f := checktest.Finding(t, check.Server(t.Context(), pre), "server_version")
			require.Equal(t, c.severity, f.Severity)
			require.Contains(t, f.Required, c.required)
			require.Equal(t, c.severity != check.SeverityOK, f.Fix != "")
		})
	}
}

// certificate is signed by itself, for the loopback address and for 0.0.0.0, which leads there but is not one.
func certificate(t *testing.T) (certPEM, keyPEM []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv4zero},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	raw, err := x509.MarshalECPrivateKey(key)
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: raw})
}

func TestCheck_LooksAtTLSAndAtWhatTheServerSeesOfIt(t *testing.T) {
	cert, key := certificate(t)
	authority := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(authority, cert, 0o600))
	for _, version := range testdb.OldAndNew {
		t.Run(version, func(t *testing.T) {
			s := parts.ExclusivePostgres(t, embedded.PostgresConfig{
				Version: version, Params: map[string]string{"ssl": "on"}, Files: map[string][]byte{"server.crt": cert, "server.key": key},
			})
			p := &checktest.DB{DB: testdb.New(t, parts.NewDatabase(t, s.DSN()))}
			p.Outbox()
			found := func(host, mode string) check.Finding {
				u, err := url.Parse(p.DSN)
				require.NoError(t, err)
				u.Host = strings.Replace(u.Host, "127.0.0.1", host, 1)
				q := url.Values{"sslmode": {mode}}
				if mode == "verify-full" {
					q.Set("sslrootcert", authority)
				}
				u.RawQuery = q.Encode()
				pre := preflight(p)
				pre.Postgres = testdb.ConfigOf(u.String())
				return checktest.Finding(t, check.Server(t.Context(), pre), "tls")
			}
			require.Equal(t, check.SeverityOK, found("127.0.0.1", "disable").Severity)
			f := found("0.0.0.0", "disable")
			require.Equal(t, check.SeverityWarning, f.Severity)
			require.Contains(t, f.Observed, "0.0.0.0 is not encrypted")
			f = found("0.0.0.0", "require")
			require.Equal(t, check.SeverityWarning, f.Severity)
			require.Contains(t, f.Observed, "TLSv1.3")
			require.Contains(t, f.Fix, "sslmode=verify-full")
			f = found("0.0.0.0", "verify-full") // which is the fix
			require.Equal(t, check.SeverityOK, f.Severity)
			require.Contains(t, f.Observed, "TLSv1.3")
		})
	}
	t.Run("that ends on the way", func(t *testing.T) {
		p := checktest.Shared(t, "17")
		p.Outbox()
		pair, err := tls.X509KeyPair(cert, key)
		require.NoError(t, err)
		proxied := testdb.Between{TLS: &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}}.Start(t, p.DSN)
		u, err := url.Parse(proxied)
		require.NoError(t, err)
		u.RawQuery = url.Values{"sslmode": {"verify-full"}, "sslrootcert": {authority}}.Encode()
		pre := preflight(p)
		pre.Postgres = testdb.ConfigOf(u.String())
		f := checktest.Finding(t, check.Server(t.Context(), pre), "tls")
		require.Equal(t, check.SeverityWarning, f.Severity)
		require.Contains(t, f.Observed, "not at the server")
	})
}

// Servers since August 2026 name the libraries that may decode.
func TestCheck_FindsThatPgoutputMayNotBeUsed(t *testing.T) {
	probe := checktest.Shared(t, "18")
	var known bool
	require.NoError(t, probe.Conn.QueryRow(t.Context(), `SELECT current_setting('output_plugin_libraries', true) IS NOT NULL`).Scan(&known))
	if !known {
		parts.Lacking(t, "output_plugin_libraries", "this PostgreSQL 18 is older than the setting")
	}
	p, _ := checktest.Own(t, "18", nil)
	p.Outbox()
	require.Equal(t, check.SeverityOK, checktest.Finding(t, check.Server(t.Context(), preflight(p)), "output_plugin_libraries").Severity)
	p.Exec(`ALTER SYSTEM SET output_plugin_libraries = 'test_decoding'`)
	p.Exec(`SELECT pg_reload_conf()`)
	f := p.AwaitFinding(preflight(p), "output_plugin_libraries", check.SeverityError)
	_, err := slot.Create(t.Context(), p.Conn, p.Config())
	require.ErrorContains(t, err, "pgoutput")
	p.Heal(f)
	p.AwaitFinding(preflight(p), "output_plugin_libraries", check.SeverityOK)
	_, err = slot.Create(t.Context(), p.Conn, p.Config())
	require.NoError(t, err)
}

func TestCheck_FindsAStandby(t *testing.T) {
	testdb.Versions(t, testdb.OldAndNew, func(t *testing.T, version string) {
		s := parts.ExclusivePostgres(t, embedded.PostgresConfig{Version: version, Files: map[string][]byte{"standby.signal": {}}})
		pre := check.Preflight{Postgres: testdb.ConfigOf(s.DSN()), Need: slot.Requirements{Slot: slot.DefaultConfig(), Publication: "postrider", Tables: []string{"public.outbox"}}}
		f := checktest.Finding(t, check.Server(t.Context(), pre), "primary")
		require.Equal(t, check.SeverityError, f.Severity)
		require.Contains(t, f.Fix, "primary")

		_, err := parts.Connect(t, s.DSN()).Exec(t.Context(), "SELECT pg_promote()")
		require.NoError(t, err)
		require.Eventually(t, func() bool {
			return severityOf(check.Server(t.Context(), pre), "primary") == check.SeverityOK
		}, 2*time.Minute, 100*time.Millisecond)
	})
}
