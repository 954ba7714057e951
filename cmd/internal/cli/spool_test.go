package cli

import (
	"bytes"
	"os"
	"testing"
)

// TestSpool: what is kept comes out as it came in, and leaves no file.
func TestSpool(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	for _, parts := range []int{0, 1, 3, 70} {
		var s spool
		var want, got bytes.Buffer
		for i := range parts {
			part := bytes.Repeat([]byte{byte(i)}, spoolMemory/10+i)
			want.Write(part)
			if n, err := s.Write(part); n != len(part) || err != nil {
				t.Fatalf("%d of %d: %v", n, len(part), err)
			}
		}
		n, err := s.WriteTo(&got)
		if err != nil || n != int64(want.Len()) || !bytes.Equal(got.Bytes(), want.Bytes()) {
			t.Errorf("%d parts: %d bytes of %d, %v", parts, n, want.Len(), err)
		}
		s.close()
	}
	if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	t.Setenv("TMPDIR", "/proc/none")
	if _, err := new(spool).Write(make([]byte, spoolMemory+1)); err == nil {
		t.Error("without a directory")
	}
}
