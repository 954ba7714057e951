package layers

import (
	"errors"

	"golang.org/x/sys/unix"
)

// nearNames is how many names are looked through for the links of a file, beside those of its own directory, before all
// of the layer are.
const nearNames = 1 << 14

// nearAll is how many names of a layer are looked through in this way for one file or another: who changes many looks
// through all of the layer once.
const nearAll = 16 * nearNames

// errEnough ends a listing.
var errEnough = errors.New("enough")

// nearLinks gives the names of an inode in its layer, if there are as many as its link count says near the one that is
// known: in its directory, in what is below that, or around the directories above. Nearly all links are of that kind,
// and who looks for them does not depend on how large the layer is. False: there are others, somewhere. The caller
// holds no lock.
func (o *Overlay) nearLinks(top *part, count int) (links []link, ok bool, err error) {
	o.tree.RLock()
	err = top.settle()
	form, id := top.layer.lower, top.id().n
	o.tree.RUnlock()
	if err != nil || id == 0 || !o.groups.mayLook(form) {
		return nil, false, err
	}
	room, looked := nearNames, 0
	defer func() { o.groups.look(form, looked) }()
	var from *part // what has been looked through already
	for at := top.parent; at != nil && room > 0; from, at = at, at.parent {
		dirs := []*part{at}
		for len(dirs) > 0 && room > 0 {
			dir := dirs[len(dirs)-1]
			dirs = dirs[:len(dirs)-1]
			own := dir == top.parent
			o.tree.RLock()
			if top.layer.lower != form {
				o.tree.RUnlock()
				return nil, false, nil // inodes have other names now
			}
			err := dir.backend().list(dir, func(e rawEntry) error {
				if room--; room < 0 && !own {
					return errEnough
				}
				looked++
				switch {
				case e.whiteout:
				case e.typ == unix.S_IFDIR:
					if from == nil || dir != at || e.name != from.name {
						dirs = append(dirs, &part{layer: top.layer, parent: dir, name: e.name, ino: e.ino})
					}
				case e.id == id:
					links = append(links, link{dir, e.name})
				}
				return nil
			})
			if dir != at {
				descriptors.drop(dir)
			}
			o.tree.RUnlock()
			if err != nil && !errors.Is(err, errEnough) {
				return nil, false, o.reportPart(err, dir)
			}
			if len(links) == count {
				return links, true, nil
			}
		}
	}
	return nil, false, nil
}

// mayLook reports whether it pays to look for links near a name, rather than through all of its layer.
func (g *groupTables) mayLook(l *Lower) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.m[l] == nil && g.looked[l] < nearAll
}

// look notes that so many names of a layer were looked through.
func (g *groupTables) look(l *Lower, names int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.looked == nil {
		g.looked = map[*Lower]int{}
	}
	g.looked[l] += names
}
