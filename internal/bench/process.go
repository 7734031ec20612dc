package bench

import (
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/procfs"
)

// cpuSeconds is what a process has used so far, in user and system mode; nil if the system does
// not provide it, or the process is gone.
func cpuSeconds(pid int) *float64 {
	proc, err := procfs.NewProc(pid)
	if err != nil {
		return nil
	}
	stat, err := proc.Stat()
	if err != nil {
		return nil
	}
	return known(stat.CPUTime())
}

// peakRSS is the most that a process ever had in memory, in bytes. The value that wait returns at
// its end would be that of its parent, where that is larger.
func peakRSS(pid int) *float64 {
	proc, err := procfs.NewProc(pid)
	if err != nil {
		return nil
	}
	status, err := proc.NewStatus()
	if err != nil {
		return nil
	}
	return known(float64(status.VmHWM))
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

// brokerNames are the names of a broker's process. The port of a container is held by a proxy
// instead.
var brokerNames = []string{"java", "redpanda"}

// brokerPID finds the broker that listens on an address of this machine.
func brokerPID(host string, port int) (int, bool) {
	inodes := listening(port)
	if len(inodes) == 0 || !ours(host) {
		return 0, false
	}
	processes, err := procfs.AllProcs()
	if err != nil {
		return 0, false
	}
	for _, p := range processes {
		name, err := p.Comm()
		if err != nil || !slices.Contains(brokerNames, name) {
			continue
		}
		targets, err := p.FileDescriptorTargets()
		if err == nil && slices.ContainsFunc(targets, func(t string) bool { return inodes[t] }) {
			return p.PID, true
		}
	}
	return 0, false
}

// listening returns the sockets that listen on a port, by their names among open files.
func listening(port int) map[string]bool {
	inodes := map[string]bool{}
	for _, path := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // another system, or one without IPv6
		}
		for line := range strings.Lines(string(text)) {
			// sl local_address rem_address st tx_queue:rx_queue tr:tm->when retrnsmt uid timeout
			// inode
			fields := strings.Fields(line)
			if len(fields) > 9 && fields[3] == "0A" &&
				strings.HasSuffix(fields[1], fmt.Sprintf(":%04X", port)) {
				inodes["socket:["+fields[9]+"]"] = true
			}
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
	interfaces, err := net.InterfaceAddrs()
	if err != nil {
		return false
	}
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
		host, text, err := net.SplitHostPort(address)
		if err != nil {
			return nil
		}
		port, err := strconv.Atoi(text)
		if err != nil {
			return nil
		}
		pid, found := brokerPID(host, port)
		if !found {
			return nil
		}
		if !slices.Contains(pids, pid) {
			pids = append(pids, pid)
		}
	}
	return pids
}
