package suite

import (
	"fmt"
	"io"
	"slices"

	"snapfs/bench/internal/report"
)

// Merge makes one report of those of one suite that was run in pieces, prints it and saves it into dir.
func Merge(w io.Writer, dir string, list []Suite, paths []string) error {
	r, err := report.Merge(paths)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(list, func(s Suite) bool { return s.Name == r.Suite })
	if i < 0 {
		return fmt.Errorf("merge: no suite %q", r.Suite)
	}
	if s := list[i]; s.Judge != nil && len(r.Floors) > 0 {
		s.Judge(r)
	}
	r.Print(w)
	r.Dir = dir
	return save(r, list[i])
}
