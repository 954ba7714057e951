// Snapfs is the complete command: the verbs of package cli, the daemon, and what works on a home without a daemon. It
// is a single file that needs nothing else. When installed, it is the engine of snapfs-client, which has the same verbs
// and starts faster.
package main

import (
	"os"

	"snapfs/cmd/internal/cli"
	"snapfs/internal/holder"
	"snapfs/sandbox"
)

// version is set by the linker.
var version = "devel"

func main() {
	if holder.IsHolder() {
		os.Exit(holder.Main())
	}
	if sandbox.IsMounter() {
		os.Exit(sandbox.RunMounter())
	}
	engine := cli.Engine{Serve: serve, ReadSettings: readSettings, RebuildIndex: rebuildIndex, MCP: serveMCP}
	os.Exit(cli.Program{Version: version, Engine: &engine}.Main())
}
