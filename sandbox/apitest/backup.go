package apitest

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"snapfs/internal/treewalk"
	"snapfs/sandbox"
	"snapfs/sandbox/api"
)

// testBackup writes backups, and makes workspaces of them.
func testBackup(e *env) {
	src := e.fixture("src")
	e.sh(`echo "ignored" > "$1/.gitignore"; echo x > "$1/ignored"`, src)
	e.create("w", src)
	at := e.mount("w")
	want := e.walk(at)
	e.snapshot("w", "named")
	store := e.mkdir("store")
	backup := func(r sandbox.ExportRequest) (string, api.Backup) {
		e.Helper()
		r.Snapshot, r.Path, r.Format = "named", store, api.FormatBackup
		got := must[sandbox.ExportResult](e)(e.api.Export(e.Context(), r))
		dir := filepath.Dir(got.Path)
		equal(e, "path", got.Path, filepath.Join(store, "backups", got.Backup.ID, "data.sqsh"))
		var meta api.Backup
		if err := json.Unmarshal([]byte(e.sh(`cat "$1/meta.json"`, dir)), &meta); err != nil {
			e.Fatal(err)
		}
		equal(e, "id", meta.ID, got.Backup.ID)
		equal(e, "size", e.sh(`stat -c %s "$1"`, got.Path), fmt.Sprint(meta.Size))
		equal(e, "files", e.sh(`ls -A "$1"`, dir), "data.sqsh\nmeta.json")
		return dir, meta
	}
	dir, meta := backup(sandbox.ExportRequest{})
	equal(e, "ttl", meta.TTL, 259200)
	equal(e, "name", *meta.Name, "named")
	equal(e, "directory", meta.Directory, at)
	equal(e, "made now", time.Since(meta.CreatedAt) < shellTime, true)
	e.sh(`unsquashfs -ll "$1/data.sqsh" >/dev/null`, dir)
	for i, from := range []string{dir, filepath.Join(dir, "meta.json")} {
		w := e.create(fmt.Sprint("back", i), from)
		equal(e, "is foreign", w.Foreign, true)
		e.same("made of a backup", e.walk(e.mount(w.ID)), want, treewalk.Options{})
	}
	up := sandbox.UpRequest{CreateRequest: sandbox.CreateRequest{Name: "back0", Source: dir}}
	equal(e, "up of the same backup", must[sandbox.UpResult](e)(e.api.Up(e.Context(), up)).How, sandbox.Same)

	part := sandbox.ExportRequest{Backup: &api.BackupOptions{Name: "Teil – 1", TTL: time.Hour, Directory: "/workspace"}}
	part.Exclude, part.GitIgnore = []string{"a"}, true
	dir, meta = backup(part)
	equal(e, "ttl", meta.TTL, 3600)
	equal(e, "name and directory", *meta.Name+meta.Directory, "Teil – 1/workspace")
	e.create("part", dir)
	equal(e, "what was left out", e.sh(`ls -A "$1" | grep -x -e a -e ignored || true`, e.mount("part")), "")

	for what, r := range map[string]sandbox.ExportRequest{
		"name":      {Backup: &api.BackupOptions{Name: "a\nb"}},
		"long name": {Backup: &api.BackupOptions{Name: strings.Repeat("ä", 257)}},
		"ttl":       {Backup: &api.BackupOptions{TTL: -time.Second}},
		"directory": {Backup: &api.BackupOptions{Directory: "x"}},
		"layer":     {Layer: true},
		"level":     {Level: 99},
	} {
		r.Snapshot, r.Path, r.Format = "named", store, api.FormatBackup
		_, err := e.api.Export(e.Context(), r)
		if e.wants(err, sandbox.ErrInvalid); e.Failed() {
			e.Fatalf("that was a bad %s", what)
		}
	}
	none := sandbox.ExportRequest{Snapshot: "named", Path: store + "/none", Format: api.FormatBackup}
	_, err := e.api.Export(e.Context(), none)
	e.wants(err, sandbox.ErrNotFound, "none")
	equal(e, "what failed leaves nothing", e.sh(`ls "$1/backups" | wc -l`, store), "2")
}

// testBackupRefuses makes workspaces of backups that are damaged, incomplete, expired or none.
func testBackupRefuses(e *env) {
	e.create("w", e.fixture("src"))
	e.snapshot("w", "s")
	store := e.mkdir("store")
	got := must[sandbox.ExportResult](e)(e.api.Export(e.Context(), sandbox.ExportRequest{
		Snapshot: "s", Path: store, Format: api.FormatBackup,
	}))
	good := filepath.Dir(got.Path)
	create := func(dir string, expired bool) error {
		_, err := e.api.Create(e.Context(), sandbox.CreateRequest{Name: "x", Source: dir, Expired: expired})
		return err
	}
	// change gives a copy of the backup with a changed meta.json.
	change := func(with func(m map[string]any)) string {
		e.Helper()
		dir := filepath.Join(store, "changed")
		e.sh(`rm -rf "$2"; cp -a "$1" "$2"`, good, dir)
		var m map[string]any
		path := filepath.Join(dir, "meta.json")
		text, err := os.ReadFile(path)
		if err == nil {
			err = json.Unmarshal(text, &m)
		}
		if err != nil {
			e.Fatal(err)
		}
		with(m)
		if text, err = json.Marshal(m); err == nil {
			err = os.WriteFile(path, text, 0o644)
		}
		if err != nil {
			e.Fatal(err)
		}
		return dir
	}
	old := func(m map[string]any) { m["createdAt"] = time.Now().Add(-73 * time.Hour).Format(time.RFC3339) }
	for _, test := range []struct {
		class error
		word  string
		with  func(m map[string]any)
	}{
		{sandbox.ErrInvalid, "id", func(m map[string]any) { m["id"] = "../../etc" }},
		{sandbox.ErrInvalid, "id", func(m map[string]any) { delete(m, "id") }},
		{sandbox.ErrInvalid, "name", func(m map[string]any) { m["name"] = strings.Repeat("x", 257) }},
		{sandbox.ErrInvalid, "name", func(m map[string]any) { m["name"] = "a\u0007" }},
		{sandbox.ErrInvalid, "ttl", func(m map[string]any) { m["ttl"] = -1 }},
		{sandbox.ErrInvalid, "meta.json", func(m map[string]any) { m["sizeBytes"] = "many" }},
		{sandbox.ErrInvalid, "createdAt", func(m map[string]any) { delete(m, "createdAt") }},
		{sandbox.ErrCorrupt, "bytes", func(m map[string]any) { m["sizeBytes"] = 4096 }},
		{sandbox.ErrInvalid, "expired", old},
	} {
		e.wants(create(change(test.with), false), test.class, test.word)
	}
	if err := create(change(old), true); err != nil {
		e.Error(err)
	} else if err := e.destroy("x"); err != nil {
		e.Error(err)
	}
	same := func(map[string]any) {}
	dir := change(same)
	e.sh(`truncate -s 8192 "$1/data.sqsh"`, dir)
	e.wants(create(dir, false), sandbox.ErrCorrupt, "bytes")
	dir = change(func(m map[string]any) { m["sizeBytes"] = 8192 })
	e.sh(`truncate -s 8192 "$1/data.sqsh"`, dir)
	e.wants(create(dir, false), sandbox.ErrCorrupt)
	dir = change(same)
	e.sh(`head -c 100000 /dev/zero > "$1/meta.json"`, dir)
	e.wants(create(dir, false), sandbox.ErrInvalid, "larger")
	dir = change(same)
	e.sh(`rm "$1/data.sqsh"; mkfifo "$1/data.sqsh"`, dir)
	e.wants(create(dir, false), sandbox.ErrInvalid, "data.sqsh")
	// A crash before the record that tells of the backup.
	e.sh(`rm "$1/meta.json"`, good)
	e.wants(create(good, false), sandbox.ErrCorrupt, "not complete")
	// A directory that only has files of these names, and others, is a directory.
	dir = e.mkdir("plain")
	e.sh(`cd "$1"; echo 1 > meta.json; echo 2 > data.sqsh; echo 3 > other`, dir)
	if err := create(dir, false); err != nil {
		e.Error(err)
	}
}
