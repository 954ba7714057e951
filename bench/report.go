package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// metric is one measured figure.
type metric struct {
	Case    string  `json:"case"`    // a corpus, a size
	Subject string  `json:"subject"` // snapfs or a peer
	Name    string  `json:"name"`
	Unit    string  `json:"unit"`
	Value   float64 `json:"value"`
	More    bool    `json:"more_is_better,omitempty"`
}

// report is what a suite found. Filled by one goroutine.
type report struct {
	Suite   string            `json:"suite"`
	Date    time.Time         `json:"date"`
	Command string            `json:"command"`
	Machine machine           `json:"machine"`
	About   map[string]string `json:"about"` // of each case
	Metrics []metric          `json:"metrics"`
	Notes   []string          `json:"notes,omitempty"` // missing subjects, failures
	charts  []string          // names of metrics that are drawn

	// Requests counts, for suites of mounts, what the kernel asked of the server during a workload.
	Requests   map[string]map[string]uint64 `json:"requests,omitempty"`
	transposed bool                         // printed and drawn with a row per metric, see ratios.go
}

func newReport(ctx context.Context, suite string) (*report, error) {
	m, err := thisMachine(ctx)
	if err != nil {
		return nil, err
	}
	return &report{
		Suite: suite, Date: time.Now().UTC().Truncate(time.Second), Machine: m, About: map[string]string{},
		Command: "go run ./bench " + strings.Join(os.Args[1:], " "),
	}, nil
}

func (r *report) add(m metric) { r.Metrics = append(r.Metrics, m) }

// note records what the figures do not show; the same note once.
func (r *report) note(format string, args ...any) {
	if n := fmt.Sprintf(format, args...); !slices.Contains(r.Notes, n) {
		r.Notes = append(r.Notes, n)
	}
}

// unique gives the values of key in order of their first metric.
func unique(metrics []metric, key func(metric) string) []string {
	var out []string
	for _, m := range metrics {
		if k := key(m); !slices.Contains(out, k) {
			out = append(out, k)
		}
	}
	return out
}

func (r *report) ofCase(name string) []metric {
	var out []metric
	for _, m := range r.Metrics {
		if m.Case == name {
			out = append(out, m)
		}
	}
	return out
}

func (r *report) cases() []string {
	return unique(r.Metrics, func(m metric) string { return m.Case })
}

// print writes one table per case: a row per subject, a column per metric.
func (r *report) print(w io.Writer) {
	fmt.Fprintf(w, "suite %s, %s\n%s\n", r.Suite, r.Date.Format(time.RFC3339), r.Machine)
	for _, c := range r.cases() {
		if r.transposed {
			r.printRatios(w, c)
			continue
		}
		metrics := r.ofCase(c)
		names := unique(metrics, func(m metric) string { return m.Name + " " + m.Unit })
		fmt.Fprintf(w, "\n%s: %s\n", c, r.About[c])
		tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintf(tw, "\t%s\t\n", strings.Join(names, "\t"))
		for _, s := range unique(metrics, func(m metric) string { return m.Subject }) {
			row := make([]string, len(names))
			for _, m := range metrics {
				if m.Subject == s {
					row[slices.Index(names, m.Name+" "+m.Unit)] = figure(m.Value)
				}
			}
			fmt.Fprintf(tw, "%s\t%s\t\n", s, strings.Join(row, "\t"))
		}
		_ = tw.Flush() // an error of w is the terminal's
	}
	for _, n := range r.Notes {
		fmt.Fprintln(w, "note:", n)
	}
}

// figure prints a value with three significant digits or more.
func figure(v float64) string {
	switch {
	case v == 0:
		return "0"
	case v < 1:
		return strconv.FormatFloat(v, 'g', 3, 64)
	case v < 100:
		return strconv.FormatFloat(v, 'f', 2, 64)
	default:
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
}

// save writes the report as JSON and its charts beside it.
func (r *report) save(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("save report: %w", err)
	}
	b, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return fmt.Errorf("save report: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, r.Suite+".json"), append(b, '\n'), 0o644); err != nil {
		return fmt.Errorf("save report: %w", err)
	}
	return r.drawAll(dir)
}

func loadReport(path string) (*report, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("load report: %w", err)
	}
	var r report
	if err := json.Unmarshal(b, &r); err != nil {
		return nil, fmt.Errorf("load report %s: %w", path, err)
	}
	return &r, nil
}

// compareReports prints every figure that differs by more than noise, the worst first.
func compareReports(w io.Writer, oldPath, newPath string) error {
	const noise = 0.02
	before, err := loadReport(oldPath)
	if err != nil {
		return err
	}
	after, err := loadReport(newPath)
	if err != nil {
		return err
	}
	type change struct {
		m     metric
		old   float64
		worse float64 // ratio, above 1 is worse
	}
	var changes []change
	gone := 0
	for _, m := range before.Metrics {
		i := slices.IndexFunc(after.Metrics, func(n metric) bool {
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
		if c.worse > 1+noise || c.worse < 1-noise {
			changes = append(changes, c)
		}
	}
	slices.SortStableFunc(changes, func(a, b change) int { return cmp.Compare(b.worse, a.worse) })
	fmt.Fprintf(w, "old: %s, %s\nnew: %s, %s\n", before.Date.Format(time.DateOnly), before.Machine, after.Date.Format(time.DateOnly), after.Machine)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, c := range changes {
		verdict := "better"
		if c.worse > 1 {
			verdict = "WORSE"
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s → %s %s\t%+.1f %%\n",
			verdict, c.m.Case, c.m.Subject, c.m.Name, figure(c.old), figure(c.m.Value), c.m.Unit, 100*(c.m.Value/c.old-1))
	}
	if err := tw.Flush(); err != nil {
		return fmt.Errorf("print comparison: %w", err)
	}
	fmt.Fprintf(w, "%d of %d figures differ by more than %.0f %%", len(changes), len(before.Metrics), 100*noise)
	if gone > 0 {
		fmt.Fprintf(w, ", %d are missing from the new report", gone)
	}
	fmt.Fprintln(w)
	return nil
}
