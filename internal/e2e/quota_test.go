package e2e

import (
	"cmp"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestQuotaKilled kills the daemon while programs write to a workspace with limits, with mounts that outlive it and with
// others: the limit holds, and what is used is what the host has in the end.
func TestQuotaKilled(t *testing.T) {
	for _, mode := range []string{"kept", "made again"} {
		t.Run(mode, func(t *testing.T) {
			h := newHome(t)
			if mode == "made again" {
				h.keepsNothing()
			}
			const size = 16 << 20
			at := h.makeDir("m")
			h.ok("up", "w", at, "--transport", "dev", "--size", strconv.Itoa(size), "--inodes", "500")
			used := func() (bytes, inodes int64) {
				for end := time.Now().Add(soon); ; time.Sleep(20 * time.Millisecond) {
					q := h.workspace("w").Quota
					if !q.Counting {
						return q.Used, q.UsedInodes
					}
					require.True(t, time.Now().Before(end), "it is counted and counted")
				}
			}
			for i := range 3 {
				shell(t, soon, at, `for n in $(seq 60); do seq $((n * 100)) > f$1-$n; done; rm f$1-?; mkdir d$1; mv f$1-?? d$1; exec 3> gone$1
					seq 1000 >&3; rm gone$1; ln d$1/f$1-10 link$1; truncate -s 1G sparse$1`, itoa(i))
				require.NoError(t, unix.Kill(h.pid(), unix.SIGKILL))
				h.ok("list")
				bytes, inodes := used()
				du := strings.Fields(shell(t, soon, h.dir, `du -s -B1 uppers/*/upper | sort -n | tail -1 | cut -f 1; ls -d uppers/*/upper |
					while read d; do find $d | wc -l; done | sort -n | tail -1`))
				blocks, err := strconv.ParseInt(du[0], 10, 64)
				require.NoError(t, err)
				names, err := strconv.ParseInt(du[1], 10, 64)
				require.NoError(t, err)
				names -= int64(i) + 1 // each link is one more
				spare := int64(0)
				if mode == "kept" {
					spare = int64(i) + 1 // a file without a name stays if the daemon dies while it is told to forget it
				}
				require.GreaterOrEqual(t, bytes, blocks, "bytes")
				require.LessOrEqual(t, bytes, blocks+spare*4096, "bytes")
				require.GreaterOrEqual(t, inodes, names, "inodes")
				require.LessOrEqual(t, inodes, names+spare, "inodes")
			}
			out := shell(t, soon, at, `{ LC_ALL=C dd if=/dev/zero of=big bs=64k 2>&1 || :; } | grep -o "No space left on device"; df -B1 --output=size,avail . | tail -1 | xargs`)
			require.Equal(t, "No space left on device\n"+itoa(size)+" 0", strings.TrimSpace(out))
			bytes, _ := used()
			require.LessOrEqual(t, bytes, int64(size))
			require.Greater(t, bytes, int64(size-64<<10))
			// What maps a file learns of it from msync.
			out = shell(t, soon, at, `rm big; python3 -c '
import errno, mmap, os
fd = os.open("mapped", os.O_RDWR | os.O_CREAT)
os.ftruncate(fd, 64 << 20)
m = mmap.mmap(fd, 64 << 20)
for i in range(0, 64 << 20, 4096): m[i] = 1
try:
    m.flush()
except OSError as e:
    print(errno.errorcode[e.errno])'; rm mapped`)
			require.Equal(t, "ENOSPC", strings.TrimSpace(out))
		})
	}
}

// TestReserve has a program write without end to a workspace without limits: another one can still be written to, and
// frozen, and the store takes that.
func TestReserve(t *testing.T) {
	d := newDisk(t, 512)
	greedy, other := d.makeDir("greedy"), d.makeDir("other")
	d.ok("up", "greedy", greedy)
	d.ok("up", "other", other)
	fill := func(at string) {
		t.Helper()
		out := shell(t, soon, at, `{ LC_ALL=C dd if=/dev/zero of=fill bs=128k 2>&1 || :; } | grep -o "No space left on device"`)
		require.Equal(t, "No space left on device", strings.TrimSpace(out))
	}
	fill(greedy)
	shell(t, soon, other, `head -c 1000000 /dev/urandom > work; head -c 100000 /dev/zero > work2`)
	d.ok("snapshot", "other", "--name", "s", "--wait", "stored")
	shell(t, soon, other, `head -c 500000 /dev/urandom > more`)
	d.ok("snapshot", "other", "--name", "t", "--wait", "stored")
	fill(other)
	d.ok("delete", "other:s")
	free := strings.TrimSpace(shell(t, soon, d.dir, `df -B1 --output=avail . | tail -1`))
	n, err := strconv.ParseInt(free, 10, 64)
	require.NoError(t, err)
	require.Greater(t, n, int64(4<<20), "the reserve is left")
	shell(t, soon, greedy, `dd if=/dev/zero of=fill bs=128k count=100 conv=notrunc 2> /dev/null; rm fill; head -c 10000000 /dev/zero > again`)
}

// quotaRoundsEnv is how often TestQuotaRefilled fills a workspace.
const quotaRoundsEnv = "SNAPFS_QUOTA_ROUNDS"

// TestQuotaRefilled fills a workspace to its limit again and again, and removes what it has filled it with: there is
// room for as much at once, as in any file system. What is lacking is said soon, also where files without a name are
// open.
func TestQuotaRefilled(t *testing.T) {
	h := newHome(t)
	at := h.makeDir("m")
	h.ok("up", "w", at, "--transport", "dev", "--size", "4M", "--inodes", "40")
	rounds := cmp.Or(os.Getenv(quotaRoundsEnv), "30")
	out := shell(t, 10*time.Minute, at, `exec python3 - "$1" <<'END'
import errno, os, statistics, sys, time
block = bytes(64 << 10)
def put(name, size):
    fd = os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    try:
        while size > 0:
            size -= os.write(fd, block[:min(size, len(block))])
    finally:
        os.close(fd)
def full(name):
    begin = time.monotonic()
    try:
        put(name, 8 << 20)
    except OSError as e:
        assert e.errno == errno.ENOSPC, e
        return time.monotonic() - begin
    raise SystemExit("no limit")
size = 3 << 20
kept = []
for i in range(int(sys.argv[1])):
    put("f", size)
    for k in range(30):
        os.mkdir(f"d{k}")
    if i % 3 == 0:
        fd = os.open("f", os.O_RDONLY)
        os.unlink("f")
        os.close(fd)
    elif i % 3 == 1:
        os.truncate("f", 0)
        os.unlink("f")
    else:
        if os.fork() == 0:
            os.open("f", os.O_RDONLY)
            os.unlink("f")
            os._exit(0)
        assert os.wait()[1] == 0
    for k in range(30):
        os.rmdir(f"d{k}")
held = os.open("held", os.O_CREAT | os.O_WRONLY)
os.write(held, block)
os.unlink("held")
full("rest")
fd = os.open("rest", os.O_WRONLY | os.O_APPEND)
waits = []
for i in range(20):
    begin = time.monotonic()
    try:
        os.write(fd, block)
        raise SystemExit("no limit")
    except OSError as e:
        assert e.errno == errno.ENOSPC, e
    waits.append(time.monotonic() - begin)
print(f"refused within {statistics.median(waits) * 1000:.1f} ms, {max(waits) * 1000:.1f} ms at most")
END`, rounds)
	t.Log(strings.TrimSpace(out))
}
