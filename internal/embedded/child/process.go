package child

import (
	"context"
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

// killPatience bounds the wait for processes that were stopped or killed.
const killPatience = 10 * time.Second

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
	return signal(p.PID, sig)
}

func signal(pid int, sig syscall.Signal) error {
	if err := syscall.Kill(pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("send %v to process %d: %w", sig, pid, err)
	}
	return nil
}

// signalAll sends sig to the child and to the processes that it has started.
func (p *Process) signalAll(sig syscall.Signal) error {
	if !p.Running() {
		return nil
	}
	err := signal(p.PID, sig)
	for _, pid := range childrenOf(p.PID) {
		err = errors.Join(err, signal(pid, sig))
	}
	return err
}

// Stop sends sig and waits for the end of the child, as Await does.
func (p *Process) Stop(ctx context.Context, sig syscall.Signal) error {
	if err := p.Signal(sig); err != nil {
		return err
	}
	return p.Await(ctx)
}

// Await waits for the end of the child. When ctx ends first, its cause is returned.
func (p *Process) Await(ctx context.Context) error {
	select {
	case <-p.Done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Kill ends the child and the processes that it has started as a crash would, and waits until
// they are gone.
func (p *Process) Kill() error {
	// Stopped first, so that it starts no process between the listing and the kill.
	if err := p.Signal(syscall.SIGSTOP); err != nil || !p.Running() {
		return err
	}
	children := childrenOf(p.PID)
	err := p.Signal(syscall.SIGKILL)
	for _, pid := range children {
		err = errors.Join(err, signal(pid, syscall.SIGKILL))
	}
	if err != nil {
		return err
	}
	<-p.Done
	for _, pid := range children {
		if !eventually(func() bool { return Gone(pid) }) {
			return fmt.Errorf("process %d is still there after SIGKILL", pid)
		}
	}
	return nil
}

// Pause stops the child and the processes that it has started where they are, without closing a
// connection, as a machine that hangs would. It returns when every thread has stopped.
func (p *Process) Pause() error {
	if !p.Running() {
		return errors.New("the process has ended")
	}
	if err := p.signalAll(syscall.SIGSTOP); err != nil {
		return err
	}
	for _, pid := range append(childrenOf(p.PID), p.PID) {
		if !eventually(func() bool { return stopped(pid) }) {
			return fmt.Errorf("process %d still runs after SIGSTOP", pid)
		}
	}
	return nil
}

// Resume undoes Pause.
func (p *Process) Resume() error { return p.signalAll(syscall.SIGCONT) }

func eventually(done func() bool) bool {
	for deadline := time.Now().Add(killPatience); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			return false
		}
	}
	return true
}
