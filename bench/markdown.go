package main

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// printMarkdown writes a report as tables for a page: where it comes from, a table per case with the best of each column in
// bold, and in what snapfs is behind.
func (r *report) printMarkdown(w io.Writer) {
	fmt.Fprintf(w, "`%s`, %s, %s.\n", r.Command, r.Date.Format(time.DateOnly), r.Machine)
	if r.Remark != "" {
		fmt.Fprintf(w, "%s.\n", r.Remark)
	}
	for _, t := range r.Earlier {
		fmt.Fprintf(w, "Also from `%s`, %s, snapfs %s. %s\n", t.Command, t.Date.Format(time.DateOnly), t.Version, t.Remark)
	}
	for _, c := range r.cases() {
		metrics := r.ofCase(c)
		columns := unique(metrics, func(m metric) string { return m.Name })
		rows := unique(metrics, func(m metric) string { return m.Subject })
		at := func(row, column string) (metric, bool) { return valueOf(metrics, row, column) }
		if r.Transposed {
			rows, columns = columns, rows
			at = func(row, column string) (metric, bool) { return valueOf(metrics, column, row) }
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
					text = figure(m.Value)
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

// bestOf gives the best figure of a metric, and whether snapfs and others have one; how often something was done is no merit.
func bestOf(metrics []metric, name string) (best metric, compared bool) {
	if name == "rounds" || name == "verified" {
		return best, false
	}
	ours, others := false, false
	for _, m := range metrics {
		if m.Name != name || m.Subject == exponentRow {
			continue
		}
		if !ours && !others || m.better(best) {
			best = m
		}
		ours, others = ours || isOurs(m.Subject), others || !isOurs(m.Subject)
	}
	return best, ours && others
}

// better says whether a figure is better than another of the same metric.
func (m metric) better(than metric) bool {
	if m.More {
		return m.Value > than.Value
	}
	return m.Value < than.Value
}

// behind tells, for each case and metric in which a peer is better than snapfs, by how much. Differences that comparisons take for noise of
// bytes are told, too: a page that says who is best is held to it.
func (r *report) behind() []string {
	var out []string
	for _, c := range r.cases() {
		metrics := r.ofCase(c)
		for _, name := range unique(metrics, func(m metric) string { return m.Name }) {
			var ours []metric
			for _, m := range metrics {
				if m.Name == name && isOurs(m.Subject) {
					ours = append(ours, m)
				}
			}
			best, compared := bestOf(metrics, name)
			if !compared || isOurs(best.Subject) {
				continue
			}
			our := ours[0]
			for _, m := range ours {
				if m.better(our) {
					our = m
				}
			}
			if our.Value != best.Value {
				out = append(out, fmt.Sprintf("%s, %s: %s %s %s, %s %s", c, name, best.Subject, figure(best.Value), best.Unit, our.Subject, figure(our.Value)))
			}
		}
	}
	return out
}
