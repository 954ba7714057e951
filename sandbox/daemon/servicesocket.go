package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"snapfs/sandbox"
	"snapfs/sandbox/api"
	"snapfs/sandbox/api/wire"
)

// maxSocketPath is how long the path of a socket may be that others connect to: sun_path of unix(7).
const maxSocketPath = 107

// ServiceSocket is a unix socket at a path of its own for some of the services, such as one that a container engine
// looks for. Root and the user that runs the daemon may use it.
type ServiceSocket struct {
	path     string
	listener *net.UnixListener
	patterns []string // of the services
	place    Place
}

// Place tells a socket from another one at its path.
type Place struct{ Dev, Ino uint64 }

// PlaceOf is that of the socket at a path.
func PlaceOf(path string) (Place, error) {
	var st unix.Stat_t
	err := unix.Lstat(path, &st)
	return Place{uint64(st.Dev), st.Ino}, err
}

// ListenService makes a socket at a path for the services of some patterns, and the directories above it that are
// missing. ErrConflict if a process listens there, or if there is anything but a socket.
func ListenService(path string, patterns []string) (*ServiceSocket, error) {
	if !filepath.IsAbs(path) || len(path) > maxSocketPath {
		return nil, fmt.Errorf("%w: socket %s: its path must be absolute and have at most %d bytes",
			sandbox.ErrInvalid, api.Quoted(path), maxSocketPath)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, wire.Unavailable("making the directory of a socket: %w", err)
	}
	if err := vacant(path); err != nil {
		return nil, err
	}
	// Its mode is that of the umask at first: nobody else gets into the directory where it is made.
	dir, err := os.MkdirTemp(filepath.Dir(path), ".s-")
	if err != nil {
		return nil, wire.Unavailable("making the socket %s: %w", path, err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	l, err := listenIn(dir)
	if err == nil {
		if err = os.Rename(filepath.Join(dir, "s"), path); err != nil {
			err = errors.Join(err, l.Close())
		}
	}
	if err != nil {
		return nil, wire.Unavailable("making the socket %s: %w", path, err)
	}
	return GoOnService(path, patterns, l)
}

// GoOnService goes on with the socket that the daemon before has made at a path.
func GoOnService(path string, patterns []string, l *net.UnixListener) (*ServiceSocket, error) {
	l.SetUnlinkOnClose(false)
	at, err := PlaceOf(path)
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return &ServiceSocket{path: path, listener: l, patterns: patterns, place: at}, nil
}

// vacant refuses a path at which somebody listens, or where there is something else.
func vacant(path string) error {
	fi, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return wire.Unavailable("making the socket %s: %w", path, err)
	case fi.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("%w: %s is there, and no socket", sandbox.ErrConflict, path)
	}
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	if err == nil {
		_ = c.Close() // nothing was said
		return fmt.Errorf("%w: another process listens at %s", sandbox.ErrConflict, path)
	}
	if errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return fmt.Errorf("%w: another process may listen at %s: %w", sandbox.ErrConflict, path, err)
}

// listenIn makes the socket s in a directory. A path below it may be too long for a socket.
func listenIn(dir string) (*net.UnixListener, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = d.Close() }() // opened to be named
	at := fmt.Sprintf("/proc/self/fd/%d/s", d.Fd())
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: at, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	if err := os.Chmod(at, 0o600); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// urls are those by which clients find the socket.
func (s *ServiceSocket) urls() []string {
	if s == nil {
		return nil
	}
	return []string{"unix://" + s.path}
}

// Place tells the socket from others at its path.
func (s *ServiceSocket) Place() Place { return s.place }

// File is a copy of the descriptor.
func (s *ServiceSocket) File() (*os.File, error) { return s.listener.File() }

// Close ends listening, and removes the socket; nil is none.
func (s *ServiceSocket) Close() error {
	if s == nil {
		return nil
	}
	err := s.leave()
	if at, e := PlaceOf(s.path); e != nil || at != s.place { // another one is there, or none
		return err
	}
	if e := os.Remove(s.path); !errors.Is(e, fs.ErrNotExist) {
		err = errors.Join(err, e)
	}
	return err
}

// leave ends listening here. Others may have the socket, too.
func (s *ServiceSocket) leave() error {
	if s == nil {
		return nil
	}
	if err := s.listener.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// noteSilent notes which connections to a ServiceSocket are there without a request: engines keep some, and the server
// would wait for these seconds long when it ends.
func (s *server) noteSilent(c net.Conn, state http.ConnState) {
	if askerOf(c).only == nil {
		return
	}
	if state == http.StateNew {
		s.silent.Store(c, true)
	} else {
		s.silent.Delete(c)
	}
}

// closeSilent closes those connections. An engine asks again on another one.
func (s *server) closeSilent() {
	s.silent.Range(func(c, _ any) bool {
		_ = c.(net.Conn).Close() // nothing was said
		return true
	})
}

// who finds out about a connection to the socket.
func (s *ServiceSocket) who(a Access) func(net.Conn) *asker {
	return func(c net.Conn) *asker {
		who := *a.who(c)
		who.only = s.patterns
		return &who
	}
}
