package suite

import (
	"os"
	"slices"
	"strings"

	"snapfs/bench/internal/corpora"
	"snapfs/bench/internal/usage"
)

// Validate refuses names that no suite of the list knows.
func (e *Env) Validate(list []Suite) error {
	var subjects, workloads []string
	for _, s := range list {
		subjects = append(subjects, s.Subjects()...)
		if s.Workloads != nil {
			workloads = append(workloads, s.Workloads()...)
		}
	}
	slices.Sort(subjects)
	subjects = slices.Compact(subjects)
	for _, n := range e.Only {
		if !slices.Contains(subjects, n) {
			return usage.Errorf("no subject %q; there are: %s", n, strings.Join(subjects, ", "))
		}
	}
	for _, n := range e.Workloads {
		if !slices.ContainsFunc(workloads, func(w string) bool { return strings.HasPrefix(w, n) }) {
			return usage.Errorf("no workload begins with %q; there are: %s", n, strings.Join(workloads, ", "))
		}
	}
	for _, n := range e.Corpora {
		if !slices.Contains(corpora.Names(), n) {
			return usage.Errorf("no corpus %q; there are: %s", n, strings.Join(corpora.Names(), ", "))
		}
	}
	if e.Every < 1 || e.Limit < 1 || e.Rounds < 0 {
		return usage.Errorf("--every and --limit must be at least 1, --rounds must not be negative")
	}
	if !slices.Contains([]string{DiskAuto, DiskMemory, DiskHere}, e.Disk) {
		return usage.Errorf("--disk is %s, %s or %s", DiskAuto, DiskMemory, DiskHere)
	}
	if e.Noise < 0 {
		return usage.Errorf("--noise must not be negative")
	}
	if e.Repo != "" && len(e.Trees) > 0 {
		return usage.Errorf("--git and --tree exclude each other")
	}
	for _, t := range e.Trees {
		if fi, err := os.Stat(t); err != nil || !fi.IsDir() {
			return usage.Errorf("--tree %s: not a directory", t)
		}
	}
	return nil
}
