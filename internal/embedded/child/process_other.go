//go:build !linux

package child

import (
	"errors"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// signalOnParentDeath does nothing: only Linux offers it.
func signalOnParentDeath(*syscall.SysProcAttr, syscall.Signal) {}

// childrenOf lists the processes that pid has started.
func childrenOf(pid int) []int {
	text, err := exec.Command("pgrep", "-P", strconv.Itoa(pid)).Output()
	if err != nil {
		return nil
	}
	var pids []int
	for _, field := range strings.Fields(string(text)) {
		if child, err := strconv.Atoi(field); err == nil {
			pids = append(pids, child)
		}
	}
	return pids
}

// Gone reports whether pid has ended.
func Gone(pid int) bool {
	return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
}

// stopped is not known here.
func stopped(int) bool { return true }
