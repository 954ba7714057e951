package api

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// FormatBackup is the format of an export that other systems know as the backup of a container's directory:
//
//	DIR/backups/ID/data.sqsh   the image
//	DIR/backups/ID/meta.json   a Backup
const FormatBackup = "backup"

// Names of files in a backup, and of the directory where backups are.
const (
	BackupsName    = "backups"
	BackupDataName = "data.sqsh"
	BackupMetaName = "meta.json"
)

const (
	// DefaultBackupTTL is for how long a backup may be used.
	DefaultBackupTTL = 72 * time.Hour
	maxBackupName    = 256  // characters
	maxBackupDir     = 4096 // bytes
)

// BackupOptions are for an export in format backup. TTL 0 means DefaultBackupTTL. An empty Name means that of the snapshot,
// an empty Directory where its workspace was mounted last.
type BackupOptions struct {
	Name      string        `json:"name,omitempty"`
	Directory string        `json:"directory,omitempty"`
	TTL       time.Duration `json:"ttl,omitempty"`
}

// Valid says what is wrong with the options; ErrInvalid.
func (o BackupOptions) Valid() error {
	switch {
	case o.TTL < 0 || o.TTL%time.Second != 0:
		return fmt.Errorf("%w: time to live %s of a backup: whole seconds", ErrInvalid, o.TTL)
	case o.Directory != "" && !strings.HasPrefix(o.Directory, "/"):
		return fmt.Errorf("%w: directory %s of a backup is not absolute", ErrInvalid, Quoted(o.Directory))
	}
	return Backup{Name: &o.Name, Directory: o.Directory}.validText()
}

// Backup is what meta.json says of a backup.
type Backup struct {
	ID        string    `json:"id"`   // a UUID, and the name of the backup's directory
	Directory string    `json:"dir"`  // that was backed up
	Name      *string   `json:"name"` // nil: it has none
	Size      int64     `json:"sizeBytes"`
	TTL       int64     `json:"ttl"` // seconds
	CreatedAt time.Time `json:"createdAt"`
}

// Valid says what is wrong with what meta.json says; ErrInvalid.
func (b Backup) Valid() error {
	switch {
	case !IsID(b.ID):
		return fmt.Errorf("%w: id %s of the backup is no id", ErrInvalid, Quoted(b.ID))
	case b.Size <= 0:
		return fmt.Errorf("%w: sizeBytes %d of the backup", ErrInvalid, b.Size)
	case b.TTL < 0 || b.TTL > int64((1<<63-1)/time.Second):
		return fmt.Errorf("%w: ttl %d of the backup", ErrInvalid, b.TTL)
	case b.CreatedAt.IsZero():
		return fmt.Errorf("%w: the backup does not say when it was made (createdAt)", ErrInvalid)
	}
	return b.validText()
}

func (b Backup) validText() error {
	bad := func(s string) bool { return !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl) }
	switch {
	case b.Name != nil && (bad(*b.Name) || utf8.RuneCountInString(*b.Name) > maxBackupName):
		return fmt.Errorf("%w: name %s of a backup: at most %d characters, without control characters",
			ErrInvalid, Quoted(*b.Name), maxBackupName)
	case bad(b.Directory) || len(b.Directory) > maxBackupDir:
		return fmt.Errorf("%w: directory %s of a backup: at most %d bytes, without control characters",
			ErrInvalid, Quoted(b.Directory), maxBackupDir)
	}
	return nil
}

// ExpiresAt is when the backup may not be used any more.
func (b Backup) ExpiresAt() time.Time { return b.CreatedAt.Add(time.Duration(b.TTL) * time.Second) }
