package replication

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// tcpSocket is what a connection is to the kernel. Its low-water mark is from how many bytes on
// there is something to read.
type tcpSocket struct{ raw syscall.RawConn }

// tcpOf reports whether a connection is one. Unix sockets have no low-water mark.
func tcpOf(conn net.Conn) (tcpSocket, bool) {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return tcpSocket{}, false
	}
	raw, err := tcp.SyscallConn()
	return tcpSocket{raw}, err == nil
}

// lowWater sets the mark.
func (s tcpSocket) lowWater(bytes int) error { return s.set(syscall.SO_RCVLOWAT, bytes) }

// receive bounds what the kernel takes for us before we read it.
func (s tcpSocket) receive(bytes int) error { return s.set(syscall.SO_RCVBUF, bytes) }

// free lets the kernel decide about that again. Linux before 5.14 cannot.
func (s tcpSocket) free() error { return s.set(unix.SO_BUF_LOCK, 0) }

func (s tcpSocket) set(option, value int) error {
	var failed error
	err := s.raw.Control(func(fd uintptr) {
		failed = os.NewSyscallError("setsockopt",
			syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, option, value))
	})
	return errors.Join(err, failed)
}

// roundTrip is how long packets take to the other side and back, as measured so far.
func (s tcpSocket) roundTrip() (d time.Duration, err error) {
	failed := s.raw.Control(func(fd uintptr) {
		var info *unix.TCPInfo
		if info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP,
			unix.TCP_INFO); err == nil {
			d = time.Duration(info.Rtt) * time.Microsecond
		}
		err = os.NewSyscallError("getsockopt", err)
	})
	return d, errors.Join(err, failed)
}

// await waits until so much has come, or the kernel says for another reason that there is
// something to read, or the deadline.
func (s tcpSocket) await(bytes int) {
	asked := false
	_ = s.raw.Read(func(fd uintptr) bool { // whatever ends it, the read that follows tells
		if asked {
			return true
		}
		asked = true
		n, err := unix.IoctlGetInt(int(fd), unix.TIOCINQ)
		return err != nil || n >= bytes
	})
}

// readNow reads what is there, without waiting: nothing, if that is nothing. A deadline that is
// over is an error, as for Read.
func (s tcpSocket) readNow(p []byte) (n int, err error) {
	if len(p) == 0 {
		return 0, nil
	}
	waited := s.raw.Read(func(fd uintptr) bool {
		n, err = syscall.Read(int(fd), p)
		return true
	})
	switch {
	case waited != nil:
		return 0, waited
	case errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.EINTR):
		return 0, nil
	case err != nil:
		return 0, os.NewSyscallError("read", err)
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}
