package report

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"snapfs/bench/internal/machine"
)

// taking is one run that a report has figures of.
type taking struct {
	Date    time.Time `json:"date"`
	Command string    `json:"command"`
	Version string    `json:"snapfs"`
	Load    float64   `json:"load"` // processes that wanted to run in the minute before
	Remark  string    `json:"remark,omitempty"`
}

// Report is what a suite found. Filled by one goroutine.
type Report struct {
	Suite   string            `json:"suite"`
	Date    time.Time         `json:"date"`
	Command string            `json:"command"`
	Machine machine.Machine   `json:"machine"`
	Earlier []taking          `json:"earlier,omitempty"` // runs whose figures --merge kept
	Load    float64           `json:"load"`
	Seconds float64           `json:"seconds"` // that the whole run took
	Remark  string            `json:"remark,omitempty"`
	About   map[string]string `json:"about"`             // of each case
	Digests map[string]string `json:"corpora,omitempty"` // of each corpus
	Metrics []Metric          `json:"metrics"`
	Whole   []string          `json:"whole,omitempty"` // "case/subject" that were measured to the end
	Notes   []string          `json:"notes,omitempty"` // missing subjects, failures

	Dir      string          `json:"-"` // where it is saved; "": nowhere
	Failures int             `json:"-"` // measurements that failed
	fresh    map[string]bool // "case/subject" that this run has measured, of a merged report

	// Requests counts, for suites of mounts, what the kernel asked of the server during a workload.
	Requests   map[string]map[string]uint64 `json:"requests,omitempty"`
	Floors     []Floor                      `json:"floors,omitempty"`     // see floors.go
	Transposed bool                         `json:"transposed,omitempty"` // a row per metric, see ratios.go
}

// New begins the report of a suite on this machine.
func New(ctx context.Context, suite, remark string) (*Report, error) {
	m, err := machine.This(ctx)
	if err != nil {
		return nil, err
	}
	return &Report{
		Suite: suite, Date: time.Now().UTC().Truncate(time.Second), Machine: m, Remark: remark, Load: machine.Load(),
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

// Add takes a figure; the first one of a case and subject drops what an adopted report has of them.
func (r *Report) Add(m Metric) {
	r.Begin(m.Case, m.Subject)
	r.Metrics = append(r.Metrics, m)
}

// Begin drops what an adopted report has of a case and subject, which is now measured anew.
func (r *Report) Begin(c, subject string) {
	key := c + "/" + subject
	if r.fresh == nil || r.fresh[key] {
		return
	}
	r.fresh[key] = true
	r.Metrics = slices.DeleteFunc(r.Metrics, func(m Metric) bool { return m.Case == c && m.Subject == subject })
	r.Whole = slices.DeleteFunc(r.Whole, func(k string) bool { return k == key })
	r.Notes = slices.DeleteFunc(r.Notes, func(n string) bool { return strings.HasPrefix(n, subject+" on "+c+": ") })
}

// Forget drops what was measured of a case and subject, half of which would be taken for all.
func (r *Report) Forget(c, subject string) {
	r.Metrics = slices.DeleteFunc(r.Metrics, func(m Metric) bool { return m.Case == c && m.Subject == subject })
}

// IsWhole reports whether an adopted report has all of a case and subject.
func (r *Report) IsWhole(c, subject string) bool { return slices.Contains(r.Whole, c+"/"+subject) }

// Adopt takes over the figures of an earlier report, if there is one and it is of the same machine.
func (r *Report) Adopt(path string) error {
	old, err := Load(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if !old.Machine.Same(r.Machine) {
		return fmt.Errorf("%s is of another machine: %s", path, old.Machine)
	}
	r.Metrics, r.Notes, r.Whole, r.About, r.Requests = old.Metrics, old.Notes, old.Whole, old.About, old.Requests
	if old.Digests != nil {
		r.Digests = old.Digests
	}
	r.Earlier = append(old.Earlier, taking{old.Date, old.Command, old.Machine.Version, old.Load, old.Remark})
	return nil
}

// Order sorts the figures by case and subject, as far as they are in the lists; others keep their places after them.
func (r *Report) Order(cases, subjects []string) {
	rank := func(list []string, name string) int {
		if i := slices.Index(list, name); i >= 0 {
			return i
		}
		return len(list)
	}
	slices.SortStableFunc(r.Metrics, func(a, b Metric) int {
		return cmp.Or(
			cmp.Compare(rank(cases, a.Case), rank(cases, b.Case)),
			cmp.Compare(rank(subjects, a.Subject), rank(subjects, b.Subject)),
		)
	})
}

// Fail records that a measurement failed.
func (r *Report) Fail(format string, args ...any) {
	r.Failures++
	r.Note(format, args...)
}

// Note records what the figures do not show; the same note once.
func (r *Report) Note(format string, args ...any) {
	if n := fmt.Sprintf(format, args...); !slices.Contains(r.Notes, n) {
		r.Notes = append(r.Notes, n)
	}
}

// OfCase gives the figures of a case.
func (r *Report) OfCase(name string) []Metric {
	var out []Metric
	for _, m := range r.Metrics {
		if m.Case == name {
			out = append(out, m)
		}
	}
	return out
}

// Cases gives the names of all cases, in the order in which they were measured.
func (r *Report) Cases() []string {
	return Unique(r.Metrics, func(m Metric) string { return m.Case })
}

// Keep writes the figures so far, so that they survive the end of the run.
func (r *Report) Keep() error {
	if r.Dir == "" {
		return nil
	}
	if err := os.MkdirAll(r.Dir, 0o755); err != nil {
		return fmt.Errorf("save report: %w", err)
	}
	b, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return fmt.Errorf("save report: %w", err)
	}
	final := filepath.Join(r.Dir, r.Suite+".json")
	if err := os.WriteFile(final+".new", append(b, '\n'), 0o644); err != nil {
		return fmt.Errorf("save report: %w", err)
	}
	if err := os.Rename(final+".new", final); err != nil {
		return fmt.Errorf("save report: %w", err)
	}
	return nil
}

// Load reads a report that Keep has written.
func Load(path string) (*Report, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("load report: %w", err)
	}
	var r Report
	if err := json.Unmarshal(b, &r); err != nil {
		return nil, fmt.Errorf("load report %s: %w", path, err)
	}
	return &r, nil
}
