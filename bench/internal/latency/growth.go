package latency

import (
	"strings"

	"snapfs/bench/internal/report"
)

// growth adds, for every subject, how its times grow with the number of files: the exponent of a fitted power; 0 is not
// at all, 1 in proportion.
func growth(r *report.Report) {
	const c = "growth"
	var found []report.Metric
	for _, subject := range report.Unique(r.Metrics, func(m report.Metric) string { return m.Subject }) {
		for _, name := range report.Unique(r.Metrics, func(m report.Metric) string { return m.Name }) {
			if !strings.HasSuffix(name, " p50") {
				continue
			}
			if e, ok := report.Exponent(report.Points(r, subject, name, report.FilesCases)); ok {
				found = append(
					found,
					report.Metric{
						Case: c, Subject: subject, Name: strings.TrimSuffix(name, " p50"), Unit: "exp", Value: e,
					},
				)
			}
		}
	}
	for _, m := range found {
		r.Add(m)
	}
	if len(found) > 0 {
		r.About[c] = "exponent e of time = c * files^e, fitted to the medians: " +
			"0 is independent of the size, 1 in proportion to it"
	}
}
