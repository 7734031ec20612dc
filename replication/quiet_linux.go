package replication

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// lowWater is the receive low-water mark of a socket: from how many bytes on the kernel says that there is something to read.
type lowWater struct{ raw syscall.RawConn }

// lowWaterOf tells whether a connection has one. Unix sockets tell of every byte whatever it is.
func lowWaterOf(conn net.Conn) (lowWater, bool) {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return lowWater{}, false
	}
	raw, err := tcp.SyscallConn()
	return lowWater{raw}, err == nil
}

func (l lowWater) set(bytes int) error {
	var failed error
	err := l.raw.Control(func(fd uintptr) {
		failed = os.NewSyscallError("setsockopt", syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVLOWAT, bytes))
	})
	return errors.Join(err, failed)
}

// unread is how many bytes the kernel has for us.
func (l lowWater) unread() (bytes int, err error) {
	failed := l.raw.Control(func(fd uintptr) {
		bytes, err = unix.IoctlGetInt(int(fd), unix.TIOCINQ)
		err = os.NewSyscallError("ioctl", err)
	})
	return bytes, errors.Join(failed, err)
}

// readNow reads what is there, without waiting: nothing, if that is nothing. A deadline that is over is an error, as for Read.
func (l lowWater) readNow(p []byte) (n int, err error) {
	if len(p) == 0 {
		return 0, nil
	}
	waited := l.raw.Read(func(fd uintptr) bool {
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
