// Snapfs-client is the command without the engine: it links neither store nor file system, so that a verb that asks the
// daemon does not wait for those to start. It is installed as snapfs. For the daemon and for what works without one it
// runs the complete command, which is installed with it as snapfs-engine.
package main

import (
	"os"

	"snapfs/cmd/internal/cli"
)

// version is set by the linker.
var version = "devel"

func main() { os.Exit(cli.Program{Version: version}.Main()) }
