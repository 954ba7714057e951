package cli

import (
	"errors"
	"io"

	"github.com/spf13/cobra"

	"snapfs/sandbox/api"
)

func (a *app) reloadCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "reload",
		Short: "have the daemon open its log anew and read its settings again",
		Long: `Does what SIGHUP does to the daemon of the home, and says whether it worked: the log file is opened
anew, and the settings are read again, of which the limits of sessions and of the event log apply at
once ('snapfs serve --help'). Mounts and calls go on. If a setting is wrong, all stay as they were.
Starts no daemon: if none runs, that is the error "unavailable".`,
		Example:     "  mv /var/log/snapfs.log /var/log/snapfs.log.1 && snapfs reload",
		Args:        exact(),
		Annotations: exits(api.ExitUnavailable),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.running(cmd)
			if err != nil {
				return err
			}
			if err := c.Reload(cmd.Context()); err != nil {
				return errors.Join(err, c.Close())
			}
			a.note("the daemon of %s has read its settings", a.home)
			err = a.result(map[string]bool{"reloaded": true}, func(io.Writer) error { return nil })
			return errors.Join(err, c.Close())
		},
	}
}
