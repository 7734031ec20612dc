package embedded

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/postrider/postrider/internal/embedded/child"
)

// PostgresConfig describes the server to start. The zero value is a good server of DefaultVersion.
type PostgresConfig struct {
	// Version is the major version, "14" to "18". Empty means DefaultVersion, or any version that
	// is installed when that one can be neither found nor fetched.
	Version string
	// Dir is where the server's own temporary directory is made. Empty means the system's. Every
	// parent must be open to the user that the server runs as.
	Dir string
	// Params are settings for postgresql.conf, over the package's own (wal_level=logical, 20 slots
	// and walsenders, fsync off). ALTER SYSTEM overrides both.
	Params map[string]string
	// Password of the superuser. Empty means that no connection needs one; otherwise all
	// need it, with SCRAM.
	Password string
	// HBA replaces pg_hba.conf. Empty means what Password implies.
	HBA string
	// Files are written into the data directory, readable by the server only: certificates, keys.
	Files map[string][]byte
	// OwnIdentity runs initdb for this server alone. Otherwise servers of one version are copies
	// of one prepared data directory and share its system identifier.
	OwnIdentity bool
}

// ShutdownMode is one of pg_ctl's.
type ShutdownMode syscall.Signal

const (
	// Fast ends the sessions, waits for walsenders to send what is left, writes a checkpoint.
	Fast = ShutdownMode(syscall.SIGINT)
	// Immediate quits without a checkpoint; the next start recovers from the WAL.
	Immediate = ShutdownMode(syscall.SIGQUIT)
)

// startTimeout bounds a start whose context has no deadline. Recovery after Kill takes seconds.
const startTimeout = 2 * time.Minute

// Postgres is one server with one data directory, running or not. Its methods may be called from
// any goroutine, but Start only while no other call of Start runs.
type Postgres struct {
	cfg    PostgresConfig
	as     child.Account
	binDir string
	dir    string // everything of this server; removed by Close
	remove func() error
	port   int // chosen once, so that a restarted server answers under the same DSN
	out    *child.Output
	proc   atomic.Pointer[child.Process] // of the last start; nil: there was none
}

// StartPostgres starts a server that is ready for connections when the call returns. It fetches
// the binaries when this machine has none, which takes as long as the network does. The caller
// must Close the server.
func StartPostgres(ctx context.Context, cfg PostgresConfig) (*Postgres, error) {
	as, err := child.Unprivileged()
	if err != nil {
		return nil, err
	}
	cache, err := CacheDir()
	if err != nil {
		return nil, err
	}
	binDir, err := findServer(ctx, cache, cfg.Version)
	if err != nil {
		return nil, err
	}
	dir, remove, err := child.TempDir(cfg.Dir, "postrider-postgres-")
	if err != nil {
		return nil, err
	}
	p := &Postgres{cfg: cfg, as: as, binDir: binDir, dir: dir, remove: remove, out: &child.Output{}}
	if err = p.create(ctx, cache); err == nil {
		err = p.startNew(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

func (p *Postgres) create(ctx context.Context, cache string) error {
	if p.as.Other && !othersCanEnter(filepath.Dir(p.dir)) {
		return fmt.Errorf("PostgreSQL does not run as root, and the user it runs as cannot "+
			"enter %s: choose a directory that is open to it", filepath.Dir(p.dir))
	}
	if err := p.as.Own(p.dir); err != nil {
		return fmt.Errorf("hand over server directory: %w", err)
	}
	if err := makeCluster(ctx, p.as, p.binDir, cache, p.DataDir(), p.cfg); err != nil {
		return err
	}
	// A socket's path is limited to about 100 bytes by the system; a server without one does too.
	socketDir := p.dir
	if len(socketDir) > 80 {
		socketDir = ""
	}
	return configure(p.DataDir(), baseParams(p.cfg, socketDir))
}

// startNew chooses a port, which another process may take before the server does.
func (p *Postgres) startNew(ctx context.Context) (err error) {
	for range 3 {
		if p.port, err = child.FreePort(); err != nil {
			return err
		}
		err = p.Start(ctx)
		if err == nil || !strings.Contains(p.Output(), "Address already in use") {
			return err
		}
	}
	return err
}

// Start starts the stopped or killed server again, on the same data and port, and waits until it
// accepts connections, at most until ctx ends.
func (p *Postgres) Start(ctx context.Context) error {
	if p.Running() {
		return errors.New("start PostgreSQL: it is running")
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()

	cmd := p.as.Command(filepath.Join(p.binDir, "postgres"), "-D", p.DataDir(), "-p",
		strconv.Itoa(p.port))
	cmd.Stdout, cmd.Stderr = p.out, p.out
	// Unlike a kill, an immediate shutdown ends the server's own children too.
	proc, err := child.Start(cmd, syscall.SIGQUIT)
	if err != nil {
		return err
	}
	p.proc.Store(proc)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !p.ready(proc.PID) {
		select {
		case <-proc.Done:
			return fmt.Errorf("start PostgreSQL: the server ended: %w\n%s", proc.End(),
				p.out.LastLines(15))
		case <-ctx.Done():
			_ = proc.Signal(syscall.SIGQUIT)
			return fmt.Errorf("start PostgreSQL: not ready: %w\n%s", context.Cause(ctx),
				p.out.LastLines(15))
		case <-tick.C:
		}
	}
	return nil
}

// ready reads what pg_ctl reads: the server's state in the eighth line of postmaster.pid, which is
// "standby" if it takes connections and no writes. The file of a killed server has another pid.
func (p *Postgres) ready(pid int) bool {
	text, err := os.ReadFile(filepath.Join(p.DataDir(), "postmaster.pid"))
	if err != nil {
		return false
	}
	lines := strings.Split(string(text), "\n")
	if len(lines) < 8 || lines[0] != strconv.Itoa(pid) {
		return false
	}
	state := strings.TrimSpace(lines[7])
	return state == "ready" || state == "standby"
}

// Stop is StopMode with Fast.
func (p *Postgres) Stop(ctx context.Context) error { return p.StopMode(ctx, Fast) }

// StopMode shuts the server down and waits until it has ended. When ctx ends first, the server
// still shuts down, and an error is returned: a fast shutdown waits for every walsender. A server
// that does not run is left alone.
func (p *Postgres) StopMode(ctx context.Context, mode ShutdownMode) error {
	if err := p.proc.Load().Stop(ctx, syscall.Signal(mode)); err != nil {
		return fmt.Errorf("stop PostgreSQL: it is still shutting down: %w", err)
	}
	return nil
}

// Kill ends the server and its children as a crash would, and waits until they are gone.
func (p *Postgres) Kill() error { return p.proc.Load().Kill() }

// Close ends the server, quickly and whatever its state, and removes its data.
func (p *Postgres) Close() (err error) {
	if proc := p.proc.Load(); proc != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = proc.Resume()
		if proc.Stop(ctx, syscall.SIGQUIT) != nil {
			err = proc.Kill()
		}
	}
	return errors.Join(err, p.remove())
}

// Pause stops the server's processes where they are. Resume continues them.
func (p *Postgres) Pause() error { return p.proc.Load().Pause() }

// Resume undoes Pause.
func (p *Postgres) Resume() error { return p.proc.Load().Resume() }

// CopyFrom replaces the data directory by a copy of another server's, of the same version and with
// its settings, and puts files into it: standby.signal makes it a standby. Neither may run. The
// copy keeps the system identifier and the WAL that the other has not recovered yet.
func (p *Postgres) CopyFrom(other *Postgres, files map[string]string) error {
	if p.Running() || other.Running() {
		return errors.New("copy data directory: a server is running")
	}
	err := os.RemoveAll(p.DataDir())
	if err == nil {
		err = copyTree(p.as, other.DataDir(), p.DataDir())
	}
	if err == nil { // that of a server that was killed
		err = os.RemoveAll(filepath.Join(p.DataDir(), "postmaster.pid"))
	}
	if err != nil {
		return fmt.Errorf("copy data directory: %w", err)
	}
	for name, content := range files {
		if err := writeOwned(p.as, filepath.Join(p.DataDir(), name), []byte(content)); err != nil {
			return err
		}
	}
	return p.SetParam("unix_socket_directories", "")
}

// SetParam changes postgresql.conf. It counts from the next start on, or after pg_reload_conf()
// for settings that can be reloaded.
func (p *Postgres) SetParam(name, value string) error {
	return configure(p.DataDir(), map[string]string{name: value})
}

// DSN is the URL of the database postgres, as the superuser, over TCP.
func (p *Postgres) DSN() string {
	user := url.User("postgres")
	if p.cfg.Password != "" {
		user = url.UserPassword("postgres", p.cfg.Password)
	}
	u := url.URL{Scheme: "postgres", User: user, Path: "/postgres", RawQuery: "sslmode=disable",
		Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(p.port))}
	return u.String()
}

// Port is the TCP port on 127.0.0.1. It stays the same over restarts.
func (p *Postgres) Port() int { return p.port }

// DataDir is the server's data directory.
func (p *Postgres) DataDir() string { return filepath.Join(p.dir, "data") }

// Output returns the last 256 KiB of what the server printed, over all its starts.
func (p *Postgres) Output() string { return p.out.String() }

// Running reports whether the server's main process exists.
func (p *Postgres) Running() bool {
	proc := p.proc.Load()
	return proc != nil && proc.Running()
}
