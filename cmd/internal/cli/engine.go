package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"snapfs/sandbox/api"
	"snapfs/sandbox/client"
)

// Engine holds the functions that only the complete command links: they need the store and the file system.
type Engine struct {
	// Serve runs a daemon until ctx ends or a client stops it.
	Serve func(ctx context.Context, o ServeOptions) error
	// ReadSettings reads a file of settings: values by the names of options.
	ReadSettings func(path string) (map[string]any, error)
	// MCP serves an agent over the standard streams until those end, or ctx.
	MCP func(ctx context.Context, o MCPOptions) error
	// RebuildIndex rebuilds the index of a home's store.
	RebuildIndex func(ctx context.Context, home string, progress func(api.Progress)) (api.RebuildResult, error)
}

// ServeOptions configure a daemon.
type ServeOptions struct {
	Home      string
	MustExist bool
	Remount   bool
	NoRemount bool // counts more than Remount
	Replace   bool // take the place of the daemon that serves the home
	Force     bool // also where programs use mounts that end with it

	KeepMounts bool // mounts over /dev/fuse outlive a daemon that dies

	Transport   string // default of mounts: auto, uring or dev
	EnableURing bool
	IdleAfter   time.Duration // 0: never idle

	MaxSnapshots  int   // of one session; 0 is the default, below 0 is no limit
	MaxWorkspaces int   // likewise
	MaxBytes      int64 // of one session's images; 0 is no limit
	MaxSize       int64 // of the home on its disk, in bytes; 0 is no limit

	EventsKeep int           // of the home; 0 is the default, below 0 is no limit
	EventsAge  time.Duration // 0 is the default, below 0 is no limit

	SocketGroup string   // whose members may use the socket; "" for none
	Allow       []string // WHO:session=ID[,ID…]

	Listen     []string // addresses of the network, each HOST:PORT or a port; none: only the socket is served
	TLSCert    string   // PEM file with a certificate for these, "" for none
	TLSKey     string
	Insecure   bool     // other machines may be served without a certificate
	AllowHosts []string // names by which an address of this machine alone may be called

	// DockerPlugin is where volumes are served to container engines: the path of a socket, PluginOn for the usual one,
	// PluginOff for nowhere from now on, or "" as by the daemon before.
	DockerPlugin string

	TokenRate  float64 // requests per second of a token; 0 is the default, as in the next three
	TokenBurst int     // requests of a token at once
	TokenCalls int     // requests of a token under way
	MaxUpload  int64   // bytes of one body

	Args []string // of a program that serves as this one does, whatever its working directory

	Version string    // as clients see it
	Metrics string    // local address, "" for none
	Log     io.Writer // unless LogPath is set
	LogPath string
	Verbose bool
	Ready   func() // called once, when it serves

	// SocketFD is the descriptor of the socket that the daemon which this one replaces has handed on; 0 for none.
	// SocketKept says that a service manager has made it.
	SocketFD   int
	SocketKept bool
	// ListenFDs are descriptors of listeners that it has handed on as well, each ADDRESS=N.
	ListenFDs []string

	Hangup   <-chan struct{}               // asks it to open its log anew and to take the limits of Settings
	Settings func() (*ServeOptions, error) // reads the settings again
}

// MCPOptions say whom 'snapfs mcp' serves, and how.
type MCPOptions struct {
	Client    *client.Client
	Reconnect func(context.Context) error // starts the daemon again if it is gone
	Access    api.Access
	Workspace string // where the agent begins
	Source    string // of that, if it is made
	State     string
	ReadOnly  bool
	Version   string
	Log       io.Writer // nil: nothing is logged
	In        io.ReadCloser
	Out       io.WriteCloser
}

// engineName is the file name of the complete command when a client is installed as snapfs.
const engineName = "snapfs-engine"

// enginePath finds the program that can serve: this one, or the complete command that is installed beside it or in
// PREFIX/libexec/snapfs.
func (a *app) enginePath() (string, error) {
	self, err := os.Executable() // resolves symbolic links
	if err != nil || a.Engine != nil {
		return self, err
	}
	return engineBeside(self)
}

// engineBeside finds the complete command that belongs to the client at self.
func engineBeside(self string) (string, error) {
	dir := filepath.Dir(self)
	paths := []string{filepath.Join(dir, engineName), filepath.Join(filepath.Dir(dir), "libexec", "snapfs", engineName)}
	for _, path := range paths {
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			return path, nil
		}
	}
	return "", failure(api.ErrUnavailable, "the engine is missing: there is neither %s",
		strings.Join(paths, " nor "))
}

// ClientsOf finds the client to which the complete command at a path belongs: none if it is not installed as an engine.
func ClientsOf(engine string) []string {
	if filepath.Base(engine) != engineName {
		return nil
	}
	dir := filepath.Dir(engine)
	for _, path := range []string{filepath.Join(dir, "snapfs"), filepath.Join(dir, "../../bin/snapfs")} {
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			return []string{path}
		}
	}
	return nil
}

// execEngine replaces this process with the complete command, with the same arguments. It returns only on failure.
func execEngine() error {
	path, err := (&app{}).enginePath()
	if err != nil {
		return err
	}
	err = syscall.Exec(path, os.Args, os.Environ())
	if errors.Is(err, syscall.ENOENT) { // the file was found above
		err = failure(api.ErrUnavailable, "its dynamic loader is missing: %w", err)
	}
	return fmt.Errorf("run %s: %w", path, err)
}
