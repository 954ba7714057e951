package chunkstore

import (
	"context"
	"encoding/binary"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"snapfs/chunkstore/internal/pack"
)

// TestBadRecords puts records with a right checksum and wrong contents into a pack: a block with a wrong size, and a
// delta whose base is missing. Check and reads name the manifests that are affected, and no others.
func TestBadRecords(t *testing.T) {
	ctx := context.Background()
	r := rand.New(rand.NewPCG(120, 121))
	for _, lie := range []string{"size", "base"} {
		t.Run(lie, func(t *testing.T) {
			dir := t.TempDir()
			s := openTest(t, dir)
			whole := text(r, 30_000)
			m1 := put(t, s, nil, part{"a", whole, nil})
			edited := append([]byte("edited "), whole...)
			m2 := put(t, s, nil, part{"a", edited, []Range{{m1.ID, 0, m1.Size}}})
			other := noise(r, 20_000)
			m3 := put(t, s, nil, part{"b", other, nil})
			m, err := s.manifest(m1.ID)
			require.NoError(t, err)
			num := m.runs[0].first
			rec, _, err := s.locate(num)
			require.NoError(t, err)
			require.NoError(t, s.Close())
			if lie == "size" {
				growMember(t, filepath.Join(dir, packsName, pack.Name(rec.Pack)), rec.Location)
			}
			s, err = Open(dir, Options{})
			require.NoError(t, err)
			defer func() { require.NoError(t, s.Close()) }()
			if lie == "base" {
				require.NoError(t, s.update(func(w *writeTxn) error {
					no, i := pageOf(num)
					pg, err := w.edit(no)
					if err == nil {
						pg.slots[i] = slot{}
						w.state.chunks--
					}
					return err
				}))
			}
			ids, want := []ID{m1.ID, m2.ID, m3.ID}, [][]byte{whole, edited, other}
			good, bad := readable(t, s, ids, want)
			require.Equal(t, []ID{m1.ID, m2.ID}, bad)
			require.Equal(t, []ID{m3.ID}, good)
			problems, err := s.Check(ctx, CheckOptions{ReadData: true})
			require.NoError(t, err)
			told := map[ID]bool{}
			for _, p := range problems {
				for _, id := range p.Manifests {
					told[id] = true
				}
			}
			require.Equal(t, map[ID]bool{m1.ID: true, m2.ID: true}, told, "%v", problems)
		})
	}
}

// growMember makes the first member of a record longer than it is, with a right checksum.
func growMember(t *testing.T, path string, at pack.Location) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	b := make([]byte, at.Len)
	_, err = f.ReadAt(b, at.Off)
	require.NoError(t, err)
	r, err := pack.ParseRecord(b)
	require.NoError(t, err)
	r.Members[0].Len++
	lying := pack.AppendRecord(nil, r)
	require.Len(t, lying, len(b))
	require.Equal(t, crc32.Checksum(lying[4:], castagnoli), binary.LittleEndian.Uint32(lying))
	_, err = f.WriteAt(lying, at.Off)
	require.NoError(t, err)
}
