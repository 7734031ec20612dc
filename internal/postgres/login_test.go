package postgres_test

import (
	"crypto/tls"
	"crypto/x509"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/embedded"
	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/internal/secret"
	"github.com/postrider/postrider/test/parts"
)

// program writes a shell script and returns its path.
func program(t *testing.T, script string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "program")
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"+script), 0o700))
	return path
}

// withoutPassword is the configuration of a server with SCRAM, and a connection that may change
// the password.
func withoutPassword(t *testing.T) (postgres.Config, *pgx.Conn) {
	t.Helper()
	pg := parts.ExclusivePostgres(t, embedded.PostgresConfig{Password: "first"})
	u, err := url.Parse(pg.DSN())
	require.NoError(t, err)
	u.User = url.User(u.User.Username())
	return configOf(u.String()), parts.Connect(t, pg.DSN())
}

func requireConnects(t *testing.T, cfg postgres.Config) {
	t.Helper()
	conn, err := postgres.Connect(parts.Within(t, 30*time.Second), cfg)
	require.NoError(t, err)
	postgres.Close(conn)
	replication, err := postgres.ConnectReplication(parts.Within(t, 30*time.Second), cfg)
	require.NoError(t, err)
	postgres.Close(replication)
}

func TestPasswordCommand_RunsForEachConnection(t *testing.T) {
	cfg, admin := withoutPassword(t)
	store := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(store, []byte("first\nsecond line\n"), 0o600))
	cfg.PasswordCommand = []string{program(t, `cat "$1"`), store}
	require.NoError(t, cfg.Validate())
	requireConnects(t, cfg)

	_, err := admin.Exec(t.Context(), "ALTER ROLE postgres PASSWORD 'rotated'")
	require.NoError(t, err)
	_, err = postgres.Connect(t.Context(), cfg)
	require.ErrorIs(t, err, postgres.ErrAuthentication)
	require.NoError(t, os.WriteFile(store, []byte("rotated\r\n"), 0o600))
	requireConnects(t, cfg)
}

// What may pass is tried again; nothing that the program prints as a password is shown.
func TestPasswordCommand_SaysWhatIsWrong(t *testing.T) {
	for name, tt := range map[string]struct {
		command []string
		class   error
		text    string
	}{
		"exit status": {[]string{program(t, "echo canary; echo >&2 first; echo >&2 vault is sealed; exit 3")},
			postgres.ErrUnreachable, "exit status 3: vault is sealed; "},
		"prints nothing": {[]string{program(t, "exit 0")}, postgres.ErrUnreachable, "first line is empty"},
		"empty line":     {[]string{program(t, "echo; echo canary")}, postgres.ErrUnreachable, "first line is empty"},
		"binary":         {[]string{program(t, `printf 'canary\000x\n'`)}, postgres.ErrAuthentication, "binary"},
		"no end of line": {[]string{program(t, `head -c 1000000 /dev/zero | tr '\0' c`)}, postgres.ErrAuthentication, "too long"},
		"hangs":          {[]string{program(t, "echo canary; exec tail -f /dev/null")}, postgres.ErrUnreachable, "no end in time"},
		"not found":      {[]string{"/nowhere/program"}, postgres.ErrAuthentication, "no such file"},
		"not executable": {[]string{filepath.Join(t.TempDir(), "none")}, postgres.ErrAuthentication, "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := configOf("postgres://postgres@127.0.0.1:1/shop")
			cfg.ConnectTimeout = 500 * time.Millisecond
			if name != "hangs" {
				cfg.ConnectTimeout = 30 * time.Second
			}
			cfg.PasswordCommand = tt.command
			_, err := postgres.Connect(t.Context(), cfg)
			t.Log(err)
			require.ErrorIs(t, err, tt.class)
			require.ErrorContains(t, err, tt.text)
			require.ErrorContains(t, err, "postgres.password_command")
			require.NotContains(t, err.Error(), "canary")
			required, fix := postgres.Advice(err)
			require.Equal(t, "a login that succeeds", required)
			require.True(t, strings.HasSuffix(err.Error(), "; "+fix))
		})
	}
}

// How long a host may take to answer does not bound the command.
func TestPasswordCommand_HasItsOwnLimit(t *testing.T) {
	cfg := configOf("postgres://postgres@127.0.0.1:1/shop")
	cfg.ConnectTimeout, cfg.PasswordCommand = 30*time.Second, []string{program(t, "echo canary")}
	_, err := postgres.ConnectWithin(t.Context(), cfg, time.Nanosecond)
	require.ErrorIs(t, err, postgres.ErrUnreachable)
	require.ErrorContains(t, err, "connect to 127.0.0.1:1/shop")
}

func TestLogin_ValidateRefusesHalfALoginAndTwo(t *testing.T) {
	for want, spoil := range map[string]func(*postgres.Config){
		`postgres.login: "iam" is none of password`: func(c *postgres.Config) { c.Login = "iam" },
		"postgres.password_command: names no program": func(c *postgres.Config) {
			c.PasswordCommand = []string{""}
		},
		"postgres.password_command: does not belong to postgres.login": func(c *postgres.Config) {
			c.Login, c.PasswordCommand = "aws_rds_iam", []string{"x"}
		},
		"postgres.aws: does not belong to": func(c *postgres.Config) { c.AWS.Region = "eu-central-1" },
		"postgres.azure: does not belong to": func(c *postgres.Config) {
			c.Login, c.Azure.ClientID = "google_cloud_sql_iam", "x"
		},
		"postgres.google: does not belong to": func(c *postgres.Config) {
			c.Google.CredentialsFile = "file.json"
		},
		"postgres.aws.role_arn": func(c *postgres.Config) { c.Login, c.AWS.RoleARN = "aws_rds_iam", "role" },
		"two logins: a password is in postgres.url": func(c *postgres.Config) {
			c.URL, c.Login = secret.Of("postgres://u:canary@db.example/shop"), "azure_entra"
		},
		"two logins: a password is in postgres.url, PGPASSWORD or the password file, and there is postgres.password_command": func(c *postgres.Config) {
			c.URL, c.PasswordCommand = secret.Of("postgres://u:canary@db.example/shop"), []string{"x"}
		},
		"would send its token to db.example in the clear": func(c *postgres.Config) {
			c.URL, c.Login = secret.Of("postgres://u@db.example/shop?sslmode=disable"), "google_cloud_sql_iam"
		},
		"signs for one host": func(c *postgres.Config) {
			c.URL, c.Login = secret.Of("postgres://u@a.example,b.example/shop"), "aws_rds_iam"
		},
	} {
		t.Run(want, func(t *testing.T) {
			cfg := configOf("postgres://u@db.example/shop")
			require.NoError(t, cfg.Validate())
			spoil(&cfg)
			err := cfg.Validate()
			require.ErrorContains(t, err, want)
			require.NotContains(t, err.Error(), "canary")
		})
	}
}

// RDS takes the signature as the password of the role.
func TestLogin_SendsAnRDSToken(t *testing.T) {
	cfg, admin := withoutPassword(t)
	t.Setenv("AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7EXAMPLE")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret-canary")
	t.Setenv("AWS_SESSION_TOKEN", "")
	cfg.Login, cfg.AWS.Region = postgres.LoginRDS, "eu-central-1"
	pc, err := postgres.ReplicationLogin(t.Context(), cfg)
	require.NoError(t, err)
	require.Contains(t, pc.Password, "Action=connect&DBUser=postgres")
	_, err = postgres.Connect(t.Context(), cfg)
	require.ErrorIs(t, err, postgres.ErrAuthentication, "it is not the password")
	require.NotContains(t, err.Error(), "canary")
	require.NotContains(t, err.Error(), "X-Amz")
	_, fix := postgres.Advice(err)
	require.Contains(t, fix, "rds.iam_auth_for_replication")

	// As RDS does, the server accepts what was signed; here as the password of the role.
	_, err = admin.Exec(t.Context(), "ALTER ROLE postgres PASSWORD '"+pc.Password+"'")
	require.NoError(t, err)
	conn, err := pgx.ConnectConfig(t.Context(), mustParse(t, cfg, pc.Password))
	require.NoError(t, err)
	postgres.Close(conn)
}

func mustParse(t *testing.T, cfg postgres.Config, password string) *pgx.ConnConfig {
	t.Helper()
	pc, err := postgres.ParseConfig(cfg)
	require.NoError(t, err)
	pc.Password = password
	return pc
}

func TestLogin_ReadsCertificatesAgain(t *testing.T) {
	a := parts.NewAuthority(t)
	cert, key := a.Issue("first", x509.Certificate{})
	u := "postgres://u@localhost/shop?sslmode=verify-full&sslrootcert=" + a.CAFile() +
		"&sslcert=" + cert + "&sslkey=" + key
	leaf := func() string {
		pc, err := postgres.ReplicationLogin(t.Context(), configOf(u))
		require.NoError(t, err)
		return commonName(t, pc.TLSConfig.Certificates[0])
	}
	require.Equal(t, "first", leaf())
	renewed, renewedKey := a.Issue("second", x509.Certificate{})
	for from, to := range map[string]string{renewed: cert, renewedKey: key} {
		text, err := os.ReadFile(from)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(to, text, 0o600))
	}
	require.Equal(t, "second", leaf())
}

func commonName(t *testing.T, pair tls.Certificate) string {
	t.Helper()
	cert, err := x509.ParseCertificate(pair.Certificate[0])
	require.NoError(t, err)
	return cert.Subject.CommonName
}
