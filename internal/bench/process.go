package bench

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/procfs"
)

// of reads about a process; nil if the system does not provide it, or the process is gone.
func of[T any](pid int, read func(procfs.Proc) (T, error), figure func(T) float64) *float64 {
	proc, err := procfs.NewProc(pid)
	if err != nil {
		return nil
	}
	from, err := read(proc)
	if err != nil {
		return nil
	}
	return known(figure(from))
}

// cpuSeconds is what a process has used so far, in user and system mode.
func cpuSeconds(pid int) *float64 { return of(pid, procfs.Proc.Stat, procfs.ProcStat.CPUTime) }

// peakRSS is the most that a process ever had in memory, in bytes. The value that wait returns at
// its end would be that of its parent, where that is larger.
func peakRSS(pid int) *float64 {
	return of(pid, procfs.Proc.NewStatus,
		func(s procfs.ProcStatus) float64 { return float64(s.VmHWM) })
}

// isWalsender reports whether a process id of the server means its walsender here too: the server
// may be in a container or on another machine.
func isWalsender(pid int) bool {
	proc, err := procfs.NewProc(pid)
	if err != nil {
		return false
	}
	line, err := proc.CmdLine()
	return err == nil && strings.Contains(strings.Join(line, " "), "walsender")
}

// brokerNames are the names of a broker's process. The port of a container belongs to a proxy
// instead.
var brokerNames = []string{"java", "redpanda"}

// brokerPID finds the broker that listens on an address of this machine.
func brokerPID(address string) (int, bool) {
	host, text, _ := net.SplitHostPort(address)
	port, err := strconv.Atoi(text)
	if err != nil || !ours(host) {
		return 0, false
	}
	inodes := listening(port)
	processes, _ := procfs.AllProcs() // none on another system
	for _, p := range processes {
		if name, err := p.Comm(); err != nil || !slices.Contains(brokerNames, name) {
			continue
		}
		targets, err := p.FileDescriptorTargets()
		if err == nil && slices.ContainsFunc(targets, func(t string) bool { return inodes[t] }) {
			return p.PID, true
		}
	}
	return 0, false
}

// tcpListen is TCP_LISTEN of Linux's net/tcp_states.h.
const tcpListen = 10

// listening returns the sockets that listen on a port, by their names among open files.
func listening(port int) map[string]bool {
	inodes := map[string]bool{}
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return nil
	}
	four, _ := fs.NetTCP() // on another system, or without IPv6, there are none
	six, _ := fs.NetTCP6()
	for _, socket := range append(four, six...) {
		if socket.St == tcpListen && socket.LocalPort == uint64(port) {
			inodes[fmt.Sprintf("socket:[%d]", socket.Inode)] = true
		}
	}
	return inodes
}

// ours reports whether a host is this machine.
func ours(host string) bool {
	addresses, err := net.LookupIP(host)
	if err != nil {
		return false
	}
	interfaces, _ := net.InterfaceAddrs() // without them only loopback is ours
	return slices.ContainsFunc(addresses, func(ip net.IP) bool {
		return ip.IsLoopback() || slices.ContainsFunc(interfaces, func(a net.Addr) bool {
			network, ok := a.(*net.IPNet)
			return ok && network.IP.Equal(ip)
		})
	})
}

// brokerPIDs finds all brokers of the cluster, or none.
func brokerPIDs(addresses []string) []int {
	var pids []int
	for _, address := range addresses {
		pid, found := brokerPID(address)
		if !found {
			return nil
		}
		if !slices.Contains(pids, pid) {
			pids = append(pids, pid)
		}
	}
	return pids
}
