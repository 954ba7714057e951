package fs_test

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"snapfs/internal/testmount"
)

// BenchmarkWorkloads runs what agents do all day over the Go sources on the host, the kernel's overlayfs,
// fuse-overlayfs and snapfs, in turn, and prints a table of seconds with the requests that snapfs had to answer.
// SNAPFS_PROFILE=FILE writes a CPU profile of the server, SNAPFS_TREE names a smaller tree below the sources,
// SNAPFS_ONLY some of the systems.
//
//	go test -run - -bench Workloads -benchtime 3x ./fs
//
// A system's caches are cold when it was just mounted; the host's are warm in any case.
func BenchmarkWorkloads(b *testing.B) {
	base := openDir(b)
	src := filepath.Join(goroot(b), "src")
	if part := os.Getenv("SNAPFS_TREE"); part != "" { // a part of it, or any other tree
		src = filepath.Join(src, part)
	}
	lower := filepath.Join(base, "lower")
	tarball := filepath.Join(base, "src.tar")
	image := filepath.Join(base, "lower.sqsh")
	run(b, "mkdir", lower)
	run(b, "cp", "-a", src, lower)
	run(b, "tar", "cf", tarball, "-C", filepath.Dir(src), filepath.Base(src))
	run(b, "mv", filepath.Join(lower, filepath.Base(src)), filepath.Join(lower, "tree"))
	run(b, "mksquashfs", lower, image, "-quiet", "-no-progress", "-noI", "-noD", "-noF", "-noX")

	times := map[string]map[string][]float64{} // by workload and system
	requests := map[string]string{}
	for i := range b.N {
		for _, sys := range systems(base, lower, image) {
			if only := os.Getenv("SNAPFS_ONLY"); only != "" && !strings.Contains(only, sys.name) {
				continue
			}
			for _, session := range sessions(tarball) {
				home := filepath.Join(base, fmt.Sprintf("%s-%d", sys.name, i))
				run(b, "mkdir", home)
				dir, count, unmount := sys.mount(b, home)
				for _, w := range session {
					before := count()
					start := time.Now()
					run(b, "sh", "-c", "cd "+dir+" && "+w.script)
					spent := time.Since(start).Seconds()
					if times[w.name] == nil {
						times[w.name] = map[string][]float64{}
					}
					times[w.name][sys.name] = append(times[w.name][sys.name], spent)
					if sys.name == "snapfs" {
						requests[w.name] = difference(count(), before)
					}
				}
				unmount()
				run(b, "rm", "-rf", home)
			}
		}
	}
	var out strings.Builder
	fmt.Fprintf(&out, "%-12s %8s %8s %8s %8s %8s  requests\n", "seconds",
		"native", "overlay", "fuse-ovl", "snapfs", "snap-img")
	for _, session := range sessions("") {
		for _, w := range session {
			fmt.Fprintf(&out, "%-12s", w.name)
			for _, sys := range []string{"native", "overlay", "fuse-overlayfs", "snapfs", "snapfs-image"} {
				fmt.Fprintf(&out, " %8.3f", median(times[w.name][sys]))
			}
			fmt.Fprintf(&out, "  %s\n", requests[w.name])
		}
	}
	b.Log("\n" + out.String())
}

type workload struct{ name, script string }

// sessions are workloads that share one mount, in order.
func sessions(tarball string) [][]workload {
	return [][]workload{
		{{"find cold", "find . -size +1000k >/dev/null"}, {"find warm", "find . -size +1000k >/dev/null"}},
		{
			{"grep cold", "grep -r xyzzyz . || true"},
			{"grep warm", "grep -r xyzzyz . || true"},
			{"ls -lR warm", "ls -lR >/dev/null"},
		},
		{{"untar", "mkdir new && tar xf " + tarball + " -C new"}, {"rm upper", "rm -rf new"}, {"rm lower", "rm -rf tree"}},
		{
			{"chmod", "chmod -R g+w tree"},
			{"copy up", "find tree -name '*.go' -newermt 1970-01-01 | head -500 | xargs -n 50 sed -i s/package/package/"},
		},
	}
}

type system struct {
	name  string
	mount func(b *testing.B, home string) (dir string, count func() map[string]uint64, unmount func())
}

func systems(base, lower, image string) []system {
	none := func() map[string]uint64 { return nil }
	dirs := func(b *testing.B, home string) (upper, work, mnt string) {
		upper, work, mnt = filepath.Join(home, "upper"), filepath.Join(home, "work"), filepath.Join(home, "mnt")
		run(b, "mkdir", upper, work, mnt)
		return upper, work, mnt
	}
	snap := func(c testmount.Config) func(b *testing.B, home string) (string, func() map[string]uint64, func()) {
		return func(b *testing.B, home string) (string, func() map[string]uint64, func()) {
			c.Dir, c.Mount = filepath.Join(home, "ws"), filepath.Join(home, "mnt")
			c.Profile = os.Getenv("SNAPFS_PROFILE")
			fs := testmount.Start(b, c)
			return fs.Dir, fs.Requests, fs.Stop
		}
	}
	return []system{
		{"native", func(b *testing.B, home string) (string, func() map[string]uint64, func()) {
			dir := filepath.Join(home, "copy")
			run(b, "cp", "-a", lower, dir)
			return dir, none, func() {}
		}},
		{"overlay", func(b *testing.B, home string) (string, func() map[string]uint64, func()) {
			upper, work, mnt := dirs(b, home)
			run(b, "mount", "-t", "overlay", "overlay", "-o", "lowerdir="+lower+",upperdir="+upper+",workdir="+work, mnt)
			b.Cleanup(func() {
				if testmount.Mounted(mnt) {
					run(b, "umount", "-l", mnt)
				}
			})
			return mnt, none, func() { run(b, "umount", mnt) }
		}},
		{"fuse-overlayfs", func(b *testing.B, home string) (string, func() map[string]uint64, func()) {
			upper, work, mnt := dirs(b, home)
			run(b, "fuse-overlayfs", "-o", "lowerdir="+lower+",upperdir="+upper+",workdir="+work, mnt)
			b.Cleanup(func() {
				if testmount.Mounted(mnt) {
					run(b, "umount", "-l", mnt)
				}
			})
			return mnt, none, func() { run(b, "umount", mnt) }
		}},
		{"snapfs", snap(testmount.Config{Sealed: []string{lower}})},
		{"snapfs-image", snap(testmount.Config{Images: []string{image}})},
	}
}

func goroot(b *testing.B) string { return strings.TrimSpace(run(b, "go", "env", "GOROOT")) }

func median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	slices.Sort(v)
	return v[len(v)/2]
}

// difference spells the requests between two counts, most frequent first.
func difference(after, before map[string]uint64) string {
	var total uint64
	for op := range after {
		after[op] -= before[op]
		total += after[op]
	}
	ops := slices.SortedFunc(maps.Keys(after), func(a, b string) int { return cmp.Compare(after[b], after[a]) })
	text := fmt.Sprintf("%d:", total)
	for _, op := range ops {
		if after[op] > 0 {
			text += fmt.Sprintf(" %s %d", op, after[op])
		}
	}
	return text
}
