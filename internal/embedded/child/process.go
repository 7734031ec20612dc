package child

import (
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// Process is a running child. Its goroutine starts it, waits for it and ends with it.
type Process struct {
	PID  int
	Done chan struct{} // closed when the child has been reaped
	Err  error         // how it ended; read only after Done
}

// Start starts cmd and reaps it. Where the system offers it, the child gets onParentDeath when
// this process dies. The command needs SysProcAttr, as from Account.Command. Start does not wait
// for anything but the start itself.
func Start(cmd *exec.Cmd, onParentDeath syscall.Signal) (*Process, error) {
	// Children of the child inherit its output, and may outlive it by a moment.
	cmd.WaitDelay = 5 * time.Second
	signalOnParentDeath(cmd.SysProcAttr, onParentDeath)

	p := &Process{Done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		// The signal on the parent's death is really one on the death of the starting thread, so
		// the thread has to live as long as the child.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := cmd.Start(); err != nil {
			started <- err
			return
		}
		p.PID = cmd.Process.Pid
		started <- nil
		p.Err = cmd.Wait()
		close(p.Done)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	return p, nil
}

// End is how the child ended, exit status 0 included, for an error message. Call it after Done.
func (p *Process) End() error {
	if p.Err == nil {
		return errors.New("exit status 0")
	}
	return p.Err
}

// Running reports whether the child has not been reaped yet.
func (p *Process) Running() bool {
	select {
	case <-p.Done:
		return false
	default:
		return true
	}
}

// Signal sends sig unless the child has ended.
func (p *Process) Signal(sig syscall.Signal) error {
	if !p.Running() {
		return nil
	}
	if err := syscall.Kill(p.PID, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("send %v to process %d: %w", sig, p.PID, err)
	}
	return nil
}
