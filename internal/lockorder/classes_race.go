//go:build race && amd64

package lockorder

import "reflect"

var (
	classes = parse(Tree)
	indices = indexOf(classes) // by name
)

func indexOf(classes []class) map[string]uint16 {
	m := map[string]uint16{}
	for i, c := range classes {
		m[c.name] = uint16(i)
	}
	return m
}

// indexOfType gives the class of a type of this package.
func indexOfType(t reflect.Type) uint16 {
	i, ok := indices[t.Name()]
	if !ok {
		panic("lockorder: " + t.String() + " is not in the tree")
	}
	return i
}
