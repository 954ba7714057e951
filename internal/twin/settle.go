package twin

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/internal/treewalk"
)

// walk lists one of the trees; times that are not old are zero.
func (t *tree) walk() ([]treewalk.Node, error) {
	nodes, err := treewalk.Walk(t.dir)
	for i := range nodes {
		if n := &nodes[i]; n.Mtime.Sec > old {
			n.Mtime = treewalk.Time{}
		}
	}
	return nodes, err
}

var compared = treewalk.Options{IgnoreExtents: true, IgnoreRoot: true}

// compare lists the differences of the trees.
func (a *actor) compare(r *answer) error {
	var walks [2][]treewalk.Node
	for i, t := range a.trees {
		var err error
		if walks[i], err = t.walk(); err != nil {
			return err
		}
	}
	r.Differences = treewalk.Diff(walks[0], walks[1], compared)
	if len(r.Differences) > 20 {
		r.Differences = r.Differences[:20]
	}
	if len(r.Differences) > 0 {
		r.History = a.history
	}
	return nil
}

// torn are the kinds that a kill may leave half done, and that may change one file: they take several requests, or
// clear setuid first, or are a call to the host that ends between two pages when its process is killed.
var torn = []string{
	"put", "append", "open", "write", "pwrite", "copyrange", "fallocate", "truncate", "ftruncate", "chown", "fchown",
}

// settle is called when the server was killed during the last operation and is there again: it was done or it was not,
// and afterwards both trees are where the tested one is. One that is torn may be half done. A tree of which a part was
// removed is removed in both. A copy-up may have moved a directory's time: as with the kernel's overlayfs, it is put
// right just afterwards.
func (a *actor) settle(r *answer) error {
	a.lost = false
	defer func() { // of what is open in the reference alone
		for slot := range slots {
			for _, t := range a.trees {
				t.drop(slot)
			}
		}
	}()
	if err := a.touchDirs(); err != nil {
		return err
	}
	if err := a.compare(r); err != nil || len(r.Differences) == 0 {
		return err
	}
	differences := append([]string{"not as before " + a.last.String() + ":"}, r.Differences...)
	before, err := snap(a.trees[1])
	if err != nil {
		return err
	}
	a.trees[1].do(a.last)
	if err := a.compare(r); err != nil || len(r.Differences) == 0 {
		return err
	}
	differences = append(append(differences, "nor as after it:"), r.Differences...)
	switch {
	case a.last.Kind == "rmtree":
		for _, t := range a.trees {
			t.do(a.last)
		}
	case slices.Contains(torn, a.last.Kind):
		halves, err := a.follow(before)
		if err != nil {
			return err
		}
		if len(halves) > 0 {
			r.Differences = append(append(differences, "nor between:"), halves...)
			return nil
		}
	}
	if err := a.compare(r); err != nil || len(r.Differences) == 0 {
		return err
	}
	r.Differences = differences
	return nil
}

// touchDirs gives the reference's directories the time now that have it in the tested tree.
func (a *actor) touchDirs() error {
	moved := map[string]bool{}
	nodes, err := a.trees[0].walk()
	if err != nil {
		return err
	}
	for _, n := range nodes {
		moved[n.Path] = n.Mode&unix.S_IFMT == unix.S_IFDIR && n.Mtime == treewalk.Time{}
	}
	if nodes, err = a.trees[1].walk(); err != nil {
		return err
	}
	for _, n := range nodes {
		if n.Mode&unix.S_IFMT != unix.S_IFDIR || n.Mtime == (treewalk.Time{}) || !moved[n.Path] {
			continue
		}
		if err := os.Chtimes(filepath.Join(a.trees[1].dir, n.Path), time.Time{}, time.Now()); err != nil {
			return err
		}
	}
	return nil
}

// state is a tree with the contents of its files, by path.
type state struct {
	nodes map[string]treewalk.Node
	data  map[string][]byte
}

func snap(t *tree) (state, error) {
	s := state{map[string]treewalk.Node{}, map[string][]byte{}}
	nodes, err := t.walk()
	if err != nil {
		return s, err
	}
	for _, n := range nodes {
		s.nodes[n.Path] = n
		if n.Mode&unix.S_IFMT == unix.S_IFREG {
			if s.data[n.Path], err = os.ReadFile(filepath.Join(t.dir, n.Path)); err != nil {
				return s, err
			}
		}
	}
	return s, nil
}

// follow brings the reference to where the tested tree is, wherever that is between before and how the reference is
// now. It lists what is not between.
func (a *actor) follow(before state) ([]string, error) {
	is, err := snap(a.trees[0])
	if err != nil {
		return nil, err
	}
	after, err := snap(a.trees[1])
	if err != nil {
		return nil, err
	}
	paths := map[string]bool{}
	for _, s := range []state{is, before, after} {
		for p := range s.nodes {
			paths[p] = true
		}
	}
	delete(paths, ".")
	var wrong []string
	// What is in a directory first: it changes the directory's times.
	for _, p := range slices.Backward(slices.Sorted(maps.Keys(paths))) {
		i, isThere := is.nodes[p]
		b, wasThere := before.nodes[p]
		n, remains := after.nodes[p]
		name := filepath.Join(a.trees[1].dir, p)
		switch {
		case !isThere && !wasThere: // not made yet
			if err := os.Remove(name); err != nil {
				return nil, err
			}
			continue
		case !isThere || !remains:
			wrong = append(wrong, fmt.Sprintf("%q: there %v, was there %v, would be there %v", p, isThere, wasThere, remains))
			continue
		case !wasThere:
			b = n
		}
		wrong = append(wrong, between(i, b, n)...)
		if !tear(is.data[p], before.data[p], after.data[p]) {
			wrong = append(wrong, fmt.Sprintf(
				"%q: contents of %d bytes are no beginning of %d new ones, with %d old ones or none behind it",
				p, len(is.data[p]), len(after.data[p]), len(before.data[p])))
		}
		if err := copyNode(name, i, is.data[p]); err != nil {
			return nil, err
		}
	}
	return wrong, nil
}

// between lists what of a node but its contents is neither as it was nor as it becomes.
func between(is, was, becomes treewalk.Node) []string {
	half := becomes
	half.Size, half.Hash = is.Size, is.Hash
	if is.Mode == was.Mode {
		half.Mode = was.Mode
	}
	if is.UID == was.UID && is.GID == was.GID {
		half.UID, half.GID = was.UID, was.GID
	}
	if maps.Equal(is.Xattrs, was.Xattrs) {
		half.Xattrs = was.Xattrs
	}
	if is.Mtime == was.Mtime {
		half.Mtime = was.Mtime
	}
	return treewalk.Diff([]treewalk.Node{is}, []treewalk.Node{half}, compared)
}

// tear reports whether contents are a beginning of new ones with the old ones behind it, or with nothing where those
// were cut off.
func tear(is, was, becomes []byte) bool {
	n := 0
	for n < min(len(is), len(becomes)) && is[n] == becomes[n] {
		n++
	}
	return n == len(is) || bytes.Equal(is[n:], was[min(n, len(was)):])
}

// copyNode gives a file or a directory the contents, owner, mode and time of n.
func copyNode(name string, n treewalk.Node, data []byte) error {
	switch n.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		if err := os.WriteFile(name, data, 0); err != nil {
			return err
		}
		if err := unix.Chown(name, int(n.UID), int(n.GID)); err != nil {
			return err
		}
		if err := unix.Chmod(name, n.Mode&^unix.S_IFMT); err != nil {
			return err
		}
	case unix.S_IFDIR:
	default:
		return nil
	}
	if n.Mtime == (treewalk.Time{}) {
		return nil
	}
	at := unix.Timespec{Sec: n.Mtime.Sec, Nsec: n.Mtime.Nsec}
	return unix.UtimesNanoAt(unix.AT_FDCWD, name, []unix.Timespec{at, at}, unix.AT_SYMLINK_NOFOLLOW)
}
