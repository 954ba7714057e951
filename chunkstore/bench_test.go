package chunkstore

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
)

// BenchmarkSmallCommit edits one file of 10 KB again and again: the latency of a small snapshot.
func BenchmarkSmallCommit(b *testing.B) {
	s, err := Open(b.TempDir(), Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	data := text(rand.New(rand.NewPCG(1, 1)), 10<<10)
	m, err := tryPut(s, nil, part{"a.go", data, nil})
	for i := 0; b.Loop() && err == nil; i++ {
		data = bytes.Clone(data)
		copy(data[i%9000:], fmt.Sprintf("edit %d", i))
		m, err = tryPut(s, nil, part{"a.go", data, []Range{{m.ID, 0, m.Size}}})
	}
	if err != nil {
		b.Fatal(err)
	}
	st, err := s.Stats(context.Background())
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(st.Payload)/float64(st.Manifests), "payload-B/op")
}

// BenchmarkKnown stores contents that the store has.
func BenchmarkKnown(b *testing.B) {
	s, err := Open(b.TempDir(), Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	data := part{"a", noise(rand.New(rand.NewPCG(2, 2)), 16<<20), nil}
	b.SetBytes(int64(len(data.data)))
	for b.Loop() {
		if _, err := tryPut(s, nil, data); err != nil {
			b.Fatal(err)
		}
	}
}
