package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"snapfs/internal/treewalk"
	"snapfs/internal/twin"
)

// pair is a mounted workspace, a directory of the host with the same tree, and an actor that does the same in both.
type pair struct {
	h          *home
	name       string // of the workspace
	mount, ref string
	options    []string // of mount
	actor      *twin.Actor
	seed       uint64
}

// newPair makes a workspace from a source, "" for an empty one, and a copy of the directory plain that shows what is in
// the source.
func newPair(h *home, name, source, plain string, c twin.Config, options ...string) *pair {
	h.t.Helper()
	p := &pair{h: h, name: name, mount: h.path(name), ref: h.path(name + "-plain"), options: options, seed: c.Seed}
	args := []string{"create", name}
	if strings.HasSuffix(source, ".sqsh") { // the plain copy knows no other
		p.options = append([]string{"--suid", "--dev"}, options...)
	}
	if source != "" {
		args = append(args, "--from", source)
	}
	h.ok(args...)
	h.makeDir(name)
	p.remount()
	// Both in a directory, so that operations may meet the directory above.
	shell(h.t, soon, h.tmp, `mkdir "$2"; [ -z "$1" ] || cp -a "$1/." "$2"; mkdir -p "$2/top" "$3/top"; chmod 777 "$2/top" "$3/top"`, plain, p.ref, p.mount)
	c.Plain, c.Tested, c.Reference = true, p.mount+"/top", p.ref+"/top"
	p.actor = twin.Start(h.t, c)
	return p
}

// remount mounts the workspace where it is not.
func (p *pair) remount() {
	p.h.t.Helper()
	if p.h.workspace(p.name).State != "mounted" {
		p.h.ok(append([]string{"mount", p.name, p.mount}, p.options...)...)
	}
}

// reopened does something between the actor's closing all files and opening the trees again.
func (p *pair) reopened(do func()) {
	p.h.t.Helper()
	p.actor.Detach()
	do()
	p.remount()
	p.actor.Attach()
}

// compare compares the trees, and what makes two names one file.
func (p *pair) compare() {
	p.h.t.Helper()
	p.actor.Compare()
	p.unique()
}

// unique fails the test if two names have one inode number and are not names of one file.
func (p *pair) unique() {
	p.h.t.Helper()
	first := map[uint64]treewalk.Node{}
	for _, n := range walk(p.h.t, p.mount) {
		f, there := first[n.Ino]
		if !there {
			first[n.Ino] = n
			continue
		}
		if n.Mode&unix.S_IFMT == unix.S_IFDIR || n.Group == "" || n.Group != f.Group {
			p.h.t.Fatalf("SNAPFS_SEED=%d: %s: %q and %q are inode %d both", p.seed, p.name, f.Path, n.Path, n.Ino)
		}
	}
}

// end compares, once more after a new mount.
func (p *pair) end() {
	p.h.t.Helper()
	p.compare()
	p.reopened(func() { p.h.ok("umount", p.name) })
	p.compare()
	p.actor.Stop()
}

// together has the actors of pairs do n operations each at once, and the test something else meanwhile.
func together(t *testing.T, pairs []*pair, n int, meanwhile func()) {
	t.Helper()
	var all sync.WaitGroup
	errs := make([]error, len(pairs))
	for i, p := range pairs {
		all.Go(func() {
			lost, err := p.actor.Try(n)
			if lost {
				err = fmt.Errorf("the server is gone")
			}
			errs[i] = err
		})
	}
	if meanwhile != nil {
		meanwhile()
	}
	all.Wait()
	for i, err := range errs {
		if err != nil {
			t.Fatalf("SNAPFS_SEED=%d: %s: %v", pairs[i].seed, pairs[i].name, err)
		}
	}
}

// plainTree makes a random tree in a new directory below the test's, in which nothing is newer than 2001: what comes
// back has whole seconds.
func plainTree(h *home, name string, seed uint64, steps int) string {
	h.t.Helper()
	dir := h.makeDir(name + "/top")
	maker := twin.Start(h.t, twin.Config{Tested: dir, Seed: seed})
	maker.Steps(steps)
	maker.Stop()
	shell(h.t, soon, h.path(name), `find . -depth -exec touch -h -d @1000000000 {} +; chmod 777 top; chown 0:0 top`)
	return h.path(name)
}

// newRand is a source of randomness for what a test does besides its actors.
func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 4)) }

// transports are those that a mount can have here, as options of mount.
func transports(t *testing.T) []string {
	t.Helper()
	if shell(t, soon, "/", `cat /sys/module/fuse/parameters/enable_uring 2>/dev/null || true`) == "Y\n" {
		return []string{"dev", "uring"}
	}
	return []string{"dev"}
}

// rounds is how often a random test does something: seldom for a commit, more often in a hunt.
func rounds(usual, hunting int) int {
	if long || os.Getenv("SNAPFS_HUNT") != "" {
		return hunting
	}
	return usual
}
