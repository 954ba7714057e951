package threeway

import (
	"context"
	"slices"

	"snapfs/layers"
)

// Resolve says what becomes of conflicts.
type Resolve int

// Conflicts are listed, or become what the target or the other side has. Markers puts both versions of conflicting lines
// into texts, and lists the other conflicts.
const (
	Stop Resolve = iota
	Ours
	Theirs
	Markers
)

// Input is what a plan is made from.
type Input struct {
	Base, From, Target Tree
	FromChanges        []layers.Change // that lead from the base to From
	// TargetChanges lead from the base to Target. What has moved there is not known without them.
	TargetChanges []layers.Change
	Resolve       Resolve
	// OurName and TheirName stand behind markers.
	OurName, TheirName string
}

// Kinds of conflicts.
const (
	BothChanged    = "both changed"
	DeletedChanged = "deleted/changed"
	BothAdded      = "added/added"
	Modes          = "mode/mode"
	Owners         = "owner/owner"
	Attributes     = "attribute/attribute"
	DirectoryFile  = "directory/file"
	BothRenamed    = "rename/rename"
	Types          = "type/type"
)

// Conflict is something that both sides changed in different ways.
type Conflict struct {
	Kind string
	Path string // in the target if it is there, else in From
	What string // text, binary, or what has become of it on which side
}

// Plan is what is to be done with the target: first Takes, then Puts, then Sets, and Dirs last.
type Plan struct {
	Takes     []Take // what is in a directory before the directory
	Puts      []Put  // a directory before what is in it, hard links last
	Sets      []Set
	Dirs      []Dir // what is in a directory before the directory
	Conflicts []Conflict
	Merged    int // texts that both sides had changed
}

// Take takes something away from where it is in the target.
type Take struct {
	Path  string
	Dir   bool
	Moved bool // a Put has it as Old
}

// Put puts something where nothing is.
type Put struct {
	Path string
	Old  string // where it was in the target; "" if it is new
	New  File   // of From; nil if it has moved
	Link string // the path of what it is another name of; "" if it has a file of its own
}

// Set changes what is there. Nil fields stay.
type Set struct {
	Path    string
	From    File    // has the wanted times if Times is set, and the contents if Contents is set
	Mode    *uint32 // permissions
	Owner   *[2]uint32
	Xattrs  map[string]*string // nil removes one
	Text    []byte             // merged contents, if Merged is set
	Merged  bool
	Content bool // contents of From
	Times   bool // modification time of From
}

// Dir sets the times of a directory in which something changes: those that it has on the side that changed it last.
type Dir struct {
	Path string
	As   File
}

// Empty reports whether there is nothing to do.
func (p *Plan) Empty() bool { return len(p.Takes)+len(p.Puts)+len(p.Sets) == 0 }

// Changes are what a plan does, in the words of a diff, in the order of paths.
func (p *Plan) Changes() []layers.Change {
	gone, all := map[string]bool{}, map[string]layers.Change{}
	for _, t := range p.Takes {
		if !t.Moved {
			gone[t.Path] = true
		}
	}
	for _, s := range p.Sets {
		all[s.Path] = layers.Change{Kind: layers.Modified, Path: s.Path}
	}
	for _, put := range p.Puts {
		c := layers.Change{Kind: layers.Added, Path: put.Path}
		if put.New == nil {
			c.Kind, c.OldPath = layers.Renamed, put.Old
		} else if gone[put.Path] {
			c.Kind = layers.Modified
		}
		delete(gone, put.Path)
		all[put.Path] = c
	}
	for path := range gone {
		all[path] = layers.Change{Kind: layers.Deleted, Path: path}
	}
	out := make([]layers.Change, 0, len(all))
	for _, c := range all {
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b layers.Change) int { return ComparePaths(a.Path, b.Path) })
	return out
}

// planner makes one plan.
type planner struct {
	Input
	ctx  context.Context
	f, t *side
	plan Plan

	taken   map[string]*Take  // by path in the target
	put     map[string]bool   // paths afterwards of what is new
	doomed  []doomed          // directories that From has no more
	united  map[string]string // paths in the target of new directories that both sides have, by paths in From
	skipped map[string]bool   // paths in From of what stays away, with all that is in it
	names   map[uint64][]string

	mergedBytes int64
}

// doomed is a directory that is to go when nothing is left in it.
type doomed struct {
	path string // in the target
	must string // path in From of what comes in its place; "" if nothing does
}

// Make plans. It fails only if a tree cannot be read, or when ctx is done.
func Make(ctx context.Context, in Input) (*Plan, error) {
	p := &planner{
		Input: in, ctx: ctx, f: newSide(in.From, in.FromChanges), t: newSide(in.Target, in.TargetChanges),
		taken: map[string]*Take{}, put: map[string]bool{}, united: map[string]string{}, skipped: map[string]bool{},
	}
	gone, err := p.f.overwritten(in.Base)
	if err != nil {
		return nil, err
	}
	if _, err := p.t.overwritten(in.Base); err != nil {
		return nil, err
	}
	for _, c := range in.FromChanges {
		if c.Kind == layers.Deleted {
			gone = append(gone, c.Path)
		}
	}
	for _, path := range gone {
		if err := p.remove(path); err != nil {
			return nil, err
		}
	}
	var moves []layers.Change
	for _, c := range in.FromChanges {
		if c.Kind == layers.Renamed {
			ok, err := p.takeMoved(c)
			if err != nil {
				return nil, err
			}
			if ok {
				moves = append(moves, c)
			}
		}
	}
	for _, c := range in.FromChanges {
		if c.Kind == layers.Retyped {
			if err := p.takeRetyped(c); err != nil {
				return nil, err
			}
		}
	}
	if err := p.emptied(); err != nil {
		return nil, err
	}
	if err := p.places(moves); err != nil {
		return nil, err
	}
	if err := p.directories(); err != nil {
		return nil, err
	}
	p.finish()
	return &p.plan, p.ctx.Err()
}

// places plans what comes, and what changes where it is.
func (p *planner) places(moves []layers.Change) error {
	all := slices.Clone(moves)
	for _, c := range p.FromChanges {
		if c.Kind == layers.Added || c.Kind == layers.Modified || c.Kind == layers.Retyped {
			all = append(all, c)
		}
	}
	slices.SortStableFunc(all, func(a, b layers.Change) int { return ComparePaths(a.Path, b.Path) })
	for _, c := range all {
		if err := p.ctx.Err(); err != nil {
			return err
		}
		if p.skips(c.Path) {
			continue
		}
		var err error
		switch c.Kind {
		case layers.Renamed:
			err = p.place(c)
		case layers.Added:
			err = p.add(c.Path)
		case layers.Modified:
			err = p.modify(c.Path)
		case layers.Retyped:
			err = p.putNew(c.Path)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// ComparePaths orders a directory right before what is in it.
func ComparePaths(a, b string) int {
	for i := 0; i < len(a) && i < len(b); i++ {
		if a[i] != b[i] {
			switch {
			case a[i] == '/':
				return -1
			case b[i] == '/':
				return 1
			}
			return int(a[i]) - int(b[i])
		}
	}
	return len(a) - len(b)
}

// skips reports whether something of From stays away.
func (p *planner) skips(path string) bool {
	for len(p.skipped) > 0 {
		if p.skipped[path] {
			return true
		}
		if path == "" {
			return false
		}
		path, _ = Split(path)
	}
	return false
}

// conflict notes a conflict, and says what becomes of it: the target's side stays, the other is taken, or neither,
// because it is listed.
func (p *planner) conflict(kind, path, what string) (theirs bool) {
	switch p.Resolve {
	case Theirs:
		return true
	case Ours:
		return false
	}
	p.plan.Conflicts = append(p.plan.Conflicts, Conflict{kind, path, what})
	return false
}

// final is the path that an entity of the base has afterwards.
func (p *planner) final(base string) string {
	if base == "" {
		return ""
	}
	if path, ok := p.f.to[base]; ok {
		dir, name := Split(path)
		return Join(p.finalFrom(dir), name)
	}
	if path, ok := p.t.to[base]; ok {
		dir, name := Split(path)
		return Join(p.finalOf(p.t, dir), name)
	}
	dir, name := Split(base)
	return Join(p.final(dir), name)
}

// finalFrom is the path that something of From has afterwards.
func (p *planner) finalFrom(path string) string { return p.finalOf(p.f, path) }

func (p *planner) finalOf(s *side, path string) string {
	if b, ok := s.base(path); ok {
		return p.final(b)
	}
	dir, name := Split(path)
	return Join(p.finalOf(s, dir), name)
}

// inTarget is the path in the target of a directory of From; false if it is not there.
func (p *planner) inTarget(path string) (string, bool) {
	if at, ok := p.united[path]; ok {
		return at, true
	}
	b, ok := p.f.base(path)
	if !ok {
		return "", false
	}
	return p.t.now(b)
}

func later(a, b layers.Time) bool { return a.Sec > b.Sec || a.Sec == b.Sec && a.Nsec > b.Nsec }

// directories lists those in which something changes.
func (p *planner) directories() error {
	met := map[string]bool{}
	note := func(path string) error {
		for ; !met[path]; path, _ = Split(path) {
			met[path] = true
			f, err := p.From.Lstat(path)
			if err != nil || !isDir(f) || p.skips(path) {
				return err
			}
			dest := p.finalFrom(path)
			if !p.put[dest] {
				base, ok := p.f.base(path)
				if !ok {
					return nil
				}
				_, old, now, err := p.both(base)
				if err != nil || !isDir(old) || !isDir(now) {
					return err
				}
				if m := now.Stat().Mtime; m != old.Stat().Mtime && later(m, f.Stat().Mtime) {
					f = now
				}
			}
			p.plan.Dirs = append(p.plan.Dirs, Dir{dest, f})
			if !p.put[dest] {
				return nil
			}
		}
		return nil
	}
	for _, c := range p.FromChanges {
		paths := []string{c.Path}
		if c.Kind == layers.Deleted {
			paths = nil
		}
		if c.Kind == layers.Renamed || c.Kind == layers.Deleted {
			old := c.OldPath
			if c.Kind == layers.Deleted {
				old = c.Path
			}
			dir, _ := Split(old)
			if at, ok := p.f.now(dir); ok {
				paths = append(paths, Join(at, "x"))
			}
		}
		for _, path := range paths {
			dir, _ := Split(path)
			if err := note(dir); err != nil {
				return err
			}
		}
		if c.Kind == layers.Added || c.Kind == layers.Retyped {
			if err := note(c.Path); err != nil {
				return err
			}
		}
	}
	slices.SortStableFunc(p.plan.Dirs, func(a, b Dir) int { return ComparePaths(b.Path, a.Path) })
	return nil
}

// finish puts everything in order.
func (p *planner) finish() {
	for _, t := range p.taken {
		p.plan.Takes = append(p.plan.Takes, *t)
	}
	slices.SortFunc(p.plan.Takes, func(a, b Take) int { return ComparePaths(b.Path, a.Path) })
	slices.SortStableFunc(p.plan.Puts, func(a, b Put) int {
		if (a.Link == "") != (b.Link == "") {
			if a.Link == "" {
				return -1
			}
			return 1
		}
		return ComparePaths(a.Path, b.Path)
	})
	slices.SortStableFunc(p.plan.Sets, func(a, b Set) int { return ComparePaths(a.Path, b.Path) })
	slices.SortStableFunc(p.plan.Conflicts, func(a, b Conflict) int { return ComparePaths(a.Path, b.Path) })
}
