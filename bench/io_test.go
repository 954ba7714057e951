package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		in   []float64
		want float64
	}{{[]float64{3}, 3}, {[]float64{1, 2}, 1.5}, {[]float64{9, 1, 5}, 5}} {
		if got := medianOf(c.in); got != c.want {
			t.Errorf("median of %v: %v, want %v", c.in, got, c.want)
		}
	}
}

func TestRatios(t *testing.T) {
	s := newSamples()
	for _, v := range []float64{1, 3, 2} {
		s.add("overlayfs", []reading{{name: "untar", unit: "s", value: v}, {name: "find", unit: "s", value: 1}})
	}
	s.add("snapfs dev", []reading{{name: "untar", unit: "s", value: 5}, {name: "find", unit: "s", value: 1}})
	s.count("snapfs dev", "untar", map[string]uint64{"LOOKUP": 1, "READ": 7}, map[string]uint64{"LOOKUP": 5, "READ": 7, "MKNOD": 9})
	r := &report{Suite: "io", About: map[string]string{"a/b": "a tree"}, transposed: true}
	s.report(r, "a/b")
	var out bytes.Buffer
	r.print(&out)
	if want := "untar  s       2.00        5.00                    2.50"; !strings.Contains(out.String(), want) {
		t.Errorf("no line %q in\n%s", want, out.String())
	}
	if want := "requests, untar on snapfs dev: 13: MKNOD 9, LOOKUP 4\n"; !strings.Contains(out.String(), want) {
		t.Errorf("no line %q in\n%s", want, out.String())
	}
	dir := t.TempDir()
	if err := r.save(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "io-a_b-light.svg")); err != nil {
		t.Error(err)
	}
}
