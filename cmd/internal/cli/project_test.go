package cli

import (
	"os"
	"path/filepath"
	"testing"
)

func TestTrusted(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, projectName)
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		file, dir os.FileMode
		want      bool
	}{
		{0o644, 0o755, true},
		{0o664, 0o775, true},
		{0o666, 0o755, false},
		{0o644, 0o777, false},
		{0o644, 0o777 | os.ModeSticky, true},
		{0o666, 0o777 | os.ModeSticky, false},
	} {
		if err := os.Chmod(path, c.file); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(dir, c.dir); err != nil {
			t.Fatal(err)
		}
		if err := trusted(path, os.Geteuid()); (err == nil) != c.want {
			t.Errorf("file %v, directory %v: error %v, want %v", c.file, c.dir, err, c.want)
		}
	}
	if os.Geteuid() != 0 {
		return
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Lchown(path, 1234, 1234); err != nil {
		t.Fatal(err)
	}
	if trusted(path, 0) == nil {
		t.Error("another user's file is trusted")
	}
	if err := trusted(path, 1234); err != nil {
		t.Errorf("its owner: %v", err)
	}
}
