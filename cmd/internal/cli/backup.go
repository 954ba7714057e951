package cli

import (
	"time"

	"github.com/spf13/cobra"

	"snapfs/sandbox/api"
)

// backupHelp tells of --format backup.
const backupHelp = `With --format backup, FILE is a directory, and the image becomes a backup as other systems keep them of
containers: FILE/backups/ID/data.sqsh, and meta.json beside it, which is written last. The directory of
the backup is printed. 'create --from' takes it.`

// backupFlags are those of --format backup.
type backupFlags struct {
	name string
	ttl  time.Duration
}

func (b *backupFlags) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&b.name, "name", "", "`NAME` of the backup (default: that of the snapshot)")
	f.DurationVar(&b.ttl, "ttl", api.DefaultBackupTTL, "`DURATION` for which the backup may be used")
}

// options are those of a request, nil if it is for no backup.
func (b *backupFlags) options(cmd *cobra.Command, r api.ExportRequest) (*api.BackupOptions, error) {
	if r.Format != api.FormatBackup {
		for _, name := range []string{"name", "ttl"} {
			if cmd.Flags().Changed(name) {
				return nil, usagef("--%s is for --format backup", name)
			}
		}
		return nil, nil
	}
	o := &api.BackupOptions{Name: b.name, TTL: b.ttl}
	if r.Layer {
		return nil, usagef("a backup has the whole tree: without --layer")
	}
	if b.ttl <= 0 {
		return nil, usagef("--ttl %s is not greater than 0", b.ttl)
	}
	return o, o.Valid()
}
