package e2e

import (
	"archive/tar"
	"bytes"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"snapfs/internal/treewalk"
	"snapfs/sandbox/api"
)

// podman runs podman as the referee, with a storage of the test's own.
func podman(t *testing.T, h *home, argv ...string) result {
	t.Helper()
	script := `umount -R /sys/fs/cgroup 2>/dev/null || true
		mount -t cgroup2 none /sys/fs/cgroup
		mount -t tmpfs none /run # podman wants a short path
		exec podman --root "$1" --runroot /run/podman --runtime crun --cgroup-manager cgroupfs --events-backend none "${@:2}"`
	line := []string{"unshare", "--mount", "--propagation", "slave", "bash", "-c", script, "script", h.makeDir("podman")}
	return process(t, 2*time.Minute, h.tmp, h.env, append(line, argv...)...)
}

// refereed unpacks an image with podman into a directory.
func refereed(t *testing.T, h *home, archive, tag string) string {
	t.Helper()
	dir := h.makeDir("referee")
	script := `umount -R /sys/fs/cgroup 2>/dev/null || true
		mount -t cgroup2 none /sys/fs/cgroup
		mount -t tmpfs none /run
		podman="podman --root $1 --runroot /run/podman --cgroup-manager cgroupfs --events-backend none"
		$podman load -q -i "$2" >&2
		at=$($podman image mount "$3")
		cp -a "$at"/. "$4"/
		$podman image unmount "$3" >&2`
	r := process(t, 2*time.Minute, h.tmp, h.env, "unshare", "--mount", "--propagation", "slave", "bash", "-ec", script, "script",
		h.makeDir("podman"), archive, tag, dir)
	require.Zero(t, r.code, r.err)
	return dir
}

// manyShapes is an image with everything that the layers of an image can have.
func manyShapes(t testing.TB) testImage {
	long := strings.Repeat("long", 60)
	odd := "odd \xff\n\\ \"name\" \u00e9"
	base := tarOf(t,
		directory("").with(func(h *tar.Header) { h.Name = "./" }),
		directory("bin"), file("bin/tool", "#!/bin/sh\n").with(func(h *tar.Header) { h.Mode = 0o4755; h.Uid, h.Gid = 7, 8 }),
		directory("data").with(func(h *tar.Header) { h.Mode = 0o1770; h.Uid, h.Gid = 1000, 70000 }),
		file("data/a", "first"), file("data/b", "second"), file("data/c", "third"), hardLink("data/c2", "data/c"),
		directory("gone"), file("gone/x", "x"), directory("gone/deep"), file("gone/deep/y", "y"),
		directory("opaque"), file("opaque/old", "old"), directory("opaque/sub"), file("opaque/sub/old", "old"),
		symbolicLink("data/link", "../bin/tool"), symbolicLink("link", "data"),
		directory(odd), file(odd+"/"+long, "odd"), file(long+"/"+long+"/"+long, "implicit directories"),
		file("cap", "capable").with(func(h *tar.Header) {
			h.PAXRecords = map[string]string{
				"SCHILY.xattr.security.capability": "\x01\x00\x00\x02\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00",
				"SCHILY.xattr.user.note":           "a\x00b",
			}
		}),
		entry{Header: tar.Header{Typeflag: tar.TypeFifo, Name: "fifo", Mode: 0o600}},
		entry{Header: tar.Header{Typeflag: tar.TypeChar, Name: "null", Mode: 0o666, Devmajor: 1, Devminor: 3}},
		entry{Header: tar.Header{Typeflag: tar.TypeBlock, Name: "disk", Mode: 0o660, Devmajor: 259, Devminor: 70000}},
		file("twice", "which is gone in the end"),
		file("sparse", strings.Repeat("\x00", 1<<20)+"end"),
		directory("todir"), file("tofile", "becomes a directory"), file("todir/in", "in"),
	)
	next := tarOf(t,
		file("data/.wh.a", ""), file("data/b", "changed"), file(".wh.gone", ""),
		directory("data").with(func(h *tar.Header) { h.Mode = 0o1770; h.Uid, h.Gid = 1000, 70000 }),
		directory("opaque"), file("opaque/.wh..wh..opq", ""), file("opaque/new", "new"),
		directory("opaque/sub"), file("opaque/sub/new", "new"),
		file("todir", "now a file"), directory("tofile"), file("tofile/in", "in"),
		file("/absolute", "from the root"), file("data/../climbs", "inside"),
		file("new/dir/of/file", "implicit"),
		symbolicLink("here", "new/dir"), file("here/through", "by a link of this layer"),
		hardLink("data/new2", "data/b"),
	)
	last := tarOf(t,
		directory("gone"), file("gone/again", "another"),
		file(".wh.twice", ""), file(".wh.never", ""),
		directory("data").with(func(h *tar.Header) { h.Mode = 0o750; h.Uid, h.Gid = 5, 6 }),
	)
	return testImage{
		tag: "localhost/shapes:one", layers: [][]byte{base, next, last},
		config: object{
			"Cmd": []string{"/bin/tool", "run"}, "Env": []string{"PATH=/bin", "A=b c"}, "WorkingDir": "/data", "User": "1000:70000",
			"Labels": object{"who": "test"},
		},
	}
}

// listed makes equal the times of directories that no layer lists: podman gives them the time at which it makes them.
func listed(nodes []treewalk.Node) []treewalk.Node {
	for i, n := range nodes {
		if n.Path == "new" || strings.HasPrefix(n.Path, "new/dir") && n.Mode&unix.S_IFMT == unix.S_IFDIR ||
			strings.HasPrefix(n.Path, "longlong") && n.Mode&unix.S_IFMT == unix.S_IFDIR {
			nodes[i].Mtime = treewalk.Time{}
		}
	}
	return nodes
}

// TestImageAsPodman imports an image in each kind of archive, and compares it with what podman unpacks.
func TestImageAsPodman(t *testing.T) {
	h := newHome(t)
	shapes := manyShapes(t)
	archive := dockerArchive(t, h.path("docker.tar"), shapes)
	want := walk(t, refereed(t, h, archive, shapes.tag))
	shapes.compress = "gzip"
	require.NoError(t, os.WriteFile(h.path("oci.tar"), tarOf(t, ociLayout(t, shapes)...), 0o644))
	shapes.compress = "zstd"
	require.NoError(t, os.WriteFile(h.path("zstd.tar"), tarOf(t, ociLayout(t, shapes)...), 0o644))
	shell(t, soon, h.tmp, `mkdir oci && tar -xf zstd.tar -C oci`)
	for name, from := range map[string]string{
		"docker": "docker-archive:" + archive, "oci": "oci-archive:" + h.path("oci.tar") + ":localhost/shapes:one",
		"zstd": "oci:" + h.path("oci") + ":localhost/shapes:one",
	} {
		h.ok("up", name, filepath.Join(h.tmp, "on-"+name), "--from", from, "-o", "suid,dev")
		got := walk(t, filepath.Join(h.tmp, "on-"+name))
		same(t, name, listed(want), listed(got), treewalk.Options{IgnoreExtents: true, IgnoreRoot: true})
		for _, n := range got {
			if n.Path == "sparse" {
				require.Equal(t, []treewalk.Extent{{Off: 1 << 20, Len: 3}}, n.Extents)
			}
		}
	}
}

// TestImageExport exports snapshots of an image, and has podman load and run them.
func TestImageExport(t *testing.T) {
	h := newHome(t)
	root := containerRoot(t, h)
	shell(t, soon, root, `rm bin/snapfs; tar --numeric-owner -cf ../base.tar .`)
	base, err := os.ReadFile(h.path("base.tar"))
	require.NoError(t, err)
	archive := dockerArchive(t, h.path("docker.tar"), testImage{
		tag: "localhost/base:one", layers: [][]byte{base, tarOf(t, directory("work"), file("work/a", "a"), file("work/b", "b"))},
		config: object{"Cmd": []string{"/bin/cat", "/work/a"}, "Env": []string{"PATH=/bin", "X=1"}, "WorkingDir": "/work"},
	})
	h.ok("up", "ws", h.path("ws"), "--from", "docker-archive:"+archive)
	shell(t, soon, h.path("ws"), `echo changed > work/a; rm work/b; mkdir -p work/deep; echo in > work/deep/x; ln work/a work/c`)
	h.ok("snapshot", "ws", "--name", "one")
	shell(t, soon, h.path("ws"), `mv work/deep work/moved; chmod 700 work/a; rm -r work/moved/x; mkdir var/lib/new; echo new > var/lib/new/f`)
	h.ok("snapshot", "ws", "--name", "two")
	want := walk(t, h.path("ws"))
	h.ok("export", "ws:two", h.path("out.tar"), "--format", "docker", "--tag", "localhost/out:two")
	h.ok("export", "ws:two", h.path("again.tar"), "--format", "docker", "--tag", "localhost/out:two")
	shell(t, soon, h.tmp, `cmp out.tar again.tar`)
	got := walk(t, refereed(t, h, h.path("out.tar"), "localhost/out:two"))
	same(t, "as podman has it", want, got, treewalk.Options{IgnoreExtents: true, IgnoreRoot: true})
	run := []string{
		"run", "--rm", "--network", "none", "--cgroups=disabled", "--log-driver", "none", "--ulimit", "nofile=1024:1024",
		"--ulimit", "nproc=1024:1024", "--security-opt", "seccomp=unconfined",
	}
	r := podman(t, h, append(run, "localhost/out:two")...)
	require.Zero(t, r.code, r.err)
	require.Equal(t, "changed\n", r.out)
}

// TestImageRefused gives what is no image, or not the kind that it is called, or is damaged. Each is an error that says so,
// and leaves nothing behind.
func TestImageRefused(t *testing.T) {
	h := newHome(t)
	random := make([]byte, 300<<10)
	_, err := rand.New(rand.NewSource(1)).Read(random)
	require.NoError(t, err)
	good := testImage{tag: "localhost/a:one", layers: [][]byte{tarOf(t, directory("d"), file("d/f", string(random))), tarOf(t, file("g", "g"))}}
	docker := dockerArchive(t, h.path("docker.tar"), good)
	good.compress = "gzip"
	layout := ociLayout(t, good)
	put := func(name string, data []byte) string {
		require.NoError(t, os.WriteFile(h.path(name), data, 0o644))
		return h.path(name)
	}
	oci := put("oci.tar", tarOf(t, layout...))
	whole, err := os.ReadFile(oci)
	require.NoError(t, err)
	flipped := bytes.Clone(whole)
	flipped[bytes.Index(flipped, []byte{0x1f, 0x8b, 8})+1000] ^= 1
	bad := func(entries ...entry) string {
		return "docker-archive:" + dockerArchive(t, h.path(fmt.Sprintf("bad-%d.tar", rand.Int())), testImage{tag: "bad:bad", layers: [][]byte{tarOf(t, entries...)}})
	}
	h.ok("create", "empty")
	h.ok("snapshot", "empty", "--name", "one")
	h.ok("export", "one", h.path("image.sqsh"))
	for _, c := range []struct {
		from string
		code int
		says string
	}{
		{"oci-archive:" + docker, api.ExitInvalid, "docker-archive:FILE"},
		{"docker-archive:" + oci, api.ExitInvalid, "oci-archive:FILE"},
		{"oci:" + oci, api.ExitInvalid, "oci-archive:FILE"},
		{"oci-archive:" + h.tmp, api.ExitInvalid, "is a directory"},
		{"oci:" + h.tmp, api.ExitInvalid, "no OCI layout"},
		{"docker-archive:" + h.path("image.sqsh"), api.ExitInvalid, "squashfs image"},
		{"docker-archive:" + put("text", []byte(strings.Repeat("text\n", 500))), api.ExitInvalid, "no tar file"},
		{"docker-archive:" + put("nothing", nil), api.ExitInvalid, "empty"},
		{"docker-archive:" + put("z.tar.gz", packed(t, "gzip", whole)), api.ExitInvalid, "compressed"},
		{"docker-archive:" + h.path("missing.tar"), api.ExitNotFound, "does not exist"},
		{"docker-archive:" + docker + ":other", api.ExitNotFound, "localhost/a:one"},
		{docker, api.ExitInvalid, "docker-archive:FILE"},
		{oci, api.ExitInvalid, "oci-archive:FILE"},
		{"oci-archive:" + put("flipped.tar", flipped), api.ExitCorrupt, "layer 1"},
		{"oci-archive:" + put("cut1.tar", whole[:len(whole)/3]), api.ExitCorrupt, "cut off"},
		{"oci-archive:" + put("cut2.tar", whole[:len(whole)-3000]), api.ExitCorrupt, "cut off"},
		{put("cut3.tar", tarOf(t, file("f", string(random)))[:100<<10]), api.ExitCorrupt, "cut off"},
		{put("cut4.tar.gz", packed(t, "gzip", tarOf(t, file("f", string(random))))[:100<<10]), api.ExitCorrupt, "ends too early"},
		{bad(file("../out", "x")), api.ExitInvalid, "leads out"},
		{bad(file("f", "f"), file("f/in", "x")), api.ExitInvalid, "no directory"},
		{bad(hardLink("a", "nowhere")), api.ExitInvalid, "not there"},
		{bad(hardLink("a", "../../etc/passwd")), api.ExitInvalid, "leads out"},
		{bad(symbolicLink("a", "b"), symbolicLink("b", "a"), file("a/x", "x")), api.ExitInvalid, "too many symbolic links"},
		{bad(file(strings.Repeat("n", 256), "x")), api.ExitInvalid, "name too long"},
	} {
		h.fails(c.code, c.says, "create", "bad", "--from", c.from)
	}
	require.NotContains(t, h.ok("list"), "bad")
	h.ok("stop")
	h.ok("list") // a new daemon removes what is left, if that had no time
	h.ok("stop")
	require.Empty(t, shell(t, soon, h.dir, `find uppers -type f`))
	_, err = os.Lstat(filepath.Join(filepath.Dir(h.tmp), "out"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

// TestImagesShare imports images that share layers, and finds that the home has these once.
func TestImagesShare(t *testing.T) {
	h := newHome(t)
	base := tarOf(t, directory("d"), file("d/f", "shared"))
	one := testImage{tag: "localhost/one:1", layers: [][]byte{base, tarOf(t, file("one", "1"))}, config: object{"Cmd": []string{"one"}}}
	two := testImage{tag: "localhost/two:1", layers: [][]byte{base, tarOf(t, file("two", "2"))}}
	both := dockerArchive(t, h.path("both.tar"), one, two)
	h.fails(api.ExitConflict, "localhost/two:1", "create", "w", "--from", "docker-archive:"+both)
	layersOf := func(ws, from string) []string {
		h.ok("create", ws, "--from", from)
		h.ok("snapshot", ws, "--name", "s", "--wait", "stored")
		var ids []string
		for _, l := range h.snapshot(ws + ":s").Layers {
			ids = append(ids, l.ID)
		}
		return ids
	}
	first := layersOf("one", "docker-archive:"+both+":localhost/one:1")
	second := layersOf("two", "docker-archive:"+both+":localhost/two:1")
	require.Len(t, first, 3)
	require.Len(t, second, 3)
	require.Equal(t, first[2], second[2], "the base")
	require.NotEqual(t, first[1], second[1])
	one.compress = "zstd"
	require.NoError(t, os.WriteFile(h.path("one.tar"), tarOf(t, ociLayout(t, one)...), 0o644))
	require.Equal(t, first, layersOf("again", "oci-archive:"+h.path("one.tar")))
	one.config = object{"Cmd": []string{"other"}}
	dockerArchive(t, h.path("one.tar"), one)
	other := layersOf("other", "docker-archive:"+h.path("one.tar"))
	require.Equal(t, first[1:], other[1:])
	require.NotEqual(t, first[0], other[0])
	// What only knows a digest gets nothing: the layer itself must be there, and right.
	archive, err := os.ReadFile(both)
	require.NoError(t, err)
	at := bytes.Index(archive, []byte("shared"))
	require.NoError(t, os.WriteFile(h.path("forged.tar"), slices.Concat(archive[:at], []byte("forged"), archive[at+6:]), 0o644))
	h.fails(api.ExitCorrupt, "diff-id", "create", "w", "--from", "docker-archive:"+h.path("forged.tar")+":localhost/one:1")
	// The layers go with the last that stands on them.
	for _, ws := range []string{"one", "two", "again", "other"} {
		h.ok("delete", ws+":s")
		h.ok("destroy", ws, "--now")
	}
	require.NotEqual(t, first, layersOf("one", "docker-archive:"+both+":localhost/one:1"))
}
