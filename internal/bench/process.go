package bench

import (
	"fmt"
	"math"
	"net"
	"os"
	"slices"
	"strings"

	"github.com/prometheus/procfs"
	"github.com/twmb/franz-go/pkg/kadm"
)

// cpuSeconds is what a process has used so far, in user and system mode. NaN: the system does not
// provide it, or the process has ended.
func cpuSeconds(pid int) float64 {
	proc, err := procfs.NewProc(pid)
	if err != nil {
		return math.NaN()
	}
	stat, err := proc.Stat()
	if err != nil {
		return math.NaN()
	}
	return stat.CPUTime()
}

// peakRSS is the most that a process ever had in memory, in bytes. It is not taken from wait4: a
// child begins with the peak of its parent there. NaN: as of cpuSeconds.
func peakRSS(pid int) float64 {
	proc, err := procfs.NewProc(pid)
	if err != nil {
		return math.NaN()
	}
	status, err := proc.NewStatus()
	if err != nil {
		return math.NaN()
	}
	return float64(status.VmHWM)
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
func brokerPID(host string, port int32) (int, bool) {
	if !ours(host) {
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

// listening returns the sockets that listen on a port, by their names among open files.
func listening(port int32) map[string]bool {
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
	interfaces, _ := net.InterfaceAddrs() // without them only loopback is ours
	return slices.ContainsFunc(addresses, func(ip net.IP) bool {
		return ip.IsLoopback() || slices.ContainsFunc(interfaces, func(a net.Addr) bool {
			network, ok := a.(*net.IPNet)
			return ok && network.IP.Equal(ip)
		})
	})
}

// brokerPIDs finds all brokers of the cluster, or none.
func brokerPIDs(brokers kadm.BrokerDetails) []int {
	var pids []int
	for _, broker := range brokers {
		pid, found := brokerPID(broker.Host, broker.Port)
		if !found {
			return nil
		}
		if !slices.Contains(pids, pid) {
			pids = append(pids, pid)
		}
	}
	return pids
}
