package e2e

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"snapfs/internal/testseed"
	"snapfs/internal/treewalk"
)

// TestImagesOfOneBase imports images that share a base: 12, or a hundred with SNAPFS_LONG. The base is Go's source in two
// layers; each image changes files of that at random, and adds others. The packs of the store take little more than all files,
// each once, in one tar file that zstd compresses; and a few of the images, or all of the hundred, are what podman unpacks.
func TestImagesOfOneBase(t *testing.T) {
	images, part := 12, "src/net src/os"
	if os.Getenv("SNAPFS_LONG") != "" {
		images, part = 100, "src"
	}
	h := newHome(t)
	goroot := strings.TrimSuffix(goSource(t), "/src")
	shell(t, 10*time.Minute, h.tmp, `mkdir -p all base
		(cd "$1" && tar -c --numeric-owner --exclude=testdata $2) | tar -x -C base
		tar -C base -c --numeric-owner --sort=name src > one.tar
		mkdir -p two/etc && seq 20000 > two/etc/numbers && tar -C two -c etc > two.tar
		cp -a base/. two/. all/`, goroot, part)
	one, err := os.ReadFile(h.path("one.tar"))
	require.NoError(t, err)
	two, err := os.ReadFile(h.path("two.tar"))
	require.NoError(t, err)
	rng := newRand(testseed.Of(t))
	m := &layerMaker{rng: rng, base: walk(t, h.path("base")), contents: map[string]bool{}}
	var all []testImage
	for i := range images {
		// Each has texts of its own, 60 KiB of them, that zstd compresses to a third or so.
		var words strings.Builder
		for j := range 5000 {
			fmt.Fprintf(&words, "%x ", uint64(i*5000+j)*0x9e3779b97f4a7c15>>20)
		}
		m.contents[words.String()], m.contents[strconv.Itoa(i)] = true, true
		all = append(all, testImage{tag: fmt.Sprint("localhost/many:", i), layers: [][]byte{
			one, two, tarOf(t, m.next(true)...),
			tarOf(t, directory("app"), file("app/words", words.String()), directory("etc"), file("etc/name", strconv.Itoa(i)), file(".wh.nothing", "")),
			tarOf(t, m.next(false)...),
		}})
	}
	for i, text := range slices.Sorted(maps.Keys(m.contents)) {
		h.write(fmt.Sprintf("all/app/%05d", i), text)
	}
	from := dockerArchive(t, h.path("image.tar"), all...)
	for i := range images {
		h.ok("create", fmt.Sprintf("ws-%d", i), "--from", "docker-archive:"+from+fmt.Sprint(":localhost/many:", i))
	}
	h.runFor(10*time.Minute, "gc")
	h.ok("stop")
	number := func(script string) int {
		n, err := strconv.Atoi(strings.TrimSpace(shell(t, 10*time.Minute, h.tmp, script)))
		require.NoError(t, err)
		return n
	}
	size := func(dir string) int { return number(`du -s --apparent-size -B1 ` + dir + ` | cut -f1`) }
	packs, store, uppers := size("home/store/packs"), size("home/store"), size("home/uppers")
	solid := number(`tar -C all --sort=name -c . | zstd -q -3 | wc -c`)
	of := func(n int) float64 { return float64(n) / float64(solid) }
	t.Logf("%d images: packs %d bytes, the store %d, uppers of workspaces %d; the files in one tar file with zstd -3 %d: %.3f, %.3f, %.3f",
		images, packs, store, uppers, solid, of(packs), of(store), of(store+uppers))
	if images == 100 { // a home with little in it has more that is not contents
		require.Less(t, of(packs), 1.05)
	}

	// The referee.
	p := newPodman(h, h.path("none.sock"))
	p.driver = "overlay"
	p.ok("load", "-q", "-i", from)
	compared := rng.Perm(images)
	if images != 100 {
		compared = compared[:3]
	}
	for _, i := range compared {
		name, at := fmt.Sprint("ws-", i), p.ok("image", "mount", all[i].tag)
		h.ok("mount", name, h.makeDir("ws"), "-o", "suid,dev")
		same(t, name, walk(t, at), walk(t, h.path("ws")), treewalk.Options{IgnoreExtents: true, IgnoreRoot: true})
		h.ok("umount", name)
		p.ok("image", "unmount", all[i].tag)
	}
}
