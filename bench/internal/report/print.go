package report

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Print writes one table per case: a row per subject, a column per metric.
func (r *Report) Print(w io.Writer) {
	fmt.Fprintf(w, "suite %s, %s\n%s\n", r.Suite, r.Date.Format(time.RFC3339), r.Machine)
	for line := range strings.Lines(r.Machine.ProgramLines(100)) {
		fmt.Fprint(w, line)
	}
	fmt.Fprintln(w)
	for _, c := range r.Cases() {
		if r.Transposed {
			r.printRatios(w, c)
			r.PrintFloors(w, c)
			continue
		}
		metrics := r.OfCase(c)
		names := Unique(metrics, func(m Metric) string { return m.Name + " " + m.Unit })
		fmt.Fprintf(w, "\n%s: %s\n", c, r.About[c])
		tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintf(tw, "\t%s\t\n", strings.Join(names, "\t"))
		for _, s := range Unique(metrics, func(m Metric) string { return m.Subject }) {
			row := make([]string, len(names))
			for _, m := range metrics {
				if m.Subject == s {
					row[slices.Index(names, m.Name+" "+m.Unit)] = Figure(m.Value)
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
