package holder

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"snapfs/internal/processes"
)

// DeathName is the name of the file in a home that tells the next daemon of the death of the last one, if that had
// nothing for which it would have been started again.
const DeathName = "daemon.died"

// words says how a process ended.
func words(s unix.WaitStatus) string {
	switch {
	case s.Exited():
		return fmt.Sprintf("exit status %d", s.ExitStatus())
	case s.Signaled() && s.CoreDump():
		return "killed by " + unix.SignalName(s.Signal()) + ", core dumped"
	case s.Signaled():
		return "killed by " + unix.SignalName(s.Signal())
	}
	return ""
}

// faults are the signals that the kernel sends to a process for what it does, and that of abort(3).
var faults = []unix.Signal{
	unix.SIGABRT, unix.SIGBUS, unix.SIGFPE, unix.SIGILL, unix.SIGSEGV, unix.SIGSYS, unix.SIGTRAP,
}

// ByFault reports whether the process died by itself: by a panic, an error or a fault. False if that is not known, and
// for other signals, which somebody else has sent: SIGKILL too, as the kernel sends it for want of memory to who has the
// most, whoever wanted more.
func (d Death) ByFault() bool {
	how, _, _ := strings.Cut(d.Reason, ",")
	name, killed := strings.CutPrefix(how, "killed by ")
	if !killed {
		return strings.HasPrefix(how, "exit status ") && how != "exit status 0"
	}
	return slices.Contains(faults, unix.SignalNum(name))
}

// killed reports whether SIGKILL ended the process, which is nothing that it has done itself.
func (d Death) killed() bool {
	return d.Reason == stuck || d.Reason == killedReason || d.Reason == killedReason+stuckToo
}

const killedReason = "killed by SIGKILL"

// reapWait is how long fateOf waits for the parent of a process to take note of its end.
const reapWait = 20 * time.Millisecond

// fateOf says how a process ended that is no child of this one; "" if the kernel does not tell.
func fateOf(pid, pidfd int) string {
	for end := time.Now().Add(reapWait); ; time.Sleep(time.Millisecond) {
		if !ended(pidfd) {
			return stuckFate(pid)
		}
		status, ok := exitInfo(pidfd)
		if !ok {
			status, ok = zombie(pid)
		}
		if ok {
			return words(status)
		}
		if time.Now().After(end) {
			return ""
		}
	}
}

// stuckFate says how a process ended that has threads which have not ended.
func stuckFate(pid int) string {
	if status, ok := zombie(pid); ok {
		return words(status) + stuckToo
	}
	return stuck
}

// pidfdInfo is struct pidfd_info of linux/pidfd.h, as of Linux 6.13.
type pidfdInfo struct {
	mask, cgroup uint64
	pid, tgid    uint32
	ppid         uint32
	ids          [8]uint32
	exitCode     int32
}

const (
	pidfdGetInfo  = 0xc040ff0b // _IOWR(0xff, 11, struct pidfd_info)
	pidfdInfoExit = 1 << 3     // since Linux 6.15, once the process was waited for
)

// exitInfo asks the kernel how the process of a pidfd ended.
func exitInfo(pidfd int) (unix.WaitStatus, bool) {
	info := pidfdInfo{mask: pidfdInfoExit}
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(pidfd), pidfdGetInfo, uintptr(unsafe.Pointer(&info)))
	if errno != 0 || info.mask&pidfdInfoExit == 0 {
		return 0, false
	}
	return unix.WaitStatus(info.exitCode), true
}

// zombie reads how a process ended that nobody has waited for yet.
func zombie(pid int) (unix.WaitStatus, bool) {
	s, _ := processes.StatOfProcess(pid)
	return unix.WaitStatus(s.Exit), s.State == 'Z'
}

// writeDeaths leaves word for the next daemon.
func writeDeaths(home int, deaths []Death) {
	text, err := json.Marshal(deaths)
	if err != nil {
		return
	}
	fd, err := unix.Openat(home, DeathName+".tmp", unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return // a full disk, or the home is gone: the log says no more than that it begins
	}
	n, err := unix.Write(fd, text)
	if closeErr := unix.Close(fd); err == nil && closeErr == nil && n == len(text) {
		err = unix.Renameat(home, DeathName+".tmp", home, DeathName)
	}
	if err != nil {
		_ = unix.Unlinkat(home, DeathName+".tmp", 0) // as above
	}
}

// ReadDeaths reads what a holder has left in a home when it ended with the daemon.
func ReadDeaths(dir string) ([]Death, error) {
	path := filepath.Join(dir, DeathName)
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	text := make([]byte, maxMessage)
	n, err := f.Read(text)
	var deaths []Death
	if err == nil {
		err = json.Unmarshal(text[:n], &deaths)
	}
	if len(deaths) > maxDeaths {
		deaths = deaths[len(deaths)-maxDeaths:]
	}
	return deaths, err
}

// RemoveDeaths removes what ReadDeaths reads, once it is known to others.
func RemoveDeaths(dir string) error {
	err := os.Remove(filepath.Join(dir, DeathName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
