package peer

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxIdle is how many threads of Threads wait for work.
const maxIdle = 16

// ErrRights says that this process cannot take the rights of another user.
var ErrRights = errors.New("the daemon has no privilege to act as another user")

// Do runs fn with the rights of the user, and waits for it; for nil, as this process. What fn leaves running has the
// rights of this process.
func (u *User) Do(fn func() error) error {
	t := u.Threads()
	defer t.Close()
	return t.Do(fn)
}

// Threads are threads that have the rights of a user. Safe for concurrent use. Close ends those that wait.
type Threads struct {
	user *User
	idle chan *thread
}

// Threads makes the threads of a user. For a nil user they are those of this process.
func (u *User) Threads() *Threads { return &Threads{user: u, idle: make(chan *thread, maxIdle)} }

// thread is one that has the rights of a user.
type thread struct {
	work chan func() error
	done chan error
}

// Do runs fn with the rights of the user, and waits for it. A nil *Threads runs it as this process.
func (t *Threads) Do(fn func() error) error {
	if t == nil || t.user == nil {
		return fn()
	}
	var th *thread
	select {
	case th = <-t.idle:
	default:
		var err error
		if th, err = t.user.start(); err != nil {
			return err
		}
	}
	th.work <- fn
	err := <-th.done
	select {
	case t.idle <- th:
	default:
		close(th.work)
	}
	return err
}

// Close ends the threads that wait. It is called once, after the last Do has returned.
func (t *Threads) Close() {
	if t == nil {
		return
	}
	close(t.idle)
	for th := range t.idle {
		close(th.work)
	}
}

// start makes a thread that ends when its work is closed.
func (u *User) start() (*thread, error) {
	t := &thread{work: make(chan func() error), done: make(chan error)}
	ready := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with the goroutine, and never gets its rights back
		err := u.assume()
		ready <- err
		if err != nil {
			return
		}
		for fn := range t.work {
			t.done <- fn()
		}
	}()
	if err := <-ready; err != nil {
		return nil, err
	}
	return t, nil
}

// assume gives the calling thread the user's rights to files, and takes all others. With an error it has some of them.
func (u *User) assume() error {
	var first *uint32
	if len(u.Groups) > 0 {
		first = &u.Groups[0]
	}
	// Not unix.Setgroups, which changes all threads.
	_, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(u.Groups)), uintptr(unsafe.Pointer(first)), 0)
	if errno != 0 {
		return fmt.Errorf("%w (setgroups): %w", ErrRights, errno)
	}
	if err := setfs("setfsgid", unix.SetfsgidRetGid, u.GID); err != nil {
		return err
	}
	if err := setfs("setfsuid", unix.SetfsuidRetUid, u.UID); err != nil {
		return err
	}
	var none [2]unix.CapUserData
	if err := unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &none[0]); err != nil {
		return fmt.Errorf("giving up capabilities: %w", err)
	}
	return nil
}

// setfs calls setfsuid(2) or setfsgid(2), which tell nothing but what was set before.
func setfs(name string, set func(int) (int, error), id uint32) error {
	if _, err := set(int(id)); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if now, err := set(-1); err != nil || uint32(now) != id {
		return fmt.Errorf("%w (%s)", ErrRights, name)
	}
	return nil
}
