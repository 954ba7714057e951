package mountio

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"snapfs/bench/internal/chart"
	"snapfs/bench/internal/report"
)

func TestRatios(t *testing.T) {
	s := newSamples()
	for _, v := range []float64{1, 3, 2} {
		s.add("overlayfs", []reading{{name: "untar", unit: "s", value: v}, {name: "find", unit: "s", value: 1}})
	}
	s.add("snapfs dev", []reading{{name: "untar", unit: "s", value: 5}, {name: "find", unit: "s", value: 1}})
	s.count(
		"snapfs dev", "untar", 1, map[string]uint64{"LOOKUP": 1, "READ": 7},
		map[string]uint64{"LOOKUP": 5, "READ": 7, "MKNOD": 9},
	)
	r := &report.Report{Suite: "io", About: map[string]string{"a/b": "a tree"}, Transposed: true}
	s.report(r, "a/b")
	var out bytes.Buffer
	r.Print(&out)
	if want := "untar  s       2.00        5.00                    2.50"; !strings.Contains(out.String(), want) {
		t.Errorf("no line %q in\n%s", want, out.String())
	}
	if want := "requests, untar on snapfs dev: 13: MKNOD 9, LOOKUP 4\n"; !strings.Contains(out.String(), want) {
		t.Errorf("no line %q in\n%s", want, out.String())
	}
	dir := t.TempDir()
	r.Dir = dir
	if err := chart.Save(r, Suite().Draw); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "io-a_b-light.svg")); err != nil {
		t.Error(err)
	}
}

func TestFloors(t *testing.T) {
	r := &report.Report{Suite: "io", About: map[string]string{}, Transposed: true}
	add := func(subject, name string, value float64, more bool) {
		r.Add(report.Metric{Case: "c", Subject: subject, Name: name, Value: value, More: more})
	}
	for subject, v := range map[string][4]float64{ // untar and find warm in seconds, reads and cached writes in MB/s
		"overlayfs": {1, 1, 1000, 1000}, "fuse-overlayfs": {10, 2, 500, 900},
		"snapfs dev": {8, 1.3, 900, 310}, "snapfs uring": {2.4, 1.04, 700, 290},
	} {
		add(subject, "untar", v[0], false)
		add(subject, "find warm", v[1], false)
		add(subject, "read 1M warm", v[2], true)
		add(subject, "write 1M cached", v[3], true)
	}
	judge(r)
	got := map[string]string{}
	for _, f := range r.Floors {
		got[f.Workload+"|"+f.Subject+"|"+f.Peer] = f.Verdict
	}
	for key, want := range map[string]string{
		"untar|snapfs uring|fuse-overlayfs":        "goal",
		"untar|snapfs uring|overlayfs":             "goal",
		"untar|snapfs dev|fuse-overlayfs":          "miss",
		"find warm|snapfs uring|fuse-overlayfs":    "-", // fuse-overlayfs is not slow in it
		"find warm|snapfs uring|overlayfs":         "goal",
		"find warm|snapfs dev|overlayfs":           "miss",
		"read 1M warm|snapfs dev|overlayfs":        "floor",
		"read 1M warm|snapfs uring|overlayfs":      "miss",
		"read 1M warm|snapfs uring|fuse-overlayfs": "floor",
		"write 1M cached|snapfs dev|overlayfs":     "floor",
		"write 1M cached|snapfs uring|overlayfs":   "miss",
	} {
		if got[key] != want {
			t.Errorf("%s: %q, want %q", key, got[key], want)
		}
	}
	if v, ok := got["untar|snapfs dev|overlayfs"]; ok {
		t.Errorf("no such floor, got %q", v)
	}
	var out bytes.Buffer
	r.PrintFloors(&out, "c")
	if want := "MISS"; !strings.Contains(out.String(), want) {
		t.Errorf("no %q in\n%s", want, out.String())
	}
}

func TestRepeats(t *testing.T) {
	for _, c := range []struct {
		files int
		bytes int64
		want  int
	}{{11478, 128 << 20, 1}, {766, 20 << 20, 6}, {3, 900 << 20, 1}, {3, 10, 50}, {0, 0, 50}, {100, 64 << 20, 4}} {
		if got := repeats(c.files, c.bytes); got != c.want {
			t.Errorf("%d files of %d bytes: %d times, want %d", c.files, c.bytes, got, c.want)
		}
	}
}
