package e2e

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"snapfs/internal/treewalk"
)

// TestImagesOfOneBase imports images that share a base: 12, or a hundred with SNAPFS_LONG. The base is Go's source in two
// layers; each image changes a few files of that, and adds others. The packs of the store take little more than all files,
// each once, in one tar file that zstd compresses; and the last image shows what it must.
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
	var all []testImage
	for i := range images {
		// Each has texts of its own, 60 KiB of them, that zstd compresses to a third or so.
		var words strings.Builder
		for j := range 5000 {
			fmt.Fprintf(&words, "%x ", uint64(i*5000+j)*0x9e3779b97f4a7c15>>20)
		}
		h.write(fmt.Sprintf("all/app/words-%d", i), words.String())
		h.write(fmt.Sprintf("all/app/name-%d", i), strconv.Itoa(i))
		all = append(all, testImage{tag: fmt.Sprint("localhost/many:", i), layers: [][]byte{one, two, tarOf(t,
			directory("app"), file("app/words", words.String()), file("etc/name", strconv.Itoa(i)), file(".wh.nothing", ""))}})
	}
	from := dockerArchive(t, h.path("image.tar"), all...)
	for i := range images {
		h.ok("create", fmt.Sprintf("ws-%d", i), "--from", "docker-archive:"+from+fmt.Sprint(":localhost/many:", i))
	}
	name := fmt.Sprintf("ws-%d", images-1)
	h.ok("snapshot", name, "--name", "last", "--wait", "stored")
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
	h.ok("mount", name, h.makeDir("ws"))
	shell(t, soon, h.tmp, fmt.Sprintf(`mkdir -p all/app all2 && cp -a base/. two/. all2/ && mkdir all2/app &&
		cp all/app/words-%d all2/app/words && printf %d > all2/etc/name`, images-1, images-1))
	same(t, "the last image", walk(t, h.path("all2")), walk(t, h.path("ws")), treewalk.Options{
		IgnoreExtents: true, IgnoreRoot: true, IgnoreDirMtime: true, IgnoreMtime: true,
	})
}
