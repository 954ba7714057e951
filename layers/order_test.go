package layers

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
)

// TestMergedOrder: files that were compressed together have one number, others have others, and what has no data or is
// in a directory has none.
func TestMergedOrder(t *testing.T) {
	dir := t.TempDir()
	large := make([]byte, 4<<20)
	r := rand.New(rand.NewPCG(1, 1))
	for i := range large {
		large[i] = byte(r.Uint32())
	}
	for name, text := range map[string][]byte{
		"a": bytes.Repeat([]byte("a"), 100), "b": bytes.Repeat([]byte("b"), 100), "empty": nil, "large": large,
		"z": bytes.Repeat([]byte("z"), 100),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	s := openStore(t)
	m, err := StoreTree(t.Context(), s, dir, StoreOptions{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	stored := openStored(t, s, "stored", m)
	sealed, err := OpenSealed("sealed", dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	orders := func(l *Lower) map[string]uint64 {
		src, err := Merged([]*Lower{l})
		if err != nil {
			t.Fatal(err)
		}
		root, err := src.Root(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		out := map[string]uint64{}
		for _, name := range []string{"a", "b", "empty", "large", "z"} {
			e, err := src.Entry(t.Context(), root, name)
			if err != nil {
				t.Fatal(err)
			}
			out[name] = src.(merged).Order(e)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		return out
	}
	got := orders(stored)
	if got["a"] == 0 || got["a"] != got["b"] || got["large"] == 0 || got["z"] == 0 || got["z"] == got["a"] ||
		got["empty"] != 0 {
		t.Errorf("stored: got %v", got)
	}
	if got := fmt.Sprint(orders(sealed)); got != "map[a:0 b:0 empty:0 large:0 z:0]" {
		t.Errorf("sealed: got %s", got)
	}
}
