package main

import (
	"bytes"
	"path/filepath"
	"testing"

	"snapfs/bench/internal/mountio"
	"snapfs/bench/internal/report"
	"snapfs/bench/internal/suite"
)

func TestMergePieces(t *testing.T) {
	dir := t.TempDir()
	piece := func(name string, samples map[string][]float64) string {
		r := &report.Report{
			Suite: "io", About: map[string]string{"c": "a tree"}, Transposed: true, Dir: filepath.Join(dir, name),
		}
		for _, s := range []string{"overlayfs", "snapfs uring"} {
			for w, v := range samples {
				r.Add(report.Metric{Case: "c", Subject: s, Name: w, Unit: "s", Value: report.Median(v), Samples: v})
			}
		}
		mountio.Suite().Judge(r)
		if err := r.Keep(); err != nil {
			t.Fatal(err)
		}
		return filepath.Join(dir, name, "io.json")
	}
	a := piece("a", map[string][]float64{"untar": {4, 2}, "find warm": {1}})
	b := piece("b", map[string][]float64{"untar": {9}, "git checkout": {3}})
	var out bytes.Buffer
	if err := suite.Merge(&out, filepath.Join(dir, "all"), suites(), []string{a, b}); err != nil {
		t.Fatal(err)
	}
	r, err := report.Load(filepath.Join(dir, "all", "io.json"))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]float64{"untar": 4, "find warm": 1, "git checkout": 3} {
		if m, ok := report.ValueOf(r.Metrics, "snapfs uring", name); !ok || m.Value != want {
			t.Errorf("%s: %v, want %v", name, m.Value, want)
		}
	}
	if len(r.Floors) != 3 || len(r.Earlier) != 1 {
		t.Errorf("%d floors and %d earlier runs, want 3 and 1", len(r.Floors), len(r.Earlier))
	}
}
