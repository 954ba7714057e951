package report

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"snapfs/bench/internal/usage"
)

// ErrWorse says that a figure of snapfs got worse by more than noise.
var ErrWorse = errors.New("worse than before")

// change is a figure of two reports.
type change struct {
	m     Metric
	old   float64
	worse float64 // ratio, above 1 is worse
}

// noiseOf is the ratio by which a figure may differ without meaning anything. Bytes hardly vary; wall time varies twice
// as much as processor time.
func noiseOf(m Metric, percent float64) float64 {
	const bytes = 1
	switch {
	case m.Unit == "MB" || m.Unit == "B" || m.Unit == "states":
		return 1 + bytes/100.
	case strings.Contains(m.Name, "cpu") || strings.Contains(m.Unit, "cpu"):
		return 1 + percent/100
	default:
		return 1 + 2*percent/100
	}
}

// isTime reports whether a figure depends on how fast the machine is.
func isTime(m Metric) bool { return m.Unit != "MB" && m.Unit != "B" && m.Unit != "states" }

// CompareAll compares two reports, or each report of one directory with the one of the same name in another.
func CompareAll(w io.Writer, oldPath, newPath string, noise float64) error {
	if noise < 0 {
		return usage.Errorf("--noise must not be negative")
	}
	fi, err := os.Stat(newPath)
	if err != nil {
		return usage.Errorf("compare: %w", err)
	}
	if !fi.IsDir() {
		if was, err := os.Stat(oldPath); err != nil {
			return usage.Errorf("compare: %w", err)
		} else if was.IsDir() {
			oldPath = filepath.Join(oldPath, filepath.Base(newPath))
		}
		return Compare(w, oldPath, newPath, noise)
	}
	reports, err := filepath.Glob(filepath.Join(newPath, "*.json"))
	if err != nil {
		return usage.Errorf("compare: %w", err)
	}
	found := false
	var all []error
	for _, after := range reports {
		before := filepath.Join(oldPath, filepath.Base(after))
		if !fileThere(before) {
			continue
		}
		found = true
		all = append(all, Compare(w, before, after, noise))
	}
	if !found {
		return usage.Errorf("compare: %s and %s have no report of the same name", oldPath, newPath)
	}
	return errors.Join(all...)
}

func fileThere(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// Compare prints every figure that differs by more than noise, in percent, the worst first. It ends with errWorse if
// one of snapfs's got worse; times of different machines do not count.
func Compare(w io.Writer, oldPath, newPath string, noise float64) error {
	before, err := Load(oldPath)
	if err != nil {
		return err
	}
	after, err := Load(newPath)
	if err != nil {
		return err
	}
	same := before.Machine.Same(after.Machine)
	changes, gone := changesOf(before, after, noise)
	fmt.Fprintf(w, "\n%s compared\nold: %s, %s\nnew: %s, %s\n", after.Suite,
		before.Date.Format(time.DateOnly), before.Machine, after.Date.Format(time.DateOnly), after.Machine)
	if !same {
		fmt.Fprintln(w, "different machines: times are shown, but only bytes count")
	}
	for c, digest := range after.Digests {
		if was := before.Digests[c]; was != "" && was != digest {
			fmt.Fprintf(w, "%s is not the same corpus: %.16s, was %.16s\n", c, digest, was)
		}
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	worse := 0
	for _, c := range changes {
		verdict := "better"
		if c.worse > 1 {
			verdict = "WORSE"
			if strings.HasPrefix(c.m.Subject, "snapfs") && (same || !isTime(c.m)) {
				worse++
			}
		}
		fmt.Fprintf(
			tw, "%s\t%s\t%s\t%s\t%s → %s %s\t%+.1f %%\n", verdict, c.m.Case, c.m.Subject, c.m.Name, Figure(c.old),
			Figure(c.m.Value), c.m.Unit, 100*(c.m.Value/c.old-1),
		)
	}
	if err := tw.Flush(); err != nil {
		return fmt.Errorf("print comparison: %w", err)
	}
	fmt.Fprintf(
		w, "%d of %d figures differ by more than noise (bytes 1 %%, CPU time %g %%, wall time %g %%)", len(changes),
		len(before.Metrics), noise, 2*noise,
	)
	if gone > 0 {
		fmt.Fprintf(w, ", %d are missing from the new report", gone)
	}
	fmt.Fprintln(w)
	if worse > 0 {
		return fmt.Errorf("%s: %d figures of snapfs: %w", after.Suite, worse, ErrWorse)
	}
	return nil
}

// changesOf gives what differs, the worst first, and how many figures the new report lacks.
func changesOf(before, after *Report, noise float64) (changes []change, gone int) {
	for _, m := range before.Metrics {
		i := slices.IndexFunc(after.Metrics, func(n Metric) bool {
			return n.Case == m.Case && n.Subject == m.Subject && n.Name == m.Name
		})
		if i < 0 {
			gone++
			continue
		}
		n := after.Metrics[i]
		if n.Value == m.Value || m.Value == 0 || n.Value == 0 {
			continue
		}
		c := change{m: n, old: m.Value, worse: n.Value / m.Value}
		if m.More {
			c.worse = 1 / c.worse
		}
		if limit := noiseOf(m, noise); c.worse > limit || c.worse < 1/limit {
			changes = append(changes, c)
		}
	}
	slices.SortStableFunc(changes, func(a, b change) int { return cmp.Compare(b.worse, a.worse) })
	return changes, gone
}
