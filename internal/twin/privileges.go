package twin

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"

	"golang.org/x/sys/unix"
)

// What takes setuid, setgid and capabilities away: writing, truncating and changing the owner, by whom and how. Files
// are few, everybody may write them, and each operation is followed by a look at what it named.

// privilegeKinds are the kinds of operations of an actor with Config.Privileges, by how often they come.
var privilegeKinds = weighted(map[string]int{
	"chmod": 12, "fchmod": 4, "setcap": 5, "getcap": 6, "chown": 4, "fchown": 3, "mkdir": 1,
	"open": 14, "close": 2, "put": 6, "append": 8, "write": 10, "pwrite": 10, "ftruncate": 5, "truncate": 6,
	"fallocate": 8, "copyrange": 8, "mmap": 5, "fsync": 1, "get": 4, "stat": 3, "fstat": 3, "unlink": 2, "rename": 3, "link": 4,
	"linkopen": 2, "setxattr": 2,
})

func weighted(weights map[string]int) []string {
	var all []string
	for _, k := range kinds { // in a fixed order
		for range weights[k] {
			all = append(all, k)
		}
	}
	return all
}

var (
	privilegeUsers = []int{0, 0, 1001, 1001, 1002, 70000}
	privilegeDirs  = []string{"", "", "a/"}
	// Setgid without execution is a lock, and stays.
	privilegeModes = []int64{0o6777, 0o4777, 0o2777, 0o2767, 0o6766, 0o777, 0o666, 0o7777}
)

// privilegeOp makes the next operation of an actor with Config.Privileges.
func privilegeOp(rng *rand.Rand) Op {
	path := func() string { return privilegeDirs[rng.IntN(len(privilegeDirs))] + files[rng.IntN(len(files))] }
	o := Op{
		Kind: privilegeKinds[rng.IntN(len(privilegeKinds))], UID: privilegeUsers[rng.IntN(len(privilegeUsers))],
		A: path(), B: path(),
		Slot: rng.IntN(slots), Other: rng.IntN(slots), N: rng.Int64N(1 << 20), M: rng.Int64N(1 << 20),
		Data: fmt.Sprint(rng.IntN(1000)),
	}
	mode := privilegeModes[rng.IntN(len(privilegeModes))]
	switch o.Kind {
	case "mkdir":
		o.A, o.N = "a", 0o777|mode&0o2000
	case "chmod", "fchmod":
		o.N = o.N&^0o7777 | mode
	case "open":
		o.M = o.M&^0o7777 | mode
		o.N |= 2 // for reading and writing
	case "put":
		o.M |= 0o666
	}
	return o
}

const capabilities = "security.capability"

// setcap gives a file a capability, in the kernel's form: version 2 and the effective bit, then permitted and
// inheritable ones.
func setcap(t *tree, o Op) (string, error) {
	b := binary.LittleEndian.AppendUint32(nil, 0x02000001)
	b = binary.LittleEndian.AppendUint32(b, 1<<unix.CAP_NET_RAW)
	b = append(b, make([]byte, 12)...)
	return "", unix.Lsetxattr(t.path(o.A), capabilities, b, 0)
}

func getcap(t *tree, o Op) (string, error) {
	buf := make([]byte, 100)
	n, err := unix.Lgetxattr(t.path(o.A), capabilities, buf)
	return fmt.Sprintf("%x", buf[:max(n, 0)]), err
}
