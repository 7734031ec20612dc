package postgres

import (
	"crypto/tls"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/secret"
)

// hermetic keeps libpq's environment of the machine out of a test.
func hermetic(t *testing.T) {
	t.Helper()
	for _, name := range []string{
		"PGHOST", "PGPORT", "PGDATABASE", "PGUSER", "PGPASSWORD", "PGSSLMODE", "PGSERVICE", "PGAPPNAME",
		"PGTARGETSESSIONATTRS", "PGSSLROOTCERT", "PGCONNECT_TIMEOUT", "PGPASSFILE", "PGSERVICEFILE",
	} {
		t.Setenv(name, "")
	}
	t.Setenv("HOME", t.TempDir())
}

func parse(t *testing.T, url string) *pgx.ConnConfig {
	t.Helper()
	c := DefaultConfig()
	c.URL = secret.Of(url)
	pc, err := ParseConfig(c)
	require.NoError(t, err)
	return pc
}

func TestParseConfig_RaisesTLSToVerifyFull(t *testing.T) {
	hermetic(t)
	for _, mode := range []string{"", "?sslmode=prefer", "?sslmode=allow"} {
		t.Run("mode"+mode, func(t *testing.T) {
			pc := parse(t, "postgres://u@db.example/shop"+mode)
			require.NotNil(t, pc.TLSConfig)
			require.False(t, pc.TLSConfig.InsecureSkipVerify)
			require.Equal(t, "db.example", pc.TLSConfig.ServerName)
			require.Empty(t, pc.Fallbacks, "an attempt without TLS is left")
		})
	}
}

func TestParseConfig_RaisesEveryHost(t *testing.T) {
	hermetic(t)
	pc := parse(t, "postgres://u@a.example,127.0.0.1:5433,10.0.0.1:5434/shop")
	require.Equal(t, "a.example", pc.TLSConfig.ServerName)
	require.Len(t, pc.Fallbacks, 3)
	require.Equal(t, "127.0.0.1", pc.Fallbacks[0].Host)
	require.Equal(t, "127.0.0.1", pc.Fallbacks[1].Host)
	require.Nil(t, pc.Fallbacks[1].TLSConfig, "loopback keeps libpq's default")
	require.Equal(t, "10.0.0.1", pc.Fallbacks[2].TLSConfig.ServerName)
	require.False(t, pc.Fallbacks[2].TLSConfig.InsecureSkipVerify)
	require.NotNil(t, pc.ValidateConnect, "several hosts: the writable one")
}

func TestParseConfig_LeavesExplicitModes(t *testing.T) {
	hermetic(t)
	require.Nil(t, parse(t, "postgres://u@db.example/shop?sslmode=disable").TLSConfig)
	require.True(t, parse(t, "postgres://u@db.example/shop?sslmode=require").TLSConfig.InsecureSkipVerify)
	require.Equal(t, "db.example",
		parse(t, "postgres://u@db.example/shop?sslmode=verify-full").TLSConfig.ServerName)
	t.Setenv("PGSSLMODE", "disable")
	require.Nil(t, parse(t, "postgres://u@db.example/shop").TLSConfig)
}

func TestParseConfig_LeavesSocketAndLoopback(t *testing.T) {
	hermetic(t)
	require.Nil(t, parse(t, "host=/run/postgresql user=u dbname=shop").TLSConfig)
	for _, host := range []string{"localhost", "127.0.0.1", "[::1]"} {
		pc := parse(t, "postgres://u@"+host+"/shop")
		require.Len(t, pc.Fallbacks, 1, host)
		require.Nil(t, pc.Fallbacks[0].TLSConfig, host)
	}
}

func TestParseConfig_ReadsLibpqSources(t *testing.T) {
	hermetic(t)
	t.Setenv("PGHOST", "/run/postgresql")
	t.Setenv("PGDATABASE", "shop")
	t.Setenv("PGUSER", "relay")
	pc := parse(t, "")
	require.Equal(t, "/run/postgresql", pc.Host)
	require.Equal(t, "shop", pc.Database)
	require.Equal(t, "relay", pc.User)
	require.Equal(t, "postrider", pc.RuntimeParams["application_name"])
	require.Equal(t, 10*time.Second, pc.ConnectTimeout)
	require.Equal(t, 3*time.Second, parse(t, "connect_timeout=3").ConnectTimeout)

	service := filepath.Join(t.TempDir(), "services")
	require.NoError(t, os.WriteFile(service, []byte("[orders]\nhost=/tmp\ndbname=orders\n"), 0o600))
	t.Setenv("PGSERVICEFILE", service)
	require.Equal(t, "orders", parse(t, "service=orders").Database)
}

func TestReplicationConfig_SetsItsParameters(t *testing.T) {
	hermetic(t)
	c := DefaultConfig()
	c.URL = secret.Of("postgres://u@localhost/shop")
	rc, err := ReplicationConfig(c)
	require.NoError(t, err)
	require.Equal(t, "database", rc.RuntimeParams["replication"])
	require.Equal(t, "15s", rc.RuntimeParams["wal_sender_timeout"])

	c.URL = secret.Of("postgres://u@localhost/shop?wal_sender_timeout=40s&application_name=orders")
	rc, err = ReplicationConfig(c)
	require.NoError(t, err)
	require.Equal(t, "40s", rc.RuntimeParams["wal_sender_timeout"])
	require.Equal(t, "orders", rc.RuntimeParams["application_name"])
}

func TestReplicationConfig_FixesHowValuesAreWritten(t *testing.T) {
	hermetic(t)
	pc, err := ReplicationConfig(Config{URL: secret.Of("postgres://u@localhost/d?datestyle=German&timezone=Asia/Tokyo")})
	require.NoError(t, err)
	require.Equal(t, "ISO", pc.RuntimeParams["datestyle"])
	require.Equal(t, "UTC", pc.RuntimeParams["timezone"])
	require.Equal(t, "UTF8", pc.RuntimeParams["client_encoding"])
}

func TestConfig_ErrorsNeverContainThePassword(t *testing.T) {
	hermetic(t)
	for _, url := range []string{
		"postgres://u:canary@h:port/shop",
		"postgres://u:can/ary@h/shop",
		"postgres://u:p@canary@h/shop",
		"postgres://u:7/canary@h/shop",
		"postgres://u:/canary@h/shop?sslmode=disable",
		"postgres://u:7/can/canary@h",
		"postgres://u:7/canary#x@h/shop",
		"postgres://u:7/can?ary=canary@h/shop",
		"postgres://u:7/can?ary@canary=h/shop",
		"postgres://u:7/can?canary@h/shop",
		"postgres://u:p@7/canary@h/shop",
		"postgresql://u:7?x/canary@h/shop",
		"postgres://u:canary@h/shop?sslmode=wrong",
		"postgres://u:canary%zz@h/shop",
		"postgres://u:canary@h/shop?sslrootcert=/nowhere/ca.pem",
		"postgres://u:canary@h:1,i:2,j/shop?port=1,2",
		"host=h password=canary sslmode",
		"host=h password='canary",
		"password=canary target_session_attrs=wrong",
		"mysql://u:canary@h/shop",
		"postgres://u:canary@h/shop?service=missing",
	} {
		c := DefaultConfig()
		c.URL = secret.Of(url)
		err := c.Validate()
		require.ErrorIs(t, err, ErrConfig, url)
		require.NotContains(t, err.Error(), "canary", url)
		require.NotContains(t, err.Error(), "ary@", url)
		_, err = ReplicationConfig(c)
		require.ErrorIs(t, err, ErrConfig, url)
		require.NotContains(t, err.Error(), "canary", url)
	}
}

func TestParseConfig_TakesAnAtThatIsNoPartOfAPassword(t *testing.T) {
	hermetic(t)
	pc := parse(t, "postgres://u:c%2F%40n?a#r:y@h/a%40b?application_name=relay@host&options=-c%20x.y%3D@")
	require.Equal(t, "a@b", pc.Database)
	require.Equal(t, "c/@n?a#r:y", pc.Password)
	require.Equal(t, "relay@host", pc.RuntimeParams["application_name"])
	pc = parse(t, "postgres://h/shop?user=relay@tenant&password=p@ss")
	require.Equal(t, "relay@tenant", pc.User)
	require.Equal(t, "p@ss", pc.Password)
	require.Equal(t, "a@b", parse(t, "host=h dbname=a@b").Database)
	require.Equal(t, "shop", parse(t, "postgres://u:p@h?dbname=shop&passfile=/home/a@b").Database)
	t.Setenv("PGDATABASE", "a@b")
	require.Equal(t, "a@b", parse(t, "postgres://u:p@h").Database)
}

func TestConfig_ValidateRefusesWhatCannotWork(t *testing.T) {
	hermetic(t)
	require.NoError(t, DefaultConfig().Validate())
	require.ErrorContains(t, Config{}.Validate(), "connect_timeout")
	require.ErrorIs(t, Config{URL: secret.File("/nowhere/url"),
		ConnectTimeout: time.Second}.Validate(), os.ErrNotExist)
}

func TestVerified_LeavesTheDriversConfigAlone(t *testing.T) {
	before := &tls.Config{InsecureSkipVerify: true} //nolint:gosec // what is tested is that it is replaced
	after := refuseDowngrade([]*pgconn.FallbackConfig{{Host: "db.example", TLSConfig: before}, {Host: "db.example"}})[0].TLSConfig
	require.True(t, before.InsecureSkipVerify)
	require.False(t, after.InsecureSkipVerify)
}
