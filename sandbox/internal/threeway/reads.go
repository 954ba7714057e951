package threeway

import (
	"context"
	"slices"
	"strings"

	"snapfs/internal/readset"
	"snapfs/layers"
)

// StaleRead is something that programs of From have read and that is not so in the target any more.
type StaleRead struct {
	Path   string // as Reads has it
	Kinds  readset.Kind
	Change layers.Kind // by the target, of it or of what is in it
	Coarse bool        // only of a directory above is known that something in it was read
}

// Reads are what programs of From have read.
type Reads struct {
	*readset.Index
	// Name gives the path by which the index has an entity of the base; false if it has none.
	Name func(base string) (string, bool)
}

// StaleReads lists the reads that changes of the target have made untrue, in the order of paths: contents that changed,
// names that came or went in directories that were listed, names that were missing and are there, and what was read in
// any way and is not there any more, or has another mode, owner or attribute. Sizes and times alone make none untrue.
func StaleReads(ctx context.Context, in Input, reads Reads) ([]StaleRead, error) {
	s := &staleReads{
		planner: planner{Input: in, ctx: ctx, t: newSide(in.Target, in.TargetChanges)},
		reads:   reads, at: map[string]int{},
	}
	gone, err := s.t.overwritten(in.Base)
	if err != nil {
		return nil, err
	}
	for _, path := range gone {
		s.gone(path, layers.Deleted)
	}
	for _, c := range in.TargetChanges {
		switch c.Kind {
		case layers.Deleted:
			s.gone(c.Path, c.Kind)
		case layers.Added:
			s.come(c)
		case layers.Renamed:
			s.gone(c.OldPath, c.Kind)
			s.come(c)
		case layers.Retyped:
			if base, ok := s.t.base(c.Path); ok {
				s.entity(base, c.Kind)
			}
		case layers.Modified:
			if err := s.modified(c); err != nil {
				return nil, err
			}
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(s.found, func(a, b StaleRead) int { return strings.Compare(a.Path, b.Path) })
	return s.found, nil
}

// staleReads gathers them.
type staleReads struct {
	planner
	reads Reads
	found []StaleRead
	at    map[string]int // in found, by path
}

// read notes those kinds of reads of a path of the index that were made.
func (s *staleReads) read(path string, kinds readset.Kind, how layers.Kind) {
	have, coarse := s.reads.Of(path)
	if have &= kinds; have == 0 {
		return
	}
	i, known := s.at[path]
	if !known {
		i = len(s.found)
		s.at[path] = i
		s.found = append(s.found, StaleRead{Path: path, Change: how, Coarse: coarse})
	}
	s.found[i].Kinds |= have
}

// entity notes that something of the base is not what it was.
func (s *staleReads) entity(base string, how layers.Kind) {
	path, ok := s.reads.Name(base)
	if !ok {
		return
	}
	s.read(path, readset.All&^readset.Missing, how)
	if r, ok := s.reads.Below(path); ok {
		s.read(r.Path, r.Kinds, how)
	}
}

// gone notes that something of the base is not there any more.
func (s *staleReads) gone(base string, how layers.Kind) {
	s.entity(base, how)
	dir, _ := Split(base)
	if path, ok := s.reads.Name(dir); ok {
		s.read(path, readset.Listing, how)
	}
}

// come notes that there is something where nothing was.
func (s *staleReads) come(c layers.Change) {
	dir, name := Split(c.Path)
	base, ok := s.t.base(dir)
	if !ok {
		return // nothing can have been read of what is new
	}
	if path, ok := s.reads.Name(base); ok {
		s.read(path, readset.Listing, c.Kind)
		s.read(Join(path, name), readset.Missing, c.Kind)
	}
}

// modified notes what of a change was read.
func (s *staleReads) modified(c layers.Change) error {
	base, ok := s.t.base(c.Path)
	if !ok {
		return nil
	}
	path, ok := s.reads.Name(base)
	if !ok {
		return nil
	}
	have, _ := s.reads.Of(path)
	dir, _ := Split(path)
	listed, _ := s.reads.Of(dir)
	if have&^readset.Missing == 0 && listed&readset.Listing == 0 {
		return nil
	}
	old, err := s.Base.Lstat(base)
	if err != nil {
		return err
	}
	now, err := s.Target.Lstat(c.Path)
	if err != nil || old == nil || now == nil {
		return err
	}
	if have&readset.Content != 0 {
		same, err := Same(s.ctx, old, now)
		if err != nil {
			return err
		}
		if !same {
			s.read(path, readset.Content, c.Kind)
		}
	}
	kept, err := sameAttributes(old, now)
	if err != nil || kept {
		return err
	}
	s.read(path, readset.Attributes, c.Kind)
	if path != "" { // a listing tells the kernel what stat shows
		s.read(dir, readset.Listing, c.Kind)
	}
	return nil
}

// Now gives where entities of a tree are after changes that lead to another, t; false for what is not there.
func Now(t Tree, changes []layers.Change) func(path string) (string, bool) {
	return newSide(t, changes).now
}

// Before gives where what is in a tree, t, was before the changes that led to it; false for what was not there.
func Before(t Tree, changes []layers.Change) func(path string) (string, bool) {
	return newSide(t, changes).base
}
