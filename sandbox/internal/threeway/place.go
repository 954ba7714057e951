package threeway

import (
	"snapfs/layers"
)

// place puts what From has moved to its new place.
func (p *planner) place(c layers.Change) error {
	at, _ := p.t.now(c.OldPath)
	free, err := p.room(c.Path, nil)
	if err != nil {
		return err
	}
	if !free {
		delete(p.taken, at)
		p.stays(c)
		return nil
	}
	dest := p.finalFrom(c.Path)
	if dest == at {
		delete(p.taken, at)
		return nil
	}
	p.plan.Puts = append(p.plan.Puts, Put{Path: dest, Old: at})
	return nil
}

// room sees to it that something of From can be where it belongs: there is a directory, and nothing else in it has the
// name. If f is given, it is new, and may be what is there already. False if it stays away.
func (p *planner) room(path string, f File) (bool, error) {
	dir, name := Split(path)
	ok, err := p.parent(dir)
	if !ok || err != nil {
		return false, err
	}
	in, ok := p.inTarget(dir)
	if !ok {
		return true, nil
	}
	at := Join(in, name)
	other, err := p.Target.Lstat(at)
	if other == nil || err != nil || p.taken[at] != nil {
		return true, err
	}
	if f != nil {
		if done, err := p.unite(path, at, f, other); done || err != nil {
			return false, err
		}
	}
	k, what := BothAdded, "different in FROM and in the target"
	if isDir(f) != isDir(other) {
		k, what = DirectoryFile, "a directory in one, none in the other"
	} else if f == nil {
		what = "renamed in FROM to what the target has too"
	}
	if !p.conflict(k, at, what) {
		p.skipped[path] = true
		return false, nil
	}
	return true, p.takeTree(at, other)
}

// unite finds that something new is in the target already, or makes one of both; false if that cannot be.
func (p *planner) unite(path, at string, f, other File) (done bool, err error) {
	if b, ok := p.t.base(at); ok {
		if _, elsewhere := p.f.now(b); elsewhere {
			return false, nil // From has that one, too
		}
	}
	if isDir(f) && isDir(other) {
		p.united[path] = at
		set := Set{Path: p.finalFrom(path), From: f}
		if err := p.attributes(&set, at, nil, f, other); err != nil {
			return false, err
		}
		p.set(set)
		return true, nil
	}
	if same, err := p.alike(f, other); same || err != nil {
		return same, err
	}
	if p.Resolve != Markers || !isReg(f) || !isReg(other) {
		return false, nil
	}
	set := Set{Path: p.finalFrom(path), From: f}
	merged, err := p.text(&set, at, nil, f, other)
	if !merged || err != nil {
		return false, err
	}
	if err := p.attributes(&set, at, nil, f, other); err != nil {
		return false, err
	}
	p.set(set)
	return true, nil
}

// parent sees to it that there is the directory for something of From; false if there is none.
func (p *planner) parent(dir string) (bool, error) {
	if dir == "" || p.put[p.finalFrom(dir)] {
		return true, nil
	}
	at, ok := p.inTarget(dir)
	if ok && p.taken[at] != nil && !p.taken[at].Moved { // something else comes there
		ok = false
	}
	if ok {
		there, err := p.Target.Lstat(at)
		if err != nil {
			return false, err
		}
		if isDir(there) {
			return true, nil
		}
		if there != nil {
			if !p.conflict(DirectoryFile, at, "a directory in FROM, none in the target") {
				p.skipped[dir] = true
				return false, nil
			}
			if err := p.takeTree(at, there); err != nil {
				return false, err
			}
		}
	}
	if p.skips(dir) {
		return false, nil
	}
	f, err := p.From.Lstat(dir) // it comes back
	if err != nil {
		return false, err
	}
	free, err := p.room(dir, f)
	if !free || err != nil {
		_, united := p.united[dir]
		return united, err
	}
	p.note(dir, f)
	return true, nil
}

// note notes something new.
func (p *planner) note(path string, f File) {
	dest := p.finalFrom(path)
	if !p.put[dest] {
		p.put[dest] = true
		p.plan.Puts = append(p.plan.Puts, Put{Path: dest, New: f})
	}
}

// add puts what is new in From.
func (p *planner) add(path string) error {
	f, err := p.From.Lstat(path)
	if f == nil || err != nil {
		return err
	}
	free, err := p.room(path, f)
	if !free || err != nil {
		return err
	}
	return p.putFile(path, f)
}

// putNew puts what is of another type in From; what was there has been taken.
func (p *planner) putNew(path string) error {
	f, err := p.From.Lstat(path)
	if f == nil || err != nil {
		return err
	}
	dir, _ := Split(path)
	if ok, err := p.parent(dir); !ok || err != nil {
		return err
	}
	return p.putFile(path, f)
}

// addTree puts something of From with all that is in it.
func (p *planner) addTree(path string) error {
	f, err := p.From.Lstat(path)
	if f == nil || err != nil {
		return err
	}
	if err := p.add(path); err != nil || !isDir(f) {
		return err
	}
	names, err := p.From.List(path)
	for _, name := range names {
		if err == nil {
			err = p.addTree(Join(path, name))
		}
	}
	return err
}

// putFile notes something new, or another name of what is there.
func (p *planner) putFile(path string, f File) error {
	if isDir(f) || f.Stat().Nlink < 2 {
		p.note(path, f)
		return nil
	}
	if p.names == nil {
		p.names = map[uint64][]string{}
		if err := p.number(""); err != nil {
			return err
		}
	}
	for _, other := range p.names[f.Stat().Ino] {
		if other == path || p.skips(other) {
			continue
		}
		dest := p.finalFrom(other)
		if !p.put[dest] {
			at, ok := p.inTarget(other)
			if !ok || p.taken[at] != nil && !p.taken[at].Moved {
				continue
			}
			there, err := p.Target.Lstat(at)
			if err != nil {
				return err
			}
			if there == nil || kind(there) != kind(f) {
				continue
			}
		}
		p.put[p.finalFrom(path)] = true
		p.plan.Puts = append(p.plan.Puts, Put{Path: p.finalFrom(path), New: f, Link: dest})
		return nil
	}
	p.note(path, f)
	return nil
}

// number notes the names of files of From that have several.
func (p *planner) number(dir string) error {
	if err := p.ctx.Err(); err != nil {
		return err
	}
	names, err := p.From.List(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		path := Join(dir, name)
		f, err := p.From.Lstat(path)
		switch {
		case err != nil:
			return err
		case isDir(f):
			if err := p.number(path); err != nil {
				return err
			}
		case f != nil && f.Stat().Nlink > 1:
			p.names[f.Stat().Ino] = append(p.names[f.Stat().Ino], path)
		}
	}
	return nil
}
