package textmerge

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"snapfs/internal/testseed"
)

// gitMerge is what git makes of three texts, and whether there were conflicts.
func gitMerge(t *testing.T, dir string, texts [3][]byte, favor Favor) ([]byte, bool) {
	t.Helper()
	var paths []string
	for i, name := range []string{"ours", "base", "theirs"} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, texts[[]int{1, 0, 2}[i]], 0o600); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	args := []string{"merge-file", "-p", "-q", "-L", "ours", "-L", "base", "-L", "theirs"}
	if favor != Markers {
		args = append(args, map[Favor]string{Ours: "--ours", Theirs: "--theirs"}[favor])
	}
	cmd := exec.Command("git", append(args, paths...)...)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "HOME="+dir, "GIT_DIR="+dir)
	out, err := cmd.Output()
	if exit := new(exec.ExitError); errors.As(err, &exit) && exit.ExitCode() > 0 && exit.ExitCode() < 128 {
		return out, true
	} else if err != nil {
		t.Fatal(err)
	}
	return out, false
}

// randomText has few different lines, so that many ways lead from one text to another.
func randomText(r *rand.Rand, most, words int) [][]byte {
	var lines [][]byte
	for range r.IntN(most + 1) {
		lines = append(lines, randomLine(r, words))
	}
	return lines
}

func randomLine(r *rand.Rand, words int) []byte {
	switch n := r.IntN(words + 2); n {
	case 0:
		return []byte("\n")
	case 1:
		return []byte("}\n")
	default:
		return fmt.Appendf(nil, "line %d\n", n)
	}
}

// edited is a text with some lines changed.
func edited(r *rand.Rand, lines [][]byte, words int) [][]byte {
	out := append([][]byte{}, lines...)
	for range r.IntN(4) {
		at := r.IntN(len(out) + 1)
		n := min(r.IntN(4), len(out)-at)
		out = append(append(append([][]byte{}, out[:at]...), randomText(r, 4, words)...), out[at+n:]...)
	}
	return out
}

// spelt joins lines; sometimes the last one has no newline, or all end in CR LF.
func spelt(r *rand.Rand, lines [][]byte) []byte {
	text := bytes.Join(lines, nil)
	if r.IntN(8) == 0 {
		text = bytes.TrimSuffix(text, []byte("\n"))
	}
	if r.IntN(16) == 0 {
		text = bytes.ReplaceAll(text, []byte("\n"), []byte("\r\n"))
	}
	return text
}

// TestAsGit merges random texts as git merge-file does.
func TestAsGit(t *testing.T) {
	seed := testseed.Of(t)
	rounds := 150
	if os.Getenv("SNAPFS_LONG") != "" {
		rounds = 10000
	}
	r := rand.New(rand.NewPCG(uint64(seed), 1))
	dir := t.TempDir()
	clean := 0
	for round := range rounds {
		words := []int{1, 3, 10, 1000}[r.IntN(4)]
		base := randomText(r, []int{4, 20, 80, 1500}[min(3, r.IntN(13)/4)], words)
		texts := [3][]byte{
			spelt(r, base), spelt(r, edited(r, base, words)), spelt(r, edited(r, base, words)),
		}
		favor := Favor(max(0, r.IntN(5)-2))
		want, conflicts := gitMerge(t, dir, texts, favor)
		got, err := Merge(t.Context(), texts[0], texts[1], texts[2],
			Options{Favor: favor, OurName: "ours", TheirName: "theirs"})
		if err != nil {
			t.Fatal(err)
		}
		if !conflicts && favor == Markers {
			clean++
		}
		if !bytes.Equal(got.Text, want) || favor == Markers && (got.Conflicts > 0) != conflicts {
			t.Fatalf("round %d, favor %d: base %q\nours %q\ntheirs %q\ngot  %q (%d conflicts)\nwant %q (%v)",
				round, favor, texts[0], texts[1], texts[2], got.Text, got.Conflicts, want, conflicts)
		}
	}
	if clean == 0 || clean == rounds {
		t.Errorf("%d of %d texts merged", clean, rounds)
	}
}

// TestCancelled ends a merge of large texts that have nothing in common and much alike.
func TestCancelled(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var texts [3][]byte
	for i := range texts {
		for range MaxLines {
			texts[i] = fmt.Appendf(texts[i], "%d\n", r.IntN(5000))
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Merge(ctx, texts[0], texts[1], texts[2], Options{}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if !IsText(texts[0]) || IsText(append(texts[0], '\n')) {
		t.Error("the number of lines is not bounded as said")
	}
}
