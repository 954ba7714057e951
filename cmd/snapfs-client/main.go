// Snapfs-client is the command without the engine. It links neither store nor file system, so that verbs that only ask
// the daemon start fast. It is installed as snapfs. For the daemon, and for verbs that need no daemon, it runs the
// complete command, which is installed with it as snapfs-engine.
package main

import (
	"os"

	"snapfs/cmd/internal/cli"
	"snapfs/internal/holder"
)

// version is set by the linker.
var version = "devel"

func main() {
	if holder.IsHolder() {
		os.Exit(holder.Main())
	}
	os.Exit(cli.Program{Version: version}.Main())
}
