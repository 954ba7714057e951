package threeway

import (
	"slices"
	"strings"

	"snapfs/layers"
)

// remove plans the removal of what From has deleted.
func (p *planner) remove(base string) error {
	at, old, now, err := p.both(base)
	if now == nil || err != nil {
		return err
	}
	if isDir(old) && isDir(now) {
		p.doomed = append(p.doomed, doomed{path: at})
		return nil
	}
	changed, err := p.differs(old, now)
	if err != nil {
		return err
	}
	if _, moved := p.t.to[base]; changed || moved {
		what := "deleted in FROM, changed in the target"
		if !changed {
			what = "deleted in FROM, renamed in the target"
		}
		if !p.conflict(DeletedChanged, at, what) {
			return nil
		}
	}
	return p.takeTree(at, now)
}

// both gives an entity of the base and where and what it is in the target; now is nil if it is not there.
func (p *planner) both(base string) (at string, old, now File, err error) {
	if old, err = p.Base.Lstat(base); err != nil {
		return "", nil, nil, err
	}
	at, ok := p.t.now(base)
	if !ok {
		return "", old, nil, nil
	}
	now, err = p.Target.Lstat(at)
	return at, old, now, err
}

// takeTree takes something away, and all that is in it.
func (p *planner) takeTree(path string, f File) error {
	if isDir(f) {
		names, err := p.Target.List(path)
		if err != nil {
			return err
		}
		for _, name := range names {
			in, err := p.Target.Lstat(Join(path, name))
			if err != nil {
				return err
			}
			if in == nil || p.taken[Join(path, name)] != nil {
				continue
			}
			if err := p.takeTree(Join(path, name), in); err != nil {
				return err
			}
		}
	}
	if p.taken[path] == nil {
		p.taken[path] = &Take{Path: path, Dir: isDir(f)}
	}
	return nil
}

// takeMoved takes what From has moved from where it is in the target; false if it stays.
func (p *planner) takeMoved(c layers.Change) (bool, error) {
	at, old, now, err := p.both(c.OldPath)
	if err != nil {
		return false, err
	}
	if now == nil {
		if !p.conflict(DeletedChanged, c.Path, "renamed in FROM, deleted in the target") {
			p.skipped[c.Path] = true
			return false, nil
		}
		return false, p.addTree(c.Path)
	}
	if kind(old) != kind(now) && !p.conflict(Types, at, "renamed in FROM, of another type in the target") {
		p.stays(c)
		return false, nil
	}
	if moved, ok := p.t.to[c.OldPath]; ok {
		dir, name := Split(moved)
		if p.finalFrom(c.Path) == Join(p.finalOf(p.t, dir), name) {
			return false, nil
		}
		if !p.conflict(BothRenamed, at, "in FROM to "+c.Path) {
			p.stays(c)
			return false, nil
		}
	}
	if p.circle(c.Path) {
		p.plan.Conflicts = append(p.plan.Conflicts, Conflict{BothRenamed, at, "in FROM into what the target moved into it"})
		p.stays(c)
		return false, nil
	}
	p.taken[at] = &Take{Path: at, Dir: isDir(now), Moved: true}
	return true, nil
}

// stays leaves something of From where the target has it.
func (p *planner) stays(c layers.Change) {
	delete(p.f.to, c.OldPath)
}

// circle reports whether something would come to be inside itself.
func (p *planner) circle(path string) bool {
	met := map[string]bool{}
	for path != "" {
		if b, ok := p.f.base(path); ok {
			if met[b] {
				return true
			}
			met[b] = true
			if at, ok := p.f.to[b]; ok {
				path, _ = Split(at)
				continue
			}
			if at, ok := p.t.to[b]; ok { // the directory there, as an entity of the base, or one that only the target has
				dir, _ := Split(at)
				for dir != "" {
					if up, ok := p.t.base(dir); ok {
						at, there := p.f.now(up)
						if !there {
							return false
						}
						dir = at
						break
					}
					dir, _ = Split(dir)
				}
				path = dir
				continue
			}
		}
		path, _ = Split(path)
	}
	return false
}

// takeRetyped takes away what is something else in From.
func (p *planner) takeRetyped(c layers.Change) error {
	base, _ := p.f.base(c.Path)
	at, old, now, err := p.both(base)
	if err != nil {
		return err
	}
	if now == nil {
		if !p.conflict(DeletedChanged, c.Path, "of another type in FROM, deleted in the target") {
			p.skipped[c.Path] = true
		}
		return nil
	}
	if isDir(old) && isDir(now) {
		p.doomed = append(p.doomed, doomed{at, c.Path})
		return nil
	}
	changed, err := p.differs(old, now)
	if err != nil {
		return err
	}
	if changed {
		wanted, err := p.From.Lstat(c.Path)
		if err != nil {
			return err
		}
		if same, err := p.alike(wanted, now); err != nil || same {
			p.skipped[c.Path] = same
			return err
		}
		if !p.conflict(Types, at, "of another type in FROM, changed in the target") {
			p.skipped[c.Path] = true
			return nil
		}
	}
	return p.takeTree(at, now)
}

// emptied takes the directories away that From has no more and in which nothing is left.
func (p *planner) emptied() error {
	slices.SortFunc(p.doomed, func(a, b doomed) int { return ComparePaths(b.path, a.path) })
	for _, d := range p.doomed {
		names, err := p.Target.List(d.path)
		if err != nil {
			return err
		}
		left := slices.ContainsFunc(names, func(name string) bool { return p.taken[Join(d.path, name)] == nil })
		switch {
		case !left:
			if p.taken[d.path] == nil {
				p.taken[d.path] = &Take{Path: d.path, Dir: true}
			}
		case d.must == "":
		case p.conflict(DirectoryFile, d.path, "no directory in FROM, new files in the target"):
			f, err := p.Target.Lstat(d.path)
			if err != nil {
				return err
			}
			if err := p.takeTree(d.path, f); err != nil {
				return err
			}
		default: // it stays with what From has deleted in it
			p.skipped[d.must] = true
			for path, t := range p.taken {
				if strings.HasPrefix(path, d.path+"/") && !t.Moved {
					delete(p.taken, path)
				}
			}
		}
	}
	return nil
}
