package layers

import "slices"

// alias is a further name of a node.
type alias struct {
	parent *node
	name   string
}

// fewAliases is up to how many further names of a node are looked through one by one. Where those of a node with more
// are is in table.many, so that what is done for each name of a file takes the same time however many there are.
const fewAliases = 8

// aliasLocked notes a further name of n. mu is held.
func (t *table) aliasLocked(n, p *node, name string) {
	a := alias{p, name}
	if t.findAliasLocked(n, a) >= 0 {
		return
	}
	p.holds++
	n.aliases = append(n.aliases, a)
	switch at := t.many[n]; {
	case at != nil:
		at[a] = len(n.aliases) - 1
	case len(n.aliases) > fewAliases:
		at = make(map[alias]int, 2*fewAliases)
		for i, a := range n.aliases {
			at[a] = i
		}
		if t.many == nil {
			t.many = map[*node]map[alias]int{}
		}
		t.many[n] = at
	}
}

// findAliasLocked gives the index of a further name among n's, or -1. mu is held.
func (t *table) findAliasLocked(n *node, a alias) int {
	if len(n.aliases) <= fewAliases {
		return slices.Index(n.aliases, a)
	}
	if i, ok := t.many[n][a]; ok {
		return i
	}
	return -1
}

// unaliasLocked takes one further name away and reports whether it was there. mu is held.
func (t *table) unaliasLocked(n, p *node, name string) bool {
	i := t.findAliasLocked(n, alias{p, name})
	if i < 0 {
		return false
	}
	t.cutAliasLocked(n, i)
	p.holds--
	return true
}

// cutAliasLocked takes a further name out of n's, the last one coming in its place. Its directory still counts it. mu
// is held.
func (t *table) cutAliasLocked(n *node, i int) alias {
	last := len(n.aliases) - 1
	a := n.aliases[i]
	n.aliases[i], n.aliases[last] = n.aliases[last], alias{}
	n.aliases = n.aliases[:last]
	switch at := t.many[n]; {
	case at == nil:
	case last <= fewAliases:
		delete(t.many, n)
		n.aliases = slices.Clone(n.aliases) // without the room of the many
	default:
		delete(at, a)
		if i < last {
			at[n.aliases[i]] = i
		}
	}
	return a
}

// takeAliasesLocked takes all further names away. Their directories still count them. mu is held.
func (t *table) takeAliasesLocked(n *node) []alias {
	all := n.aliases
	n.aliases = nil
	delete(t.many, n)
	return all
}

// promoteLocked makes a further name of n, which has one, its primary name. mu and Overlay.tree are held, the latter
// for writing unless a rollback's mu is.
func (t *table) promoteLocked(n *node) {
	a := t.cutAliasLocked(n, len(n.aliases)-1)
	a.parent.holds-- // moveLocked counts it again
	t.moveLocked(n, a.parent, a.name)
}
