package report

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// PrintMarkdown writes a report as tables for a page: where it comes from, a table per case with the best of each
// column in bold, and in what snapfs is behind.
func (r *Report) PrintMarkdown(w io.Writer) {
	fmt.Fprintf(w, "`%s`, %s, %s.\n", r.Command, r.Date.Format(time.DateOnly), r.Machine)
	if r.Remark != "" {
		fmt.Fprintf(w, "%s.\n", r.Remark)
	}
	for _, t := range r.Earlier {
		fmt.Fprintf(
			w, "Also from `%s`, %s, snapfs %s. %s\n", t.Command, t.Date.Format(time.DateOnly), t.Version, t.Remark,
		)
	}
	for _, c := range r.Cases() {
		metrics := r.OfCase(c)
		columns := Unique(metrics, func(m Metric) string { return m.Name })
		rows := Unique(metrics, func(m Metric) string { return m.Subject })
		at := func(row, column string) (Metric, bool) { return ValueOf(metrics, row, column) }
		if r.Transposed {
			rows, columns = columns, rows
			at = func(row, column string) (Metric, bool) { return ValueOf(metrics, column, row) }
		}
		fmt.Fprintf(w, "\n%s: %s\n\n| |", c, r.About[c])
		for _, column := range columns {
			unit := ""
			for _, m := range metrics {
				if m.Name == column && m.Unit != "" {
					unit = " " + m.Unit
					break
				}
			}
			fmt.Fprintf(w, " %s%s |", column, unit)
		}
		fmt.Fprintf(w, "\n|-|%s\n", strings.Repeat("-|", len(columns)))
		for _, row := range rows {
			fmt.Fprintf(w, "| %s |", row)
			for _, column := range columns {
				text := ""
				if m, ok := at(row, column); ok {
					text = Figure(m.Value)
					if best, compared := bestOf(metrics, m.Name); compared && best.Subject == m.Subject {
						text = "**" + text + "**"
					}
				}
				fmt.Fprintf(w, " %s |", text)
			}
			fmt.Fprintln(w)
		}
	}
	if behind := r.behind(); len(behind) > 0 {
		fmt.Fprintf(w, "\nWhere snapfs is behind: %s.\n", strings.Join(behind, "; "))
	}
	for _, n := range r.Notes {
		fmt.Fprintf(w, "\nNote: %s.\n", n)
	}
}

// bestOf gives the best figure of a metric, and whether snapfs and others have one; how often something was done is no
// merit.
func bestOf(metrics []Metric, name string) (best Metric, compared bool) {
	if name == "rounds" || name == "verified" {
		return best, false
	}
	ours, others := false, false
	for _, m := range metrics {
		if m.Name != name || m.Subject == ExponentRow {
			continue
		}
		if !ours && !others || m.better(best) {
			best = m
		}
		ours, others = ours || IsOurs(m.Subject), others || !IsOurs(m.Subject)
	}
	return best, ours && others
}

// behind lists, for each case and metric in which a peer is better than snapfs, by how much. Differences that
// comparisons take for noise of bytes are told, too: a page that says who is best is held to it.
func (r *Report) behind() []string {
	var out []string
	for _, c := range r.Cases() {
		metrics := r.OfCase(c)
		for _, name := range Unique(metrics, func(m Metric) string { return m.Name }) {
			var ours []Metric
			for _, m := range metrics {
				if m.Name == name && IsOurs(m.Subject) {
					ours = append(ours, m)
				}
			}
			best, compared := bestOf(metrics, name)
			if !compared || IsOurs(best.Subject) {
				continue
			}
			our := ours[0]
			for _, m := range ours {
				if m.better(our) {
					our = m
				}
			}
			if our.Value != best.Value {
				out = append(
					out,
					fmt.Sprintf(
						"%s, %s: %s %s %s, %s %s", c, name, best.Subject, Figure(best.Value), best.Unit, our.Subject,
						Figure(our.Value),
					),
				)
			}
		}
	}
	return out
}
