package posix

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Outcome is how a case went.
type Outcome struct {
	Name   string
	Failed string // the first line that went wrong, and how; empty if none did
}

// Prepare runs the first halves of all cases below dir, Check the second halves.
func Prepare(cases []Case, dir string) []Outcome {
	return run(cases, dir, func(m *machine, c Case) string {
		if err := os.Mkdir(m.dir, 0o755); err != nil {
			return err.Error()
		}
		return m.lines(c.Prepare)
	})
}

// Check runs the second halves of all cases below dir, where Prepare has been.
func Check(cases []Case, dir string) []Outcome {
	return run(cases, dir, func(m *machine, c Case) string { return m.lines(c.Then) })
}

func run(cases []Case, dir string, do func(m *machine, c Case) string) []Outcome {
	// The file system user belongs to the thread; it ends with this goroutine.
	runtime.LockOSThread()
	unix.Umask(0)
	var all []Outcome
	for _, c := range cases {
		m := &machine{dir: filepath.Join(dir, c.Dir), files: map[string]int{}, marks: map[string]unix.Stat_t{}}
		all = append(all, Outcome{c.Name, do(m, c)})
		for _, fd := range m.files {
			unix.Close(fd)
		}
		unix.Umask(0)
	}
	return all
}

// machine runs the commands of one case.
type machine struct {
	dir   string
	files map[string]int // open files by name
	marks map[string]unix.Stat_t
	// said is what a command has to say; empty stands for success.
	said string
}

// lines runs commands until one does not do what is expected.
func (m *machine) lines(lines []Line) string {
	if err := os.Chdir(m.dir); err != nil {
		return err.Error()
	}
	for _, l := range lines {
		got, err := m.line(l)
		if err != nil {
			return l.Where + ": " + err.Error()
		}
		if !slices.Contains(l.Want, got) {
			return l.Where + ": got " + got
		}
	}
	return ""
}

// line runs one command as its user.
func (m *machine) line(l Line) (string, error) {
	f, ok := commands[l.Args[0]]
	if !ok {
		return "", errors.New("no such command")
	}
	m.said = ""
	var err error
	if uerr := m.as(l, func() { err = f(m, append(slices.Clone(l.Args[1:]), "", "", "", "")) }); uerr != nil {
		return "", uerr
	}
	var errno unix.Errno
	switch {
	case errors.As(err, &errno):
		return unix.ErrnoName(errno), nil
	case err != nil:
		return "", err
	case m.said == "":
		return "0", nil
	}
	return m.said, nil
}

// as runs a command as its user. A suite that is not run by root has one user, in place of root.
func (m *machine) as(l Line, do func()) error {
	if os.Geteuid() != 0 {
		if l.UID != 0 || l.GID != 0 || len(l.Groups) > 0 {
			return unix.EPERM
		}
		do()
		return nil
	}
	if err := unix.Setgroups(l.Groups); err != nil {
		return err
	}
	if err := errors.Join(unix.Setfsgid(l.GID), unix.Setfsuid(l.UID)); err != nil {
		return err
	}
	do()
	return errors.Join(unix.Setfsuid(0), unix.Setfsgid(0), unix.Setgroups(nil))
}

// say is the answer of a command.
func (m *machine) say(f string, args ...any) error {
	m.said = fmt.Sprintf(f, args...)
	return nil
}

// file is an open file.
func (m *machine) file(name string) int {
	if fd, ok := m.files[name]; ok {
		return fd
	}
	return -1
}

// num is a number: octal with a leading 0.
func num(s string) int {
	n, err := strconv.ParseInt(s, 0, 64)
	if err != nil {
		return -1
	}
	return int(n)
}

// mode is a number with a default.
func mode(s string, otherwise uint32) uint32 {
	if s == "" {
		return otherwise
	}
	return uint32(num(s))
}

// fields says some fields of a stat, separated by commas.
func (m *machine) fields(st *unix.Stat_t, names string) error {
	var all []string
	for _, name := range strings.Split(names, ",") {
		switch name {
		case "mode":
			all = append(all, fmt.Sprintf("%04o", st.Mode&0o7777))
		case "type":
			all = append(all, map[uint32]string{
				unix.S_IFREG: "regular", unix.S_IFDIR: "dir", unix.S_IFIFO: "fifo", unix.S_IFBLK: "block", unix.S_IFCHR: "char",
				unix.S_IFSOCK: "socket", unix.S_IFLNK: "symlink",
			}[st.Mode&unix.S_IFMT])
		case "uid":
			all = append(all, fmt.Sprint(st.Uid))
		case "gid":
			all = append(all, fmt.Sprint(st.Gid))
		case "size":
			all = append(all, fmt.Sprint(st.Size))
		case "nlink":
			all = append(all, fmt.Sprint(st.Nlink))
		case "rdev":
			all = append(all, fmt.Sprintf("%d:%d", unix.Major(st.Rdev), unix.Minor(st.Rdev)))
		case "mtime":
			all = append(all, fmt.Sprintf("%d.%d", st.Mtim.Sec, st.Mtim.Nsec))
		case "atime":
			all = append(all, fmt.Sprintf("%d.%d", st.Atim.Sec, st.Atim.Nsec))
		default:
			return fmt.Errorf("no such field: %s", name)
		}
	}
	return m.say("%s", strings.Join(all, ","))
}

// flags are those of open.
func flags(words string) (int, error) {
	n := unix.O_CLOEXEC
	for _, w := range strings.Split(words, "|") {
		f, ok := map[string]int{
			"O_RDONLY": 0, "O_WRONLY": unix.O_WRONLY, "O_RDWR": unix.O_RDWR, "O_CREAT": unix.O_CREAT, "O_EXCL": unix.O_EXCL,
			"O_TRUNC": unix.O_TRUNC, "O_APPEND": unix.O_APPEND, "O_DIRECTORY": unix.O_DIRECTORY, "O_NOFOLLOW": unix.O_NOFOLLOW,
			"O_NONBLOCK": unix.O_NONBLOCK, "O_TMPFILE": unix.O_TMPFILE, "O_PATH": unix.O_PATH, "O_NOATIME": unix.O_NOATIME,
			"O_SYNC": unix.O_SYNC,
		}[w]
		if !ok {
			return 0, fmt.Errorf("no such flag: %s", w)
		}
		n |= f
	}
	return n, nil
}

// moved says which of the times of a file are others than at its mark.
func (m *machine) moved(name string) error {
	var st unix.Stat_t
	if err := unix.Lstat(name, &st); err != nil {
		return err
	}
	then, ok := m.marks[name]
	if !ok {
		return errors.New("not marked")
	}
	said := ""
	if st.Mtim != then.Mtim {
		said += "m"
	}
	if st.Ctim != then.Ctim {
		said += "c"
	}
	if said == "" {
		said = "-"
	}
	return m.say("%s", said)
}

// mark notes the times of files and waits until later times are others.
func (m *machine) mark(names []string) error {
	for _, name := range names {
		if name == "" {
			continue
		}
		var st unix.Stat_t
		if err := unix.Lstat(name, &st); err != nil {
			return err
		}
		m.marks[name] = st
	}
	time.Sleep(15 * time.Millisecond) // a tick of the kernel's clock is at most 10
	return nil
}
