package scale

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"snapfs/bench/internal/engine"
	"snapfs/bench/internal/report"
	"snapfs/bench/internal/suite"
	"snapfs/sandbox"
)

// growBytes writes big files of which one block in a hundred is new, each stored before the next is written.
func growBytes(ctx context.Context, e *suite.Env, g *grown, n limits) error {
	return withHome(ctx, e, func(s *engine.Daemon, tmp string) error {
		h, err := mountNew(ctx, s, tmp)
		if err != nil {
			return err
		}
		const block = 1 << 20
		seed := [32]byte([]byte("snapfs bench: one hundred gigabyt")[:32])
		noise := rand.NewChaCha8(seed)
		buf := make([]byte, block)
		total := int(n.logical / n.fileSize)
		at := steps(total)
		for i := 1; i <= total; i++ {
			f, err := os.Create(filepath.Join(h.Dir(), fmt.Sprintf("big%04d", i)))
			if err != nil {
				return err
			}
			old := rand.NewChaCha8(seed)
			for k := range n.fileSize / block {
				from := io.Reader(old)
				if k%100 == 99 {
					from = noise // new in each file
				}
				if _, err = io.ReadFull(from, buf); err == nil {
					_, err = f.Write(buf)
				}
				if err = errors.Join(err, ctx.Err()); err != nil {
					return errors.Join(err, f.Close())
				}
			}
			if err := f.Close(); err != nil {
				return err
			}
			start := time.Now()
			if _, err := s.API.Snapshot(ctx, sandbox.SnapshotRequest{Workspace: "w", WaitStored: true}); err != nil {
				return err
			}
			e.Bar.Step("bytes", i, total)
			if i == at[0] {
				at = at[1:]
				size := int64(i) * n.fileSize >> 20
				g.add(size, "snapshot until stored", "ms", report.Milliseconds(time.Since(start)))
				if err := g.state(size, s); err != nil {
					return err
				}
			}
		}
		return nil
	})
}
