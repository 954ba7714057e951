package chunkstore

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOrderKey(t *testing.T) {
	for _, pair := range [][2]string{
		{"", "a"},
		{"b/x.GO", "a/y.go"},
		{"z/LICENSE", "a/a.go"},
		{"z/a.go", "a/b.go"},
		{"a/x.go", "b/x.go"},
		{"a.go/x.js", "a.js/x.ts"},
	} {
		require.Less(t, orderKey(pair[0]), orderKey(pair[1]))
	}
}
