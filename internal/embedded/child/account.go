package child

import (
	"errors"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"strings"
	"syscall"
)

// Account is the user that a child runs as. The zero value is the current user.
type Account struct {
	UID, GID int
	// not the current user: files must be handed over, the process needs a credential
	Other bool
}

// Unprivileged returns the current user, or for root an unprivileged one, which PostgreSQL insists
// on. It must have an entry in the user database, because initdb looks its name up.
func Unprivileged() (Account, error) {
	if os.Geteuid() != 0 {
		return Account{}, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, uidErr := strconv.Atoi(u.Uid)
		gid, gidErr := strconv.Atoi(u.Gid)
		if uidErr == nil && gidErr == nil && uid != 0 {
			return Account{UID: uid, GID: gid, Other: true}, nil
		}
	}
	return Account{},
		errors.New("PostgreSQL refuses to run as root, and there is neither a user postgres nor " +
			"nobody to run it as")
}

// Own hands path over to the account.
func (a Account) Own(path string) error {
	if !a.Other {
		return nil
	}
	return os.Lchown(path, a.UID, a.GID)
}

// Command prepares a program that runs as the account, without signals from the terminal, in a
// clean environment: PG* variables of the caller must not reach the server.
func (a Account) Command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Env = []string{"LC_ALL=C", "TZ=UTC"}
	for _, kv := range os.Environ() {
		if strings.HasPrefix(kv, "PATH=") || strings.HasPrefix(kv, "TMPDIR=") ||
			strings.HasPrefix(kv, "LD_LIBRARY_PATH=") {
			cmd.Env = append(cmd.Env, kv)
		}
	}
	cmd.Dir = "/" // the caller's directory may be closed to the account
	// Ctrl-C on a terminal goes to the whole foreground group; the owner decides when the server
	// stops.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if a.Other {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(a.UID), Gid: uint32(a.GID),
			Groups: []uint32{}}
	}
	return cmd
}
