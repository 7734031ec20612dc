package parts

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/embedded/child"
)

// Realm is that of KDC.
const Realm = "POSTRIDER.TEST"

// KDC is MIT Kerberos' key distribution center with a database of its own. It ends with the test.
type KDC struct {
	t       testing.TB
	dir     string
	address string
	process *child.Process
	out     child.Output
}

// NewKDC starts one, whose tickets live for lifetime. The principal of brokers, kafka/127.0.0.1,
// exists.
func NewKDC(t testing.TB, lifetime time.Duration) *KDC {
	t.Helper()
	// Debian has these where only root's PATH leads.
	t.Setenv("PATH", os.Getenv("PATH")+":/usr/sbin:/sbin")
	for _, name := range []string{"krb5kdc", "kdb5_util", "kadmin.local"} {
		if _, err := exec.LookPath(name); err != nil {
			Lacking(t, "krb5kdc", err.Error()+" (Debian packages krb5-kdc and krb5-admin-server)")
		}
	}
	address, err := freeAddress()
	require.NoError(t, err)
	k := &KDC{t: t, dir: t.TempDir(), address: address}
	_, port, _ := net.SplitHostPort(address)
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(k.dir, name), []byte(text), 0o600))
	}
	write("krb5.conf", fmt.Sprintf("[libdefaults]\n default_realm = %[1]s\n dns_lookup_kdc = false\n"+
		" dns_lookup_realm = false\n dns_canonicalize_hostname = false\n rdns = false\n"+
		" ticket_lifetime = %[2]ds\n udp_preference_limit = 1\n"+
		"[realms]\n %[1]s = {\n  kdc = %[3]s\n }\n", Realm, int(lifetime.Seconds()), address))
	write("kdc.conf", fmt.Sprintf("[kdcdefaults]\n kdc_listen = \"\"\n"+
		" kdc_tcp_listen = 127.0.0.1:%[1]s\n[realms]\n %[2]s = {\n"+
		"  database_name = %[3]s/principal\n  key_stash_file = %[3]s/stash\n"+
		"  acl_file = %[3]s/acl\n  max_life = %[4]ds\n  max_renewable_life = 0s\n }\n"+
		"[logging]\n kdc = STDERR\n", port, Realm, k.dir, int(lifetime.Seconds())))
	k.run("kdb5_util", "create", "-s", "-r", Realm, "-P", "master")
	k.AddPrincipal("kafka/127.0.0.1")
	k.Start()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("end of the KDC's log:\n%s", lastPart(k.out.String(), 4000))
		}
		require.NoError(t, k.process.Kill())
	})
	return k
}

func (k *KDC) command(name string, args ...string) *exec.Cmd {
	var me child.Account
	cmd := me.Command(name, args...)
	cmd.Env = append(os.Environ(), "KRB5_CONFIG="+k.Config(),
		"KRB5_KDC_PROFILE="+filepath.Join(k.dir, "kdc.conf"))
	return cmd
}

func (k *KDC) run(name string, args ...string) {
	k.t.Helper()
	output, err := k.command(name, args...).CombinedOutput()
	require.NoError(k.t, err, "%s", output)
}

// Start starts it again after Stop.
func (k *KDC) Start() {
	k.t.Helper()
	cmd := k.command("krb5kdc", "-n")
	cmd.Stdout, cmd.Stderr = &k.out, &k.out
	var err error
	k.process, err = child.Start(cmd, syscall.SIGKILL)
	require.NoError(k.t, err)
	require.NoError(k.t, eventually(context.Background(), func(ctx context.Context) error {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", k.address)
		if err == nil {
			err = conn.Close()
		}
		return err
	}))
}

// Stop ends it.
func (k *KDC) Stop() {
	k.t.Helper()
	require.NoError(k.t, k.process.Kill())
}

// Config is a krb5.conf.
func (k *KDC) Config() string { return filepath.Join(k.dir, "krb5.conf") }

// AddPrincipal makes one, with a random key.
func (k *KDC) AddPrincipal(name string) {
	k.t.Helper()
	k.run("kadmin.local", "-r", Realm, "-q", "addprinc -randkey +requires_preauth "+name)
}

// Keytab gives the principal a new key and writes it to a file.
func (k *KDC) Keytab(name string) string {
	k.t.Helper()
	path := filepath.Join(k.dir, Unique("keytab"))
	k.run("kadmin.local", "-r", Realm, "-q", "ktadd -k "+path+" "+name)
	return path
}

// Listener is how a broker's listener CLIENT takes tickets.
func (k *KDC) Listener() KafkaConfig {
	k.t.Helper()
	return KafkaConfig{Protocol: "SASL_PLAINTEXT",
		Java: []string{"-Djava.security.krb5.conf=" + k.Config()},
		Properties: map[string]string{
			"sasl.enabled.mechanisms":    "GSSAPI",
			"sasl.kerberos.service.name": "kafka",
			"listener.name.client.gssapi.sasl.jaas.config": fmt.Sprintf("com.sun.security.auth.module."+
				`Krb5LoginModule required useKeyTab=true storeKey=true keyTab="%s" principal="kafka/127.0.0.1@%s";`,
				k.Keytab("kafka/127.0.0.1"), Realm),
			"listener.name.client.gssapi.connections.max.reauth.ms": "4000",
		}}
}
