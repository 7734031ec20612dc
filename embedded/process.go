package embedded

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// account is who the server runs as. The zero value is the current user.
type account struct {
	uid, gid int
	other    bool // not the current user: files must be handed over, the process needs a credential
}

// serverAccount returns the current user, or for root an unprivileged one, which PostgreSQL insists on.
// It must have an entry in the user database, because initdb looks its name up.
func serverAccount() (account, error) {
	if os.Geteuid() != 0 {
		return account{}, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, uidErr := strconv.Atoi(u.Uid)
		gid, gidErr := strconv.Atoi(u.Gid)
		if uidErr == nil && gidErr == nil && uid != 0 {
			return account{uid: uid, gid: gid, other: true}, nil
		}
	}
	return account{}, errors.New("PostgreSQL refuses to run as root, and there is neither a user postgres nor nobody to run it as")
}

// own hands path over to the account.
func (a account) own(path string) error {
	if !a.other {
		return nil
	}
	return os.Lchown(path, a.uid, a.gid)
}

// command prepares a program that runs as the account, apart from our terminal's signals, in a clean
// environment: PG* variables of the caller must not reach the server.
func (a account) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Env = []string{"LC_ALL=C", "TZ=UTC"}
	for _, kv := range os.Environ() {
		if strings.HasPrefix(kv, "PATH=") || strings.HasPrefix(kv, "TMPDIR=") || strings.HasPrefix(kv, "LD_LIBRARY_PATH=") {
			cmd.Env = append(cmd.Env, kv)
		}
	}
	cmd.Dir = "/" // the caller's directory may be closed to the account
	// Ctrl-C on a terminal goes to the whole foreground group; the owner decides when the server stops.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if a.other {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(a.uid), Gid: uint32(a.gid), Groups: []uint32{}}
	}
	return cmd
}

// process is a running child. Its goroutine starts it, waits for it and ends with it.
type process struct {
	pid  int
	done chan struct{} // closed when the child has been reaped
	err  error         // how it ended; read only after done
}

// startProcess starts cmd and reaps it. Where the system offers it, the child gets onParentDeath when
// this process dies.
func startProcess(cmd *exec.Cmd, onParentDeath syscall.Signal) (*process, error) {
	// Children of the child inherit its output, and may outlive it by a moment.
	cmd.WaitDelay = 5 * time.Second
	signalOnParentDeath(cmd.SysProcAttr, onParentDeath)

	p := &process{done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		// The signal on the parent's death is really one on the death of the starting thread, so the
		// thread has to live as long as the child.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := cmd.Start(); err != nil {
			started <- err
			return
		}
		p.pid = cmd.Process.Pid
		started <- nil
		p.err = cmd.Wait()
		close(p.done)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	return p, nil
}

func (p *process) running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// signal sends sig unless the child has ended.
func (p *process) signal(sig syscall.Signal) error {
	if !p.running() {
		return nil
	}
	if err := syscall.Kill(p.pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("send %v to process %d: %w", sig, p.pid, err)
	}
	return nil
}

// output keeps the end of what a process printed and copies all of it to another writer, if any.
type output struct {
	mu   sync.Mutex
	tail []byte
	also func([]byte)
}

// outputLimit is how much is kept: enough for a server's last words, little enough to print.
const outputLimit = 256 << 10

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.also != nil {
		o.also(b)
	}
	o.tail = append(o.tail, b...)
	if extra := len(o.tail) - outputLimit; extra > 0 {
		o.tail = append(o.tail[:0], o.tail[extra:]...)
	}
	return len(b), nil
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return string(o.tail)
}

// lastLines returns at most n lines from the end, for an error message.
func (o *output) lastLines(n int) string {
	lines := strings.Split(strings.TrimSpace(o.String()), "\n")
	if len(lines) > n {
		lines = lines[len(lines)-n:]
	}
	return strings.Join(lines, "\n")
}
