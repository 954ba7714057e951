package corpora

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
)

// noiseCorpus is what no store can compress: random files, of which 2 % are rewritten per step.
func noiseCorpus() Corpus {
	const steps = 6
	return Corpus{
		Name: "C4", recipe: 1, Disk: 600_000_000, Logical: 1_200_000_000,
		digest: "b923fb44d19d756b991e71c3a862676cb338ae1174477963227575641f2f7e2b",
		about:  "random files, 2 % rewritten per step, half as whole files, half as ranges in place",
		build: func(ctx context.Context, b *Builder) error {
			g := noise{
				b: b, bytes: noiseBytes, src: rand.NewChaCha8([32]byte([]byte("snapfs bench: incompressible.   "))),
			}
			g.r = rand.New(g.src)
			if err := g.create(); err != nil {
				return err
			}
			for i := range steps {
				if i > 0 {
					if err := g.rewrite(); err != nil {
						return err
					}
				}
				if err := b.Freeze(ctx); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

type noise struct {
	b     *Builder
	bytes int // of all files
	src   *rand.ChaCha8
	r     *rand.Rand
	files []string
	sizes []int
}

const (
	noiseBytes = 200_000_000
	noiseSmall = 256_000   // files up to this are replaced whole
	noiseBig   = 1_000_000 // files from this on are rewritten in place
	noiseRange = 64 << 10
)

func (g *noise) random(n int) []byte {
	p := make([]byte, n)
	_, _ = g.src.Read(p) // never fails
	return p
}

func (g *noise) create() error {
	sizes := []int{4096, 30_000, 100_000, noiseSmall, noiseBig, 4 * noiseBig}
	for left := g.bytes; left > 0; {
		n := min(left, sizes[g.r.IntN(len(sizes))])
		name := fmt.Sprintf("d%02d/f%04d.bin", len(g.files)%12, len(g.files))
		if err := g.b.Write(name, string(g.random(n))); err != nil {
			return err
		}
		g.files, g.sizes = append(g.files, name), append(g.sizes, n)
		left -= n
	}
	return nil
}

func (g *noise) rewrite() error {
	share := g.bytes / 100
	for done := 0; done < share; {
		i := g.r.IntN(len(g.files))
		if g.sizes[i] > noiseSmall {
			continue
		}
		if err := g.b.Write(g.files[i], string(g.random(g.sizes[i]))); err != nil {
			return err
		}
		done += g.sizes[i]
	}
	for done := 0; done < share; {
		i := g.r.IntN(len(g.files))
		if g.sizes[i] < noiseBig {
			continue
		}
		if err := g.overwrite(g.files[i], g.r.IntN(g.sizes[i]-noiseRange)); err != nil {
			return err
		}
		done += noiseRange
	}
	return nil
}

func (g *noise) overwrite(name string, off int) error {
	f, err := os.OpenFile(filepath.Join(g.b.Workspace, name), os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("overwrite: %w", err)
	}
	if _, err := f.WriteAt(g.random(noiseRange), int64(off)); err != nil {
		_ = f.Close() // the first error counts
		return fmt.Errorf("overwrite: %w", err)
	}
	return f.Close()
}
