package e2e

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestMountCommand mounts workspaces by util-linux's mount and lines of /etc/fstab. They look for the helper in /sbin:
// in a mount namespace of the test it is there, and the daemon lives in that namespace, too.
func TestMountCommand(t *testing.T) {
	h := newHome(t)
	r := process(t, 2*time.Minute, h.tmp, h.env, "unshare", "--mount", "bash", "-c", `
set -euo pipefail # with which no grep may stop reading before the end: no grep -q behind a pipe
snapfs=$1
mkdir helper at sub
ln -s "$snapfs" helper/mount.fuse.snapfs
mount -t overlay -o lowerdir="$PWD/helper":"$(readlink -f /sbin)" none "$(readlink -f /sbin)"
shows() { # shows WHAT DIR: the mount table says so
	findmnt -rno FSTYPE,SOURCE,OPTIONS --mountpoint "$2" | grep -E "$1" > all || { echo "want $1"; findmnt -rno FSTYPE,SOURCE,OPTIONS --mountpoint "$2"; exit 1; }
}
lacks() { if findmnt -rno OPTIONS --mountpoint "$2" | tr , '\n' | grep -Fx "$1" > all; then echo "$2 has $1"; exit 1; fi; }
ends() { # ends CODE WORDS COMMAND...: on standard error
	local code=0 words=$2
	"${@:3}" 2> err || code=$?
	test "$code" = "$1" && grep -q "$words" err || { echo "${*:3}: code $code, want $1 and '$words'"; cat err; exit 1; }
}
"$snapfs" --quiet create w > /dev/null
"$snapfs" --quiet create theirs --session theirs > /dev/null

mount -t fuse.snapfs w "$PWD/at"
shows '^fuse.snapfs w rw' "$PWD/at"; lacks nosuid "$PWD/at"; lacks nodev "$PWD/at"
echo text > at/file
umount at
"$snapfs" show w | grep unmounted > all

env -u SNAPFS_HOME mount -t fuse.snapfs -o "ro,nosuid,nodev,noexec,noatime,transport=dev,engine=fuse,home=$SNAPFS_HOME" w at
for option in ro nosuid nodev noexec noatime; do shows "[ ,]$option(,|\$)" at; done
ends 1 'Read-only' touch at/other
grep -q text at/file
"$snapfs" show w | grep 'transport *dev' > all
umount at
mount -t fuse.snapfs -o rw,suid,dev,exec,relatime w at
lacks nosuid at; lacks nodev at; lacks noexec at
mount -t fuse.snapfs -o rw,suid,dev,exec,relatime w at # what is there already
umount at
for option in ro nosuid nodev noexec noatime writeback; do
	mount -t fuse.snapfs -o $option w at
	test $option = writeback || shows "[ ,]$option(,|\$)" at
	umount at
done
mount -t fuse.snapfs -o ro w at
mount -o remount,rw at; touch at/remounted
mount -o remount,ro,nosuid at; ends 1 'Read-only' touch at/other; shows nosuid at
"$snapfs" --quiet rename w w2; "$snapfs" --quiet up w sub > all
mount -o remount,rw at; touch at/renamed
mount -o remount,ro at; ends 1 'Read-only' touch at/other; touch sub/file; shows rw sub
umount at; umount sub; "$snapfs" --quiet destroy --now w; "$snapfs" --quiet rename w2 w
mount -t fuse.snapfs -o session=theirs theirs sub/new # its last element is made
umount sub/new

"$snapfs" --quiet snapshot w --name past > all
mount -t fuse.snapfs -o ro,noexec w:past at; shows '^fuse.snapfs w-view-[0-9a-f]* ro' at; shows noexec at
mount -t fuse.snapfs -o ro,noexec past at # what is there already
ends 32 'with other options' mount -t fuse.snapfs -o ro past at
test "$(cat at/file)" = text; ends 1 'Read-only' touch at/other
umount at; ends 1 'branch' mount -t fuse.snapfs past at

mkdir tree; cp "$(command -v id)" tree/id; chmod 4755 tree/id; mksquashfs tree foreign.sqsh -quiet -no-progress > all
"$snapfs" --quiet create foreign --from foreign.sqsh > /dev/null
mount -t fuse.snapfs foreign at
for option in nosuid nodev; do shows "[ ,]$option(,|\$)" at; done
test "$(setpriv --reuid 65534 --clear-groups at/id -u)" = 65534
"$snapfs" show foreign | grep 'foreign *yes' > all
umount at
mount -t fuse.snapfs -o allow_suid,allow_dev foreign at
lacks nosuid at; lacks nodev at
umount at
"$snapfs" --quiet run --from foreign.sqsh -- sh -c 'findmnt -rno OPTIONS --mountpoint "$PWD"' | grep nosuid > all
ends 2 exclude "$snapfs" mount foreign at --suid --nosuid

ends 1 bogus mount -t fuse.snapfs -o bogus w at
ends 1 pigeon mount -t fuse.snapfs -o transport=pigeon w at
ends 1 steam mount -t fuse.snapfs -o engine=steam w at
ends 32 'another session' mount -t fuse.snapfs theirs at
ends 32 'not found' mount -t fuse.snapfs nobody at
ends 32 'does not exist' mount -t fuse.snapfs w no/such/dir
test -z "$(findmnt -rno TARGET -t fuse.snapfs | grep -F "$PWD" || :)"
mount -s -t fuse.snapfs -o bogus w at
umount at
mount.fuse.snapfs --help | grep transport= > all
mount.fuse.snapfs --version | grep snapfs > all
mount.fuse.snapfs -f w at -o ro
ends 1 usage mount.fuse.snapfs w

printf '%s\n' "w $PWD/at fuse.snapfs noatime,nodev,nofail,x-systemd.automount,home=$SNAPFS_HOME 0 0" \
	"theirs $PWD/sub/new fuse.snapfs ro,session=theirs,_netdev 0 0" > fstab
mount --bind fstab /etc/fstab
mount at
shows 'noatime' at
mount -a -t fuse.snapfs
mount -a -t fuse.snapfs
shows '^fuse.snapfs theirs ro' sub/new
umount -a -t fuse.snapfs
test -z "$(findmnt -rno TARGET -t fuse.snapfs | grep -F "$PWD" || :)"
"$snapfs" --quiet stop
`, "script", snapfs)
	require.Zero(t, r.code, "%s%s\n%s", tail(r.out), tail(r.err), tail(h.log()))
}
