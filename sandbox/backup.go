package sandbox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/internal/hosttree"
	"snapfs/sandbox/api"
	"snapfs/sandbox/internal/patient"
)

// maxBackupMeta bounds meta.json, in bytes.
const maxBackupMeta = 64 << 10

// exportBackup is Export in format backup: Path is the directory where backups/ is, or is made. meta.json, which says that
// the backup is there, comes last; an error leaves nothing.
func (h *Home) exportBackup(ctx context.Context, r ExportRequest) (result ExportResult, err error) {
	o := api.BackupOptions{}
	if r.Backup != nil {
		o = *r.Backup
	}
	switch {
	case r.Layer:
		return result, fmt.Errorf("%w: a backup has the whole tree, not a layer", ErrInvalid)
	case r.Writer != nil:
		return result, fmt.Errorf("%w: a backup goes into a directory", ErrInvalid)
	}
	if err := o.Valid(); err != nil {
		return result, err
	}
	who, err := newAsker(ctx, r.Access)
	if err != nil {
		return result, err
	}
	s, err := h.findSnapshot(who, nil, r.Snapshot) // the export of the image is audited
	if err != nil {
		return result, err
	}
	meta := api.Backup{ID: h.catalog.NewID(), Directory: o.Directory, TTL: int64(api.DefaultBackupTTL / time.Second)}
	if o.TTL > 0 {
		meta.TTL = int64(o.TTL / time.Second)
	}
	if o.Name == "" {
		o.Name = s.Name
	}
	if o.Name != "" {
		meta.Name = &o.Name
	}
	if w := h.catalog.Workspace(s.Workspace); meta.Directory == "" && w != nil && w.Mount != nil && who.may(w.Session) {
		meta.Directory = w.Mount.Mountpoint
	}
	if meta.Directory == "" {
		meta.Directory = "/"
	}
	dir, undo, err := h.backupDirectory(ctx, r.Path, meta.ID)
	if err != nil {
		return result, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, undo())
		}
	}()
	r.Format, r.Backup, r.Path, r.Snapshot = "", nil, filepath.Join(dir, api.BackupDataName), s.ID
	if result, err = h.Export(ctx, r); err != nil {
		return result, err
	}
	meta.Size, meta.CreatedAt = result.Size, h.now().UTC().Truncate(time.Millisecond)
	text, err := json.MarshalIndent(meta, "", "  ")
	if err != nil {
		return result, err
	}
	_, err = writeImageFile(ctx, filepath.Join(dir, api.BackupMetaName), func(f *os.File) error {
		_, err := f.Write(append(text, '\n'))
		return err
	})
	result.Backup = &meta
	return result, err
}

// backupDirectory makes the directory of a backup, durably, and backups/ if it is missing. undo removes the backup again.
func (h *Home) backupDirectory(ctx context.Context, path, id string) (dir string, undo func() error, err error) {
	err = asUser(ctx, func() error {
		at, err := h.outside(path)
		switch {
		case err != nil:
			return err
		case at.missing > 0:
			return fmt.Errorf("%w: directory %s does not exist", ErrNotFound, path)
		case !at.info.IsDir():
			return fmt.Errorf("%w: %s is not a directory", ErrInvalid, path)
		}
		all := filepath.Join(at.path, api.BackupsName)
		if _, err := h.outside(all); err != nil { // it may be there, and be anything
			return err
		}
		if err := makeIn(at.path, api.BackupsName); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		dir = filepath.Join(all, id)
		return makeIn(all, id)
	})
	undo = func() error {
		return asUser(context.WithoutCancel(ctx), func() error {
			for _, name := range []string{api.BackupMetaName, api.BackupDataName, ""} {
				if err := removeIn(dir, name); err != nil && !errors.Is(err, fs.ErrNotExist) {
					return fmt.Errorf("removing the unfinished backup %s: %w", dir, err)
				}
			}
			return nil
		})
	}
	return dir, undo, err
}

// makeIn makes a directory in another one, which is no symbolic link, durably.
func makeIn(parent, name string) (err error) {
	dir, err := hosttree.Open(parent, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW)
	if err != nil {
		return pathError(parent, err)
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	if err := unix.Mkdirat(int(dir.Fd()), name, 0o755); err != nil {
		return pathError(filepath.Join(parent, name), err)
	}
	if err := hosttree.SyncAt(dir); !errors.Is(err, fs.ErrPermission) {
		return err
	}
	return nil // a directory that may be written to and not read
}

// removeIn removes a file of a backup, or with "" its directory, which is empty.
func removeIn(dir, name string) (err error) {
	if name == "" {
		return unix.Rmdir(dir)
	}
	return unix.Unlink(filepath.Join(dir, name))
}

// backupSource makes of a directory or a file that is a backup, or its meta.json, what the backup holds. What is none stays
// as it is. The path is known to be in no mount of the home.
func (h *Home) backupSource(src source, expired bool) (source, error) {
	dir, ok, err := backupAt(src)
	if err != nil || !ok {
		return src, err
	}
	meta, err := readBackup(dir)
	if err != nil {
		return src, err
	}
	if !expired && !h.now().Before(meta.ExpiresAt()) {
		return src, fmt.Errorf("%w: backup %s has expired at %s (--expired uses it all the same)", ErrInvalid, dir,
			meta.ExpiresAt().UTC().Format(time.RFC3339))
	}
	return source{label: src.label, load: h.backupLoader(dir, meta.Size), foreign: true}, nil
}

// backupLoader stores the tree of a backup. What is checked of the image is checked of the file that is read.
func (h *Home) backupLoader(dir string, size int64) loader {
	path := filepath.Join(dir, api.BackupDataName)
	return h.loaderOf(path, func(ctx context.Context) (*patient.File, error) {
		f, err := h.openNamed(ctx, path)
		switch {
		case errors.Is(err, ErrNotFound):
			return nil, fmt.Errorf("%w: backup %s has no %s: %w", ErrCorrupt, dir, api.BackupDataName, err)
		case err != nil:
			return nil, err
		case f.Size() != size:
			return nil, errors.Join(fmt.Errorf("%w: %s has %d bytes, and the backup says %d", ErrCorrupt, path, f.Size(), size), f.Close())
		}
		return f, nil
	})
}

// backupAt gives the directory of the backup that a source is. A directory is one if it has nothing but the two files, or
// is among backups and has one of them.
func backupAt(src source) (dir string, ok bool, err error) {
	if !src.dir {
		dir = filepath.Dir(src.label)
		if filepath.Base(src.label) != api.BackupMetaName {
			return "", false, nil
		}
		_, err := os.Lstat(filepath.Join(dir, api.BackupDataName))
		if errors.Is(err, fs.ErrNotExist) && filepath.Base(filepath.Dir(dir)) != api.BackupsName {
			return "", false, nil
		}
		return dir, true, nil
	}
	f, err := hosttree.Open(src.label, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return "", false, pathError(src.label, err)
	}
	names, err := f.Readdirnames(3)
	if err = errors.Join(err, f.Close()); err != nil && !errors.Is(err, io.EOF) {
		return "", false, err
	}
	has := 0
	for _, name := range names {
		if name == api.BackupDataName || name == api.BackupMetaName {
			has++
		}
	}
	among := filepath.Base(filepath.Dir(src.label)) == api.BackupsName
	return src.label, has == 2 && len(names) == 2 || among && has > 0, nil
}

// readBackup reads and checks the meta.json of a backup.
func readBackup(dir string) (b api.Backup, err error) {
	path := filepath.Join(dir, api.BackupMetaName)
	f, err := hosttree.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW)
	if errors.Is(err, fs.ErrNotExist) {
		return b, fmt.Errorf("%w: backup %s is not complete: it has no %s", ErrCorrupt, dir, api.BackupMetaName)
	}
	if err != nil {
		return b, pathError(path, err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	fi, err := f.Stat()
	if err != nil {
		return b, err
	}
	if !fi.Mode().IsRegular() {
		return b, fmt.Errorf("%w: %s is not a file", ErrInvalid, path)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxBackupMeta+1))
	if err != nil {
		return b, err
	}
	if len(text) > maxBackupMeta {
		return b, fmt.Errorf("%w: %s is larger than %d bytes", ErrInvalid, path, maxBackupMeta)
	}
	if err := json.NewDecoder(bytes.NewReader(text)).Decode(&b); err != nil {
		return b, fmt.Errorf("%w: %s: %w", ErrInvalid, path, err)
	}
	if err := b.Valid(); err != nil {
		return b, fmt.Errorf("%s: %w", path, err)
	}
	if name := filepath.Base(dir); api.IsID(name) && name != b.ID {
		return b, fmt.Errorf("%w: %s is about the backup %s", ErrInvalid, path, b.ID)
	}
	return b, nil
}
