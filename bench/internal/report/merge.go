package report

import (
	"fmt"
	"maps"
	"slices"
)

// Merge makes one report of those of one suite that was run in pieces: samples of the same figure are joined, and the
// figure is their median; of others the last report's counts.
func Merge(paths []string) (*Report, error) {
	var all *Report
	for _, path := range paths {
		r, err := Load(path)
		if err != nil {
			return nil, err
		}
		if all == nil {
			all = r
			continue
		}
		if r.Suite != all.Suite {
			return nil, fmt.Errorf("merge %s: a report of suite %s among those of %s", path, r.Suite, all.Suite)
		}
		all.merge(r)
	}
	return all, nil
}

// merge adds the figures of another report of the same suite.
func (r *Report) merge(o *Report) {
	if r.Machine.Kernel != o.Machine.Kernel || r.Machine.CPU != o.Machine.CPU {
		r.Note("figures of different machines: %s; %s", r.Machine, o.Machine)
	}
	if r.Machine.Version != o.Machine.Version {
		r.Note("figures of different versions: %s; %s", r.Machine.Version, o.Machine.Version)
	}
	r.Earlier = append(r.Earlier, taking{o.Date, o.Command, o.Machine.Version, o.Load, o.Remark})
	maps.Copy(r.About, o.About)
	for _, m := range o.Metrics {
		i := slices.IndexFunc(r.Metrics, func(n Metric) bool {
			return n.Case == m.Case && n.Subject == m.Subject && n.Name == m.Name
		})
		if i < 0 {
			r.Metrics = append(r.Metrics, m)
			continue
		}
		n := &r.Metrics[i]
		if len(m.Samples) == 0 { // nothing that could be joined: the later report counts
			*n = m
			continue
		}
		n.Samples = append(n.Samples, m.Samples...)
		n.Value = Median(n.Samples)
	}
	for _, n := range o.Notes {
		r.Note("%s", n)
	}
	if r.Requests == nil {
		r.Requests = map[string]map[string]uint64{}
	}
	maps.Copy(r.Requests, o.Requests)
	r.Floors = append(r.Floors, o.Floors...)
}
