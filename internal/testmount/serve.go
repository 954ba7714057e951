package testmount

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/chunkstore"
	snapfuse "snapfs/fs"
	"snapfs/internal/livestate"
	"snapfs/internal/testimage"
	"snapfs/layers"
)

// childEnv tells the test binary to serve instead of testing.
const childEnv = "SNAPFS_TESTMOUNT"

// Main runs the tests of a package, or serves if this process is a test's child.
func Main(m *testing.M) {
	if os.Getenv(childEnv) == "" {
		os.Exit(runOnEach(m))
	}
	if err := serve(); err != nil {
		fmt.Fprintln(os.Stderr, "testmount:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// runOnEach runs the tests on each transport that the kernel has. FUSE over io_uring is switched on for that where it
// is off, and off again afterwards.
func runOnEach(m *testing.M) int {
	if os.Getenv(TransportEnv) != "" {
		return m.Run()
	}
	_ = os.Setenv(TransportEnv, "dev") // fails for an empty name only
	if code := m.Run(); code != 0 {    // the log says which transport
		return code
	}
	off, err := switchOn()
	if err != nil {
		fmt.Println("testmount: tested on /dev/fuse only:", err)
		return 0
	}
	defer off()
	fmt.Println("testmount: once more, over io_uring")
	_ = os.Setenv(TransportEnv, "uring")
	return m.Run()
}

// switchOn switches FUSE over io_uring on. off switches it off if the first of the runs that overlap found it off, and
// no other run needs it. Each run holds a shared flock on the kernel's parameter, and those of a system that had it off
// a lock of the file's first byte as well, so that whoever is the last knows. Runs begin and end one at a time, by a
// flock on the directory.
func switchOn() (off func(), err error) {
	turn, err := os.Open(filepath.Dir(snapfuse.RingParameter))
	if err != nil {
		return nil, err
	}
	defer turn.Close() //nolint:errcheck // only locked
	if err := unix.Flock(int(turn.Fd()), unix.LOCK_EX); err != nil {
		return nil, err
	}
	parameter, err := os.Open(snapfuse.RingParameter)
	if err != nil {
		return nil, err
	}
	wasOff, err := joinRing(int(parameter.Fd()))
	if err != nil {
		_ = parameter.Close() // only read
		return nil, err
	}
	return func() {
		defer parameter.Close() //nolint:errcheck // only read
		turn, err := os.Open(filepath.Dir(snapfuse.RingParameter))
		if err == nil {
			defer turn.Close() //nolint:errcheck // only locked
			err = unix.Flock(int(turn.Fd()), unix.LOCK_EX)
		}
		if err == nil && wasOff && unix.Flock(int(parameter.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			err = os.WriteFile(snapfuse.RingParameter, []byte("N"), 0)
		}
		if err != nil {
			fmt.Println("testmount:", err)
		}
	}, nil
}

// joinRing takes the locks of a run on the open parameter, switches io_uring on, and reports whether it was off before
// the first run.
func joinRing(fd int) (wasOff bool, err error) {
	if err := unix.Flock(fd, unix.LOCK_SH); err != nil {
		return false, err
	}
	first := unix.Flock_t{Type: unix.F_WRLCK, Len: 1}
	if err := unix.FcntlFlock(uintptr(fd), unix.F_OFD_GETLK, &first); err != nil {
		return false, err
	}
	changed, err := snapfuse.EnableRing()
	if err != nil {
		return false, err
	}
	if !changed && first.Type == unix.F_UNLCK {
		return false, nil
	}
	mark := unix.Flock_t{Type: unix.F_RDLCK, Len: 1}
	return true, unix.FcntlFlock(uintptr(fd), unix.F_OFD_SETLK, &mark)
}

// Descriptors that a child inherits with Config.Live; the second one to go on with a mount.
const (
	stateFD  = 3
	deviceFD = 4
)

// server is the child's state.
type server struct {
	source *layers.Lower     // of Config.Source
	store  *chunkstore.Store // of its image
	o      *layers.Overlay
	m      *snapfuse.Mount
	keys   uint64
	owned  []*layers.Lower
	prof   *os.File
}

// serve obeys the commands on standard input until it ends, then unmounts.
func serve() error {
	// A signal to the whole group, as a time limit sends it, must not kill the one who cleans up.
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	syscall.Umask(0)
	var s server
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 1<<20)
	out := json.NewEncoder(os.Stdout)
	for in.Scan() {
		var c command
		if err := json.Unmarshal(in.Bytes(), &c); err != nil {
			return err
		}
		var a answer
		if err := s.obey(c, &a); err != nil {
			a.Error = err.Error()
		}
		if err := out.Encode(a); err != nil {
			break // the test is gone
		}
	}
	return s.end()
}

func (s *server) obey(c command, a *answer) error {
	if s.m == nil && c.Do != "mount" && c.Do != "adopt" {
		return errors.New("not mounted")
	}
	switch c.Do {
	case "mount", "adopt":
		return s.mount(c)
	case "device":
		a.Device = int(s.m.DeviceFile().Fd())
	case "release":
		ctx, cancel := context.WithTimeout(context.Background(), answerTime/2)
		defer cancel()
		if err := s.m.Release(ctx); err != nil {
			return err
		}
		s.m = nil
	case "seal":
		s.keys++
		l, err := s.o.Seal(context.Background(), c.Key, c.Upper, c.Work, s.keys<<48)
		if err == nil {
			s.owned = append(s.owned, l)
		}
		return err
	case "refer":
		_, err := s.o.Lookup(layers.RootNode, c.Key)
		return err
	case "records":
		a.Records = s.o.Recorded()
	case "requests":
		a.Requests = s.m.Requests()
	case "transport":
		a.Transport = s.m.Transport()
	case "memory":
		var ms runtime.MemStats
		runtime.ReadMemStats(&ms)
		a.Memory = Memory{
			Mallocs: ms.Mallocs, Bytes: ms.TotalAlloc, HeapInUse: ms.HeapInuse, Goroutines: runtime.NumGoroutine(),
		}
	case "import":
		return s.importSource()
	case "pause":
		s.o.Pause()
	case "resume":
		s.o.Resume()
	case "unmount", "detach":
		return s.m.Unmount(c.Do == "detach")
	case "abort":
		return s.m.Abort()
	case "done":
		select {
		case <-s.m.Done():
		case <-time.After(answerTime / 2):
			return errors.New("the connection lives on")
		}
	default:
		return fmt.Errorf("no such command: %q", c.Do)
	}
	return nil
}

func (s *server) mount(c command) error {
	var lowers []*layers.Lower
	for _, dir := range c.Config.Sealed {
		l, err := layers.OpenSealed(dir, dir, uint64(len(lowers)+1)<<40)
		if err != nil {
			return err
		}
		lowers = append(lowers, l)
	}
	for _, name := range c.Config.Images {
		f, err := testimage.Open(name)
		if err != nil {
			return err
		}
		l, err := layers.OpenImage(name, f, 0)
		if err != nil {
			return err
		}
		lowers = append(lowers, l)
	}
	var err error
	var live *livestate.State
	if c.Config.Live {
		if live, err = livestate.Open(os.NewFile(stateFD, "live state")); err != nil {
			return err
		}
	}
	if c.Config.Source != "" {
		copies := filepath.Join(filepath.Dir(c.Upper), "copies")
		if s.source, err = layers.OpenSource("source", c.Config.Source, layers.SourceOptions{Copies: copies}); err != nil {
			return err
		}
		if s.store, err = chunkstore.Open(filepath.Join(filepath.Dir(c.Upper), "store"), chunkstore.Options{}); err != nil {
			return err
		}
		lowers = append(lowers, s.source)
	}
	if s.o, err = layers.New(c.Upper, c.Work, lowers, layers.Options{ReadOnly: c.Config.ReadOnly, Live: live}); err != nil {
		return fmt.Errorf("overlay: %w", err)
	}
	s.owned = lowers
	if c.Config.Profile != "" {
		if s.prof, err = os.Create(c.Config.Profile); err != nil {
			return err
		}
		if err := pprof.StartCPUProfile(s.prof); err != nil {
			return err
		}
	}
	level := slog.LevelInfo
	if c.Config.Trace {
		level = slog.LevelDebug
	}
	ctx, cancel := context.WithTimeout(context.Background(), answerTime/2)
	defer cancel()
	opts := snapfuse.Options{
		Live:      live,
		Reconcile: c.Config.Reconcile,
		Transport: cmp.Or(c.Config.Transport, os.Getenv(TransportEnv)),
		ReadOnly:  c.Config.ReadOnly,
		NoExec:    c.Config.NoExec,
		Writeback: c.Config.Writeback,
		Debug:     c.Config.Trace,
		Logger:    slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level})),
	}
	if c.Do == "adopt" {
		s.m, err = snapfuse.Adopt(ctx, s.o, os.NewFile(deviceFD, "device"), c.Config.Mount, opts)
	} else {
		s.m, err = snapfuse.New(ctx, s.o, c.Config.Mount, opts)
	}
	return err
}

// importSource puts the image of the source in its place.
func (s *server) importSource() error {
	ctx := context.Background()
	m, err := layers.StoreSource(ctx, s.store, s.source, layers.StoreOptions{}, func(*chunkstore.Tx, chunkstore.Manifest) error { return nil })
	if err != nil {
		return err
	}
	r, err := s.store.OpenManifest(ctx, m.ID)
	if err != nil {
		return err
	}
	l, err := layers.OpenImage("source", r, m.ID)
	if err != nil {
		return err
	}
	s.owned = append(s.owned, l)
	return s.o.Replace(l)
}

// end leaves nothing behind.
func (s *server) end() error {
	var errs []error
	if s.m != nil {
		errs = append(errs, s.m.Unmount(true))
		select {
		case <-s.m.Done():
		case <-time.After(answerTime / 3):
			errs = append(errs, s.m.Abort())
			<-s.m.Done()
		}
	}
	if s.o != nil {
		errs = append(errs, s.o.Close())
	}
	for _, l := range s.owned {
		errs = append(errs, l.Close())
	}
	if s.store != nil {
		errs = append(errs, s.store.Close())
	}
	if s.prof != nil {
		pprof.StopCPUProfile()
		errs = append(errs, s.prof.Close())
	}
	return errors.Join(errs...)
}
