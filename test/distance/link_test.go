//go:build linux

package distance

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/test/parts"
)

// The two ends of the link: the servers are near, the relay is far. Another run has others.
var (
	nearAddress = fmt.Sprintf("10.99.%d.1", os.Getpid()%250)
	farAddress  = fmt.Sprintf("10.99.%d.2", os.Getpid()%250)
	nearDevice  = fmt.Sprintf("near-%d", os.Getpid())
	farDevice   = fmt.Sprintf("far-%d", os.Getpid())
)

// link is the network between two interfaces. Changes count from the next packet on.
type link struct {
	namespace string // of the far end

	mu        sync.Mutex // guards what follows
	delay     time.Duration
	rate      int // bytes a second in each direction; 0: no limit
	loss      float64
	bytes     int64 // passed on, in both directions
	lost      int64
	near, far *os.File
	wg        sync.WaitGroup
}

// queue is how much a direction of a limited link holds before it drops packets: about what routers have.
const queue = 100 * time.Millisecond

// newLink makes one, which ends with the test. A large mtu takes less of the processor, and one of 1,500 makes losses real.
func newLink(t testing.TB, mtu int) *link {
	t.Helper()
	l := &link{namespace: fmt.Sprintf("postrider-%d", os.Getpid())}
	need(t, run("ip", "netns", "add", l.namespace))
	t.Cleanup(func() { require.NoError(t, run("ip", "netns", "del", l.namespace)) })
	l.near, l.far = tun(t, nearDevice), tun(t, farDevice)
	for _, args := range [][]string{
		{"ip", "link", "set", farDevice, "netns", l.namespace},
		{"ip", "addr", "add", nearAddress + "/30", "dev", nearDevice},
		{"ip", "link", "set", nearDevice, "mtu", fmt.Sprint(mtu), "up"},
		{"ip", "-n", l.namespace, "addr", "add", farAddress + "/30", "dev", farDevice},
		{"ip", "-n", l.namespace, "link", "set", farDevice, "mtu", fmt.Sprint(mtu), "up"},
		{"ip", "-n", l.namespace, "link", "set", "lo", "up"},
	} {
		need(t, run(args...))
	}
	l.wg.Go(func() { l.pass(l.far, l.near) })
	l.wg.Go(func() { l.pass(l.near, l.far) })
	t.Cleanup(func() {
		require.NoError(t, errors.Join(l.near.Close(), l.far.Close()))
		l.wg.Wait()
	})
	return l
}

// need ends a test that needs a link, where none can be made.
func need(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		parts.Lacking(t, "netns", fmt.Sprintf("a link can't be made here, which takes root on Linux: %v", err))
	}
}

func run(args ...string) error {
	if said, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
		return fmt.Errorf("%v: %w: %s", args, err, said)
	}
	return nil
}

// tun opens an interface whose packets the file has.
func tun(t testing.TB, name string) *os.File {
	t.Helper()
	fd, err := syscall.Open("/dev/net/tun", syscall.O_RDWR|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	need(t, err)
	request := struct {
		name  [syscall.IFNAMSIZ]byte
		flags uint16
		_     [22]byte
	}{flags: syscall.IFF_TUN | syscall.IFF_NO_PI}
	copy(request.name[:], name)
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), syscall.TUNSETIFF, uintptr(unsafe.Pointer(&request)))
	if errno != 0 {
		need(t, errno)
	}
	return os.NewFile(uintptr(fd), name)
}

func (l *link) set(roundTrip time.Duration, megabits int, loss float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.delay, l.rate, l.loss = roundTrip/2, megabits*1e6/8, loss
}

func (l *link) passed() (bytes, lost int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.bytes, l.lost
}

type packet struct {
	data []byte
	due  time.Time
}

// admit returns when a packet of size bytes that has come now is through, which is free again after free; ok: it is not dropped.
func (l *link) admit(size int, now, free time.Time) (due, next time.Time, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	next = now
	if l.rate > 0 {
		if free.After(now) {
			next = free
		}
		next = next.Add(time.Duration(size) * time.Second / time.Duration(l.rate))
	}
	if next.Sub(now) > queue || rand.Float64() < l.loss {
		l.lost++
		return time.Time{}, free, false
	}
	l.bytes += int64(size)
	return next.Add(l.delay), next, true
}

// pass passes packets on in one direction until a file is closed.
func (l *link) pass(to, from *os.File) {
	waiting := make(chan packet, 1<<16)
	l.wg.Go(func() {
		for p := range waiting {
			if wait := time.Until(p.due); wait > 0 {
				<-time.After(wait)
			}
			_, _ = to.Write(p.data) // one that is refused is lost, as on any link
		}
	})
	defer close(waiting)
	buffer, free := make([]byte, 1<<16), time.Time{}
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		due, next, ok := l.admit(n, time.Now(), free)
		if free = next; ok {
			waiting <- packet{append([]byte(nil), buffer[:n]...), due}
		}
	}
}
