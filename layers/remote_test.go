package layers

import (
	"testing"

	"golang.org/x/sys/unix"
)

func TestRemote(t *testing.T) {
	smb := uint32(unix.CIFS_SUPER_MAGIC)
	for _, c := range []struct {
		magic int64
		want  bool
	}{
		{unix.EXT4_SUPER_MAGIC, false},
		{unix.TMPFS_MAGIC, false},
		{unix.OVERLAYFS_SUPER_MAGIC, false},
		{unix.NFS_SUPER_MAGIC, true},
		{unix.FUSE_SUPER_MAGIC, true},
		{int64(smb), true},
		{int64(int32(smb)), true}, // as 32-bit machines give it
	} {
		if got := remote(c.magic); got != c.want {
			t.Errorf("%#x: got %v, want %v", c.magic, got, c.want)
		}
	}
	if r := newRig(t); r.o.Remote() != remote(typeOf(t, r.work())) {
		t.Errorf("the upper: got %v", r.o.Remote())
	}
}

func typeOf(t *testing.T, dir string) int64 {
	t.Helper()
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		t.Fatal(err)
	}
	return int64(st.Type)
}
