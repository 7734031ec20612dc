package child

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

func signalOnParentDeath(attr *syscall.SysProcAttr, sig syscall.Signal) {
	attr.Pdeathsig = sig
}

// childrenOf lists the processes that pid has started and not reaped. A kernel without that list
// gives none.
func childrenOf(pid int) []int {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
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

// Gone reports whether pid has ended. An orphan may stay a zombie for long where process 1 does
// not reap; its files and locks are released.
func Gone(pid int) bool {
	state := state(fmt.Sprintf("/proc/%d/stat", pid))
	return state == 0 || state == 'Z' || state == 'X'
}

// stopped reports whether every thread of pid has stopped or ended.
func stopped(pid int) bool {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid)) // the pattern is valid
	return !slices.ContainsFunc(threads, func(stat string) bool {
		return !strings.ContainsRune("TtZX\x00", rune(state(stat)))
	})
}

// state reads the state of a process or thread; zero: it has ended.
func state(stat string) byte {
	text, err := os.ReadFile(stat)
	if err != nil {
		return 0
	}
	// The state follows the name, which is in parentheses and may contain anything.
	at := bytes.LastIndex(text, []byte(") "))
	return text[at+len(") ")]
}
