package squashfs_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"snapfs/internal/testsource"
	"snapfs/internal/treewalk"
	"snapfs/squashfs"
)

func TestShipRoundTrip(t *testing.T) {
	root := makeOddTree(t)
	want, err := treewalk.Walk(root)
	must(t, err)
	all := []squashfs.ShipOptions{
		{Compression: "zstd", Level: 3, Exportable: true},
		{Compression: "none", BlockSize: 1 << 20},
		{Compression: "gzip", Level: 1, BlockSize: 4096, NoFragments: true},
		{Compression: "xz", BlockSize: 64 << 10},
		{Compression: "lz4", Level: 1, Exportable: true},
		{},
		{Compression: "zstd", Level: 1, BlockSize: 4096},
		{Compression: "zstd", Level: 19, BlockSize: 1 << 20, NoFragments: true},
		{Compression: "gzip"},
		{Compression: "xz", BlockSize: 4096, NoFragments: true},
		{Compression: "xz", BlockSize: 1 << 20},
		{Compression: "lz4", BlockSize: 64 << 10, NoFragments: true},
	}
	if !long() {
		all = all[:5]
	}
	for _, opts := range all {
		t.Run(fmt.Sprintf("%+v", opts), func(t *testing.T) {
			opts.Workers = 3
			file := ship(t, testsource.Dir(root), opts)
			sound(t, file)
			got, err := walkImage(openImage(t, file))
			must(t, err)
			sameTree(t, want, got, exact)
			got, err = treewalk.Walk(mountImage(t, file))
			must(t, err)
			sameTree(t, want, got, plain)
			dir := t.TempDir() + "/out"
			run(t, "unsquashfs", "-no-progress", "-quiet", "-d", dir, file)
			got, err = treewalk.Walk(dir)
			must(t, err)
			sameTree(t, want, got, plain)

			opts.Workers = 1
			sameBytes(t, file, ship(t, shuffled{testsource.Dir(root), rand.New(rand.NewPCG(5, 6))}, opts))
		})
	}
}
