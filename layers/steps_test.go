package layers

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"snapfs/squashfs"
)

// guarded is who may do what with an inode of the host.
type guarded struct {
	mode, uid, gid uint32
	groupObj       uint32 // permissions of the owning group: with an ACL the mode has the mask in their place
}

const noACL = ^uint32(0)

// guards reads all inodes below directories, by their numbers.
func guards(t *testing.T, dirs ...string) map[uint64]guarded {
	t.Helper()
	all := map[uint64]guarded{}
	for _, dir := range dirs {
		err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || path == dir {
				return err
			}
			var st unix.Stat_t
			if err := unix.Lstat(path, &st); err != nil {
				return err
			}
			g := guarded{st.Mode, st.Uid, st.Gid, noACL}
			acl := make([]byte, 256)
			if n, err := unix.Lgetxattr(path, "system.posix_acl_access", acl); err == nil {
				for e := acl[4:n]; len(e) >= 8; e = e[8:] {
					if e[0] == 4 { // ACL_GROUP_OBJ
						g.groupObj = uint32(e[2])
					}
				}
			}
			all[st.Ino] = g
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// looser says how a state on the way to another gives somebody more than that.
func (g guarded) looser(end guarded) string {
	group := g.mode >> 3 & 7
	if g.groupObj != noACL {
		group &= g.groupObj
	}
	allowed := end.mode >> 3 & 7
	if end.groupObj != noACL {
		allowed &= end.groupObj
	}
	switch link := g.mode&unix.S_IFMT == unix.S_IFLNK; {
	case g.uid != end.uid && (link || g.mode&0o7777 != 0):
		return "another owner"
	case link:
		return ""
	case g.gid != end.gid && g.mode&0o2070 != 0:
		return "another group"
	case g.mode&0o7707&^end.mode != 0:
		return "more permissions"
	case group&^allowed != 0:
		return "more permissions of the group"
	}
	return ""
}

// watched runs an operation, looking at the host's tree after each of its steps, and fails for states which a crash
// would leave that let somebody do what the result does not.
func (r *rig) watched(what string, op func() error) {
	r.t.Helper()
	before := guards(r.t, r.upper(), r.work())
	type sight struct {
		after string
		seen  map[uint64]guarded
	}
	var sights []sight
	steps = func(step string) { sights = append(sights, sight{step, guards(r.t, r.upper(), r.work())}) }
	err := op()
	steps = nil
	if err != nil {
		r.t.Errorf("%s: %v", what, err)
		return
	}
	if len(sights) == 0 {
		r.t.Errorf("%s: no steps", what)
	}
	end := guards(r.t, r.upper(), r.work())
	for i, s := range sights {
		for ino, g := range s.seen {
			last, ok := end[ino]
			if was, old := before[ino]; old && g == was || !ok && g.uid == 0 && g.mode&0o6077 == 0 {
				continue // it was there before, or is nobody's and goes
			}
			if how := g.looser(last); how != "" {
				r.t.Errorf("%s: after step %d (%s): mode %o of %d:%d, group %o, in the end %o of %d:%d, group %o: %s", what, i+1, s.after, g.mode, g.uid,
					g.gid, g.groupObj, last.mode, last.uid, last.gid, last.groupObj, how)
			}
		}
	}
}

const (
	accessACL = "\x02\x00\x00\x00" + "\x01\x00\x07\x00\xff\xff\xff\xff" + "\x02\x00\x06\x00\x07\x00\x00\x00" +
		"\x04\x00\x00\x00\xff\xff\xff\xff" + "\x10\x00\x07\x00\xff\xff\xff\xff" + "\x20\x00\x05\x00\xff\xff\xff\xff"
)

var stepCallers = []Caller{{UID: 0, GID: 0}, {UID: 65534, GID: 65534, Umask: 0o022}, {UID: 0, GID: 1234}, {UID: 65534, GID: 1234}, {UID: 1234}}

// TestCreateSteps: whatever step of a creation is the last one before a crash, what is left is the caller's, and no
// more permissive than the result.
func TestCreateSteps(t *testing.T) {
	old := unix.Umask(0)
	defer unix.Umask(old)
	dir := t.TempDir()
	lower := filepath.Join(dir, "lower")
	for _, err := range []error{
		os.MkdirAll(lower+"/merged", 0o777), os.MkdirAll(lower+"/covered", 0o777), os.Chown(lower+"/covered", 1, 77),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	type kind struct {
		name string
		make func(o *Overlay, c Caller, p NodeID, name string) (Entry, error)
	}
	var kinds []kind
	for _, mode := range []uint32{
		unix.S_IFREG | 0o6777, unix.S_IFREG | 0o2767, unix.S_IFREG | 0o644, unix.S_IFREG, unix.S_IFIFO | 0o4622, unix.S_IFSOCK | 0o777,
		unix.S_IFCHR | 0o666, unix.S_IFBLK | 0o6660,
	} {
		kinds = append(kinds, kind{fmt.Sprintf("mknod-%o", mode), func(o *Overlay, c Caller, p NodeID, name string) (Entry, error) {
			return o.Mknod(c, p, name, mode, unix.Mkdev(1, 3))
		}})
	}
	kinds = append(kinds, kind{"zero-device", func(o *Overlay, c Caller, p NodeID, name string) (Entry, error) {
		return o.Mknod(c, p, name, unix.S_IFCHR|0o4666, 0)
	}}, kind{"symlink", func(o *Overlay, c Caller, p NodeID, name string) (Entry, error) {
		return o.Symlink(c, p, name, "/etc/shadow")
	}}, kind{"tmpfile", func(o *Overlay, c Caller, p NodeID, name string) (Entry, error) {
		e, err := o.Tmpfile(c, p, 0o6777)
		if err != nil {
			return e, err
		}
		return o.Link(e.Node, p, name)
	}})
	for _, mode := range []uint32{0o777, 0o1777, 0o2775, 0o700} {
		kinds = append(kinds, kind{fmt.Sprintf("mkdir-%o", mode), func(o *Overlay, c Caller, p NodeID, name string) (Entry, error) {
			return o.Mkdir(c, p, name, mode)
		}})
	}
	for _, k := range kinds {
		for i := range stepCallers {
			if err := os.WriteFile(fmt.Sprintf("%s/covered/%s-%d", lower, k.name, i), nil, 0o666); err != nil {
				t.Fatal(err)
			}
		}
	}
	r := newRig(t, lower)
	for _, parent := range []string{"merged", "plain", "setgid", "acl", "setgid-acl", "covered"} {
		if parent != "merged" && parent != "covered" {
			if err := r.mkdir(parent, 0o777); err != nil {
				t.Fatal(err)
			}
		}
		e, err := r.find(parent)
		if err != nil {
			t.Fatal(err)
		}
		if parent == "acl" || parent == "setgid-acl" {
			if err := r.o.SetXattr(e.Node, xattrDefaultACL, []byte(accessACL), 0); err != nil {
				t.Fatal(err)
			}
		}
		if parent == "setgid" || parent == "setgid-acl" || parent == "covered" {
			if _, err := r.o.SetAttr(Caller{}, e.Node, SetAttr{Valid: SetGID, GID: 77}); err != nil {
				t.Fatal(err)
			}
			if _, err := r.o.SetAttr(Caller{}, e.Node, SetAttr{Valid: SetMode, Mode: 0o2777}); err != nil {
				t.Fatal(err)
			}
		}
		for _, k := range kinds {
			for i, c := range stepCallers {
				name := fmt.Sprintf("%s-%d", k.name, i)
				if parent == "covered" {
					if err := r.unlink("covered/" + name); err != nil {
						t.Fatal(err)
					}
				}
				what := fmt.Sprintf("%s by %d:%d in %s", k.name, c.UID, c.GID, parent)
				r.watched(what, func() error {
					made, err := k.make(r.o, c, e.Node, name)
					if err == nil && made.Attr.UID != c.UID {
						err = fmt.Errorf("it belongs to %d", made.Attr.UID)
					}
					return err
				})
				remove := r.unlink
				if k.name[:3] == "mkd" {
					remove = r.rmdir
				}
				if err := remove(parent + "/" + name); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// TestCopyUpSteps is TestCreateSteps for copies of what lies below.
func TestCopyUpSteps(t *testing.T) {
	lower := filepath.Join(t.TempDir(), "lower")
	if err := os.Mkdir(lower, 0o750); err != nil {
		t.Fatal(err)
	}
	old := unix.Umask(0)
	defer unix.Umask(old)
	path := func(name string) string { return filepath.Join(lower, name) }
	names := []string{"setuid", "acl", "caps", "linked", "big", "dir", "acldir", "fifo", "device", "link"}
	for _, err := range []error{
		os.Chmod(lower, 0o750),
		os.WriteFile(path("setuid"), []byte("text"), 0o644),
		os.WriteFile(path("acl"), []byte("text"), 0o644),
		os.WriteFile(path("caps"), []byte("text"), 0o644),
		os.WriteFile(path("linked"), []byte("text"), 0o644),
		os.Link(path("linked"), path("linked2")),
		os.WriteFile(path("big"), make([]byte, 2<<20), 0o644),
		os.Mkdir(path("dir"), 0o700),
		os.Mkdir(path("acldir"), 0o700),
		unix.Mkfifo(path("fifo"), 0o600),
		unix.Mknod(path("device"), unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))),
		os.Symlink("/etc/shadow", path("link")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range names {
		err := unix.Lchown(path(name), 65534, 1234)
		if name != "link" {
			err = errors.Join(err, unix.Chmod(path(name), 0o6471))
		}
		if name == "acl" || name == "acldir" {
			err = errors.Join(err, unix.Setxattr(path(name), "system.posix_acl_access", []byte(accessACL), 0), unix.Chmod(path(name), 0o2571))
		}
		if name == "caps" {
			caps := "\x00\x00\x00\x02\x00\x20\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
			err = errors.Join(err, unix.Setxattr(path(name), "security.capability", []byte(caps), 0))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	r := newRig(t, lower)
	for _, name := range names {
		before := r.attr(name)
		r.watched("times of "+name, func() error {
			return r.setattr(name, SetAttr{Valid: SetMtime, Mtime: squashfs.Time{Sec: 1e9}})
		})
		if a := r.attr(name); a.Mode != before.Mode || a.UID != before.UID || a.GID != before.GID {
			t.Errorf("%s: copied up it has mode %o of %d:%d, before %o of %d:%d", name, a.Mode, a.UID, a.GID, before.Mode, before.UID, before.GID)
		}
	}
	r.watched("write", func() error { return r.write("big", "x", 1<<20) })
}
