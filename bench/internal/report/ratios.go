package report

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

// The subjects that others are compared with: the table has a column of ratios for each, the chart is in units of
// the first.
const (
	Baseline       = "overlayfs"
	SecondBaseline = "fuse-overlayfs"
)

// printRatios writes a case with a row per metric, a column per subject, and for each subject that is snapfs its
// ratios: of times or of throughputs, so that a time below 1 and a throughput above 1 are better than the other's.
// Processor times are a table of their own.
func (r *Report) printRatios(w io.Writer, c string) {
	metrics := r.OfCase(c)
	var wall, cpu []Metric
	for _, m := range metrics {
		if strings.HasSuffix(m.Name, CPUSuffix) || strings.HasSuffix(m.Name, ServerSuffix) {
			cpu = append(cpu, m)
		} else {
			wall = append(wall, m)
		}
	}
	fmt.Fprintf(w, "\n%s: %s\n", c, r.About[c])
	printTable(w, wall)
	if len(cpu) > 0 {
		fmt.Fprintf(w, "\n%s: processor time of programs and server together, and of the server\n", c)
		printTable(w, cpu)
	}
	fmt.Fprintln(w)
	prefix := c + ": "
	for _, key := range slices.Sorted(maps.Keys(r.Requests)) {
		if what, ok := strings.CutPrefix(key, prefix); ok {
			fmt.Fprintf(w, "requests, %s: %s\n", what, spell(r.Requests[key]))
		}
	}
}

func printTable(w io.Writer, metrics []Metric) {
	subjects := Unique(metrics, func(m Metric) string { return m.Subject })
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	head := "\t\t" + strings.Join(subjects, "\t")
	for _, s := range subjects {
		if strings.HasPrefix(s, "snapfs") {
			head += "\t" + s + " / " + Baseline + "\t/ " + SecondBaseline
		}
	}
	fmt.Fprintf(tw, "%s\t\n", head)
	for _, name := range Unique(metrics, func(m Metric) string { return m.Name }) {
		row := ""
		unit := ""
		for _, s := range subjects {
			m, ok := ValueOf(metrics, s, name)
			row += "\t"
			if ok {
				row += Figure(m.Value)
				unit = m.Unit
			}
		}
		for _, s := range subjects {
			if !strings.HasPrefix(s, "snapfs") {
				continue
			}
			m, ok := ValueOf(metrics, s, name)
			for _, to := range []string{Baseline, SecondBaseline} {
				row += "\t"
				if o, there := ValueOf(metrics, to, name); ok && there && o.Value > 0 {
					row += fmt.Sprintf("%.2f", m.Value/o.Value)
				}
			}
		}
		fmt.Fprintf(tw, "%s\t%s%s\t\n", name, unit, row)
	}
	_ = tw.Flush() // an error of w is the terminal's
}

// RunsKind is where requests are counted the number of runs that they are of.
const RunsKind = "runs"

// spell writes counts as text, the most frequent first.
func spell(n map[string]uint64) string {
	total := uint64(0)
	var kinds []string
	for k := range n {
		if k != RunsKind {
			total += n[k]
			kinds = append(kinds, k)
		}
	}
	slices.SortFunc(kinds, func(a, b string) int { return cmp.Or(cmp.Compare(n[b], n[a]), cmp.Compare(a, b)) })
	for i, k := range kinds {
		kinds[i] = fmt.Sprintf("%s %d", k, n[k])
	}
	text := fmt.Sprintf("%d: %s", total, strings.Join(kinds, ", "))
	if n[RunsKind] > 1 {
		text = fmt.Sprintf("%d runs, %s", n[RunsKind], text)
	}
	return text
}

// Processor time beside a workload's wall time is a figure of its own; these end its name.
const (
	CPUSuffix    = ", cpu"        // of the programs and of the process that serves the mount
	ServerSuffix = ", server cpu" // of that process alone
)
