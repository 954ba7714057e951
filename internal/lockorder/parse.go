package lockorder

import "strings"

// class is a line of the tree.
type class struct {
	name string
	many bool // one goroutine may hold several
	leaf bool // nothing is taken under it
}

// parse gives the classes of a tree, from the outside in. The first one, with the index 0, stands for no class.
func parse(tree string) []class {
	classes := []class{{}}
	for line := range strings.Lines(tree) {
		words := strings.Fields(strings.TrimLeft(line, " │├└─"))
		if len(words) == 0 || words[0][0] < 'A' || words[0][0] > 'Z' {
			continue // the rest of the line before
		}
		c := class{name: words[0]}
		for _, w := range words[1:] {
			c.many = c.many || w == "(many)"
			c.leaf = c.leaf || w == "(leaf)"
		}
		classes = append(classes, c)
	}
	return classes
}
