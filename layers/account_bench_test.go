package layers

import (
	"testing"
)

// eachAccount runs a benchmark without an account, with one that counts, and with a reserve.
func eachAccount(b *testing.B, run func(b *testing.B, o *Overlay)) {
	for _, c := range []struct {
		name    string
		limit   Usage
		reserve bool
	}{{name: "off"}, {name: "limit", limit: someRoom}, {name: "reserve", reserve: true}} {
		b.Run(c.name, func(b *testing.B) {
			dir, work := b.TempDir(), b.TempDir()
			opts := Options{Account: &Account{}}
			opts.Account.SetLimit(c.limit)
			if c.reserve {
				var err error
				if opts.Reserve, err = NewReserve(dir); err != nil {
					b.Fatal(err)
				}
			}
			o, err := New(dir, work, nil, opts)
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = o.Close() }()
			run(b, o)
		})
	}
}

// BenchmarkAccountWrite writes over a file.
func BenchmarkAccountWrite(b *testing.B) {
	eachAccount(b, func(b *testing.B, o *Overlay) {
		e, err := o.Mknod(Caller{}, RootNode, "file", 0o644, 0)
		if err != nil {
			b.Fatal(err)
		}
		p := make([]byte, 4096)
		for i := 0; b.Loop(); i++ {
			if _, err := o.Write(e.Node, p, int64(i%1024)*4096, nil); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkAccountCreate makes a file with a page and removes it, as BenchmarkAccountWrite.
func BenchmarkAccountCreate(b *testing.B) {
	eachAccount(b, func(b *testing.B, o *Overlay) {
		p := make([]byte, 4096)
		for b.Loop() {
			e, err := o.Mknod(Caller{}, RootNode, "file", 0o644, 0)
			if err == nil {
				_, err = o.Write(e.Node, p, 0, nil)
			}
			if err == nil {
				err = o.Unlink(RootNode, "file")
			}
			if err != nil {
				b.Fatal(err)
			}
			o.Forget(e.Node, 1)
		}
	})
}
