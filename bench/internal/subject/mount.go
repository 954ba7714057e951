package subject

import "context"

// Mount is a tree that programs work on.
type Mount interface {
	System
	// Dir is where programs see it.
	Dir() string
	// Cold makes the next access find no cache, neither the kernel's nor the system's. What programs of its own the
	// system has are cached, as they are part of no tree.
	Cold(ctx context.Context) error
	// Requests counts what the kernel has asked of the server since it was mounted, by kind; nil where there is no
	// server.
	Requests(ctx context.Context) (map[string]uint64, error)
	// Server is the process that serves the mount, 0 where the kernel does.
	Server(ctx context.Context) (pid int, err error)
	// Binaries are the files of the programs that serve the mount.
	Binaries() []string
}
