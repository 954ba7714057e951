package twin

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// childEnv tells the test binary to be an actor.
	childEnv = "SNAPFS_TWIN"
	// strictEnv has an actor look after each operation at all that it may have changed, to find the one that went wrong.
	// It is off by default, because looking refreshes what the kernel has cached.
	strictEnv = "SNAPFS_TWIN_STRICT"
)

// command and answer are what goes over the pipes.
type command struct {
	Do     string
	N      int
	Config Config
}

type answer struct {
	Error string
	// Done counts the operations of this command. Lost says that the last one found no server.
	Done int
	Lost bool
	// Differences are of results or of trees, History the operations before them.
	Differences, History []string
}

// Child turns this process into an actor if Start started it, and else does nothing. Call it first in TestMain.
func Child() {
	if os.Getenv(childEnv) == "" {
		return
	}
	runtime.LockOSThread() // the file system user belongs to the thread
	unix.Umask(0)
	// A user without privilege does everything as itself.
	if err := unix.Setgroups(nil); err != nil && !errors.Is(err, unix.EPERM) {
		fmt.Fprintln(os.Stderr, "twin:", err)
		os.Exit(1)
	}
	a := actor{strict: os.Getenv(strictEnv) != ""}
	in := bufio.NewScanner(os.Stdin)
	out := json.NewEncoder(os.Stdout)
	for in.Scan() {
		var c command
		var r answer
		err := json.Unmarshal(in.Bytes(), &c)
		if err == nil {
			err = a.obey(c, &r)
		}
		if err != nil {
			r.Error = err.Error()
		}
		if err := out.Encode(r); err != nil {
			break // the test is gone
		}
	}
	os.Exit(0)
}

// actor does the operations.
type actor struct {
	rng     *rand.Rand
	trees   []*tree // the one under test and the reference, or one alone
	history []string
	last    Op
	strict  bool
	lost    bool // the last operation found no server, and the reference is as it was before it
	config  Config
}

func (a *actor) obey(c command, r *answer) error {
	switch c.Do {
	case "start":
		a.config = c.Config
		a.strict = a.strict || c.Config.Privileges
		a.rng = rand.New(rand.NewPCG(c.Config.Seed, 2))
		a.trees = []*tree{{dir: c.Config.Tested}}
		if c.Config.Reference != "" {
			a.trees = append(a.trees, &tree{dir: c.Config.Reference, reference: true})
		}
		return a.attach()
	case "attach":
		return a.attach()
	case "detach":
		a.detach()
	case "steps":
		for r.Done = 0; r.Done < c.N && len(r.Differences) == 0 && !r.Lost; r.Done++ {
			a.step(r)
		}
	case "compare":
		return a.compare(r)
	case "settle":
		return a.settle(r)
	default:
		return fmt.Errorf("no such command: %q", c.Do)
	}
	if len(r.Differences) > 0 {
		r.History = a.history
	}
	return nil
}

func (a *actor) attach() error {
	for _, t := range a.trees {
		if a.lost && t.reference {
			continue // see detach
		}
		if err := t.attach(); err != nil {
			return err
		}
	}
	return nil
}

// detach closes both trees, so that they can be unmounted. A reference that is to do the last operation stays as it is:
// it may need a file that is open there.
func (a *actor) detach() {
	for _, t := range a.trees {
		if !a.lost || !t.reference {
			t.detach()
		}
	}
}

// step does one operation in the trees.
func (a *actor) step(r *answer) {
	if a.config.Privileges {
		a.last = privilegeOp(a.rng)
	} else {
		a.last = random(a.rng)
	}
	if a.config.AsRoot {
		a.last.UID = 0
	}
	if a.config.Whole && a.last.Kind == "mmap" {
		a.last.Kind = "fsync"
	}
	switch {
	case a.config.Plain && a.last.Kind == "write" && a.trees[0].fifo(a.last.Slot):
		a.last.Kind = "fstat"
	case a.config.Plain && slices.Contains([]string{"put", "append"}, a.last.Kind) && a.trees[0].fifoAt(a.last.A):
		a.last.Kind = "stat"
	case a.config.Stacked && slices.Contains(linking, a.last.Kind):
		a.last.Kind = "stat"
	case a.config.Stacked && a.last.Kind == "access":
		a.last.N &^= unix.X_OK // all that root may lack
	}
	got := a.trees[0].do(a.last)
	a.history = append(a.history, a.last.String()+": "+got)
	if len(a.history) > 400 {
		a.history = a.history[200:]
	}
	errno, _, _ := strings.Cut(got, " ")
	if slices.Contains(goneErrors, errno) && a.gone() {
		a.lost, r.Lost = true, true
		return
	}
	if len(a.trees) < 2 {
		return
	}
	want := a.trees[1].do(a.last)
	if a.strict {
		got += a.trees[0].touched(a.last)
		want += a.trees[1].touched(a.last)
	}
	if got != want && a.gone() {
		r.Lost = true
		return
	}
	if got != want {
		r.Differences = []string{fmt.Sprintf("%s: got %.500q, the reference %.500q", a.last, got, want)}
	}
}

// linking are the kinds that give a file a further name.
var linking = []string{"link", "linkfollow", "linkopen"}

// goneErrors are what a request gives whose server is killed; a page that cannot be read is always EIO.
var goneErrors = []string{"ENOTCONN", "ECONNABORTED", "ECANCELED", "EINTR", "EIO"}

// dying is how long the kernel may take to end the connection of a server that is killed.
const dying = 20 * time.Second

// gone reports whether the tested tree has lost its server, which statfs always asks. Over io_uring, requests are
// cancelled one by one from the moment that the server dies until its connection ends.
func (a *actor) gone() bool {
	var st unix.Statfs_t
	for since := time.Now(); ; time.Sleep(time.Millisecond) {
		err := unix.Fstatfs(a.trees[0].root, &st)
		if !errors.Is(err, unix.ECANCELED) || time.Since(since) > dying {
			return errors.Is(err, unix.ENOTCONN) || errors.Is(err, unix.ECONNABORTED)
		}
	}
}
