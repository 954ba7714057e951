package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
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

	Samples []float64 `json:"samples,omitempty"` // of which Value is the median, if there are several
}

// taking is one run that a report has figures of.
type taking struct {
	Date    time.Time `json:"date"`
	Command string    `json:"command"`
	Version string    `json:"snapfs"`
	Load    float64   `json:"load"` // processes that wanted to run in the minute before
	Remark  string    `json:"remark,omitempty"`
}

// report is what a suite found. Filled by one goroutine.
type report struct {
	Suite   string            `json:"suite"`
	Date    time.Time         `json:"date"`
	Command string            `json:"command"`
	Machine machine           `json:"machine"`
	Earlier []taking          `json:"earlier,omitempty"` // runs whose figures --merge kept
	Load    float64           `json:"load"`
	Seconds float64           `json:"seconds"` // that the whole run took
	Remark  string            `json:"remark,omitempty"`
	About   map[string]string `json:"about"`             // of each case
	Digests map[string]string `json:"corpora,omitempty"` // of each corpus
	Metrics []metric          `json:"metrics"`
	Whole   []string          `json:"whole,omitempty"` // "case/subject" that were measured to the end
	Notes   []string          `json:"notes,omitempty"` // missing subjects, failures

	dir      string          // where it is saved
	failures int             // measurements that failed
	fresh    map[string]bool // "case/subject" that this run has measured, of a merged report

	// Requests counts, for suites of mounts, what the kernel asked of the server during a workload.
	Requests   map[string]map[string]uint64 `json:"requests,omitempty"`
	Floors     []floor                      `json:"floors,omitempty"`     // see floors.go
	Transposed bool                         `json:"transposed,omitempty"` // printed and drawn with a row per metric, see ratios.go
}

func newReport(ctx context.Context, suite, remark string) (*report, error) {
	m, err := thisMachine(ctx)
	if err != nil {
		return nil, err
	}
	return &report{
		Suite: suite, Date: time.Now().UTC().Truncate(time.Second), Machine: m, Remark: remark, Load: loadAverage(),
		About: map[string]string{}, Digests: map[string]string{}, fresh: map[string]bool{}, Command: commandLine(),
	}, nil
}

// commandLine is what was typed, as a shell would take it.
func commandLine() string {
	words := []string{"go run -C bench ."}
	for _, a := range os.Args[1:] {
		if strings.ContainsAny(a, " '\"$&|;<>()*?") {
			a = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
		words = append(words, a)
	}
	return strings.Join(words, " ")
}

// add takes a figure; the first one of a case and subject drops what an adopted report has of them.
func (r *report) add(m metric) {
	r.begin(m.Case, m.Subject)
	r.Metrics = append(r.Metrics, m)
}

// begin drops what an adopted report has of a case and subject, which is now measured anew.
func (r *report) begin(c, subject string) {
	key := c + "/" + subject
	if r.fresh == nil || r.fresh[key] {
		return
	}
	r.fresh[key] = true
	r.Metrics = slices.DeleteFunc(r.Metrics, func(m metric) bool { return m.Case == c && m.Subject == subject })
	r.Whole = slices.DeleteFunc(r.Whole, func(k string) bool { return k == key })
	r.Notes = slices.DeleteFunc(r.Notes, func(n string) bool { return strings.HasPrefix(n, subject+" on "+c+": ") })
}

// forget drops what was measured of a case and subject, half of which would be taken for all.
func (r *report) forget(c, subject string) {
	r.Metrics = slices.DeleteFunc(r.Metrics, func(m metric) bool { return m.Case == c && m.Subject == subject })
}

// whole says whether an adopted report has all of a case and subject.
func (r *report) whole(c, subject string) bool { return slices.Contains(r.Whole, c+"/"+subject) }

// adopt takes over the figures of an earlier report, if there is one and it is of the same machine.
func (r *report) adopt(path string) error {
	old, err := loadReport(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if !old.Machine.same(r.Machine) {
		return fmt.Errorf("%s is of another machine: %s", path, old.Machine)
	}
	r.Metrics, r.Notes, r.Whole, r.About, r.Requests = old.Metrics, old.Notes, old.Whole, old.About, old.Requests
	if old.Digests != nil {
		r.Digests = old.Digests
	}
	r.Earlier = append(old.Earlier, taking{old.Date, old.Command, old.Machine.Version, old.Load, old.Remark})
	return nil
}

// order sorts the figures by case and subject, as far as they are in the lists; others keep their places after them.
func (r *report) order(cases, subjects []string) {
	rank := func(list []string, name string) int {
		if i := slices.Index(list, name); i >= 0 {
			return i
		}
		return len(list)
	}
	slices.SortStableFunc(r.Metrics, func(a, b metric) int {
		return cmp.Or(cmp.Compare(rank(cases, a.Case), rank(cases, b.Case)), cmp.Compare(rank(subjects, a.Subject), rank(subjects, b.Subject)))
	})
}

// fail records that a measurement failed.
func (r *report) fail(format string, args ...any) {
	r.failures++
	r.note(format, args...)
}

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
	for line := range strings.Lines(r.Machine.tools(100)) {
		fmt.Fprint(w, line)
	}
	fmt.Fprintln(w)
	for _, c := range r.cases() {
		if r.Transposed {
			r.printRatios(w, c)
			r.printFloors(w, c)
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
	for _, b := range r.behind() {
		fmt.Fprintln(w, "behind:", b)
	}
	for _, n := range r.Notes {
		fmt.Fprintln(w, "note:", n)
	}
	if r.Seconds > 0 {
		fmt.Fprintf(w, "the whole took %v\n", time.Duration(r.Seconds*float64(time.Second)))
	}
	if r.Remark != "" {
		fmt.Fprintln(w, "remark:", r.Remark)
	}
	for _, t := range r.Earlier {
		fmt.Fprintf(w, "also from %s, snapfs %s: %s %s\n", t.Date.Format(time.RFC3339), t.Version, t.Command, t.Remark)
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
func (r *report) save() error {
	if err := r.keep(); err != nil {
		return err
	}
	return r.drawAll(r.dir)
}

// keep writes the figures so far, so that they survive the end of the run.
func (r *report) keep() error {
	if r.dir == "" {
		return nil
	}
	if err := os.MkdirAll(r.dir, 0o755); err != nil {
		return fmt.Errorf("save report: %w", err)
	}
	b, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return fmt.Errorf("save report: %w", err)
	}
	final := filepath.Join(r.dir, r.Suite+".json")
	if err := os.WriteFile(final+".new", append(b, '\n'), 0o644); err != nil {
		return fmt.Errorf("save report: %w", err)
	}
	if err := os.Rename(final+".new", final); err != nil {
		return fmt.Errorf("save report: %w", err)
	}
	return nil
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
