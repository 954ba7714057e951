package twin

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// Op is one operation. What the numbers mean depends on the kind.
type Op struct {
	Kind  string
	UID   int    // who does it; the group is the same
	A, B  string // paths below the tree
	Slot  int    // an open file
	Other int    // another one
	N, M  int64
	Data  string
}

func (o Op) String() string {
	return fmt.Sprintf("%s uid=%d %.80q %.80q slot=%d,%d n=%d m=%d %.20q",
		o.Kind, o.UID, o.A, o.B, o.Slot, o.Other, o.N, o.M, o.Data)
}

// slots is how many files a tree holds open.
const slots = 6

// action is a kind of operation, how often it comes, and how it is done. It gives what it has read.
type action struct {
	weight int
	do     func(t *tree, o Op) (string, error)
}

// actions are all kinds.
var actions = map[string]action{
	"mkdir": {20, mkdir}, "rmdir": {6, rmdir}, "unlink": {10, unlink}, "rmtree": {1, rmtree},
	"rename": {16, rename(0)}, "noreplace": {4, rename(1)}, "exchange": {7, rename(2)}, "bothflags": {1, rename(3)},
	"link": {8, link}, "linkfollow": {2, linkFollow}, "symlink": {4, symlink}, "mknod": {5, mknod},
	"linkopen": {3, linkOpen},
	"open":     {16, open}, "tmpfile": {2, tmpfile}, "close": {5, closeSlot},
	"write": {12, write}, "pwrite": {10, pwrite}, "pread": {8, pread}, "ftruncate": {4, ftruncate},
	"fallocate": {5, fallocate},
	"copyrange": {3, copyRange}, "mmap": {3, mmapStore}, "fsync": {2, fsync}, "fstat": {6, fstat}, "seekend": {2, seekEnd},
	"fchmod": {2, fchmod}, "fchown": {2, fchown}, "futimes": {2, futimes}, "fsetxattr": {2, fsetxattr},
	"put": {12, put}, "append": {4, appendTo}, "get": {10, get}, "truncate": {5, truncate},
	"chmod": {7, chmod}, "chown": {6, chown}, "utimes": {6, utimes},
	"setxattr": {7, setxattr}, "getxattr": {3, getxattr}, "listxattr": {3, listxattr}, "rmxattr": {3, removexattr},
	"setacl": {3, setacl}, "rmacl": {1, removeacl},
	"stat": {8, stat}, "readlink": {2, readlink}, "list": {6, list}, "access": {4, access}, "umask": {1, umask},
	"setcap": {0, setcap}, "getcap": {0, getcap}, // with Config.Privileges only
}

// kinds are the names of the actions in a fixed order, total the sum of their weights.
var kinds, total = func() ([]string, int) {
	var names []string
	sum := 0
	for k, a := range actions {
		names, sum = append(names, k), sum+a.weight
	}
	slices.Sort(names)
	return names, sum
}()

// dirs and files are the path elements: few, so that operations meet. Most directories have other names than most
// files, so that paths of several elements lead somewhere.
var (
	dirs  = []string{"a", "b", "c"}
	files = []string{"d", "e", "f", "g"}
)

// ofDirs are the kinds that want a directory.
var ofDirs = []string{"mkdir", "rmdir", "rmtree", "list", "tmpfile", "exchange"}

// uids are who does it: mostly root, which gets further.
var uids = []int{0, 0, 0, 0, 1001, 1002}

func randomPath(rng *rand.Rand, wantDir bool) string {
	p := ""
	for range rng.IntN(4) {
		p += dirs[rng.IntN(len(dirs))] + "/"
	}
	if rng.IntN(8) == 0 {
		wantDir = !wantDir
	}
	if wantDir {
		p += dirs[rng.IntN(len(dirs))]
	} else {
		p += files[rng.IntN(len(files))]
	}
	switch rng.IntN(120) {
	case 0:
		p += "/"
	case 1:
		p += "/."
	case 2:
		p += "/.."
	case 3:
		p += "/" + strings.Repeat("l", 255)
	case 4:
		p += "/" + strings.Repeat("l", 256)
	}
	return p
}

// random makes the next operation.
func random(rng *rand.Rand) Op {
	kind, k := "", rng.IntN(total)
	for _, kind = range kinds {
		if k -= actions[kind].weight; k < 0 {
			break
		}
	}
	wantDir := slices.Contains(ofDirs, kind) || rng.IntN(4) == 0
	uid := uids[rng.IntN(len(uids))]
	if kind == "rmacl" {
		uid = 0 // the kernel's overlayfs clears setgid when others remove an ACL, ext4 does not
	}
	return Op{
		Kind: kind, UID: uid, A: randomPath(rng, wantDir), B: randomPath(rng, wantDir),
		Slot: rng.IntN(slots), Other: rng.IntN(slots), N: rng.Int64N(1 << 20), M: rng.Int64N(1 << 20),
		Data: fmt.Sprint(rng.IntN(1000)),
	}
}
