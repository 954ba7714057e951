package cli

import (
	"fmt"
	"io"
	"runtime"

	"github.com/spf13/cobra"

	"snapfs/sandbox/api/wire"
)

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "show the version",
		Long: "Shows the version of this program, of Go, and of the protocol between command and daemon. Does not ask the\n" +
			"daemon: 'snapfs status' shows its version.",
		Args:        exact(),
		Annotations: exits(),
		// Replaces the one of the root command: this verb needs neither a home nor signals.
		PersistentPreRunE: func(*cobra.Command, []string) error {
			a.parsed = true
			return nil
		},
		RunE: func(*cobra.Command, []string) error {
			platform := runtime.GOOS + "/" + runtime.GOARCH
			v := map[string]string{"version": a.Version, "go": runtime.Version(), "platform": platform, "protocol": wire.Speaks.String()}
			return a.result(v, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "snapfs %s (%s, %s, protocol %s)\n", v["version"], v["go"], v["platform"], v["protocol"])
				return err
			})
		},
	}
}
