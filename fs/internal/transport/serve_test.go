package transport

import (
	"context"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"snapfs/fs/internal/fakefs"
	"snapfs/fs/internal/mountpoint"
)

// serve mounts a file system as package fs does, without the translation.
func serve(ctx context.Context, raw fuse.RawFileSystem, dir, want string, log *slog.Logger) (*mount, error) {
	var m *mount
	_, err := Serve(ctx, Config{
		Transport: want,
		Log:       log,
		Gate:      gateOf(raw),
		Attach: func(ctx context.Context) (Attached, error) {
			point, fd, err := mountpoint.Attach(ctx, dir, mountpoint.Options{FSName: "fake", MaxRead: MaxIO})
			if err != nil {
				return Attached{}, err
			}
			done := make(chan struct{})
			m = &mount{Mountpoint: point, done: done}
			return Attached{FD: fd, Device: point.Device(), Detach: point.Detach, Done: func() { close(done) }}, nil
		},
		Handler: func(c *Conn, ring bool) Handler {
			m.Conn = c
			return fuse.NewProtocolServer(raw, protocolOptions(ring))
		},
	})
	if err != nil {
		return nil, err
	}
	return m, nil
}

// gateOf is the file system as a gate, if it is one.
func gateOf(raw fuse.RawFileSystem) Gate {
	g, _ := raw.(Gate)
	return g
}

// mount is a connection and where it was mounted.
type mount struct {
	*Conn
	*mountpoint.Mountpoint
	done chan struct{}
}

// protocolOptions are, as far as the transport is concerned, those of package fs.
func protocolOptions(ring bool) *fuse.MountOptions {
	o := &fuse.MountOptions{
		MaxWrite:                 MaxIO,
		MaxReadAhead:             MaxIO,
		MaxBackground:            32,
		EnableSymlinkCaching:     true,
		ExplicitDataCacheControl: true,
		EnableAcl:                true,
		IDMappedMount:            true,
		ExtraCapabilities: fuse.CAP_DONT_MASK | fuse.CAP_HANDLE_KILLPRIV_V2 | fuse.CAP_SETXATTR_EXT |
			fuse.CAP_NO_OPENDIR_SUPPORT,
		DisabledCapabilities: fuse.CAP_ASYNC_DIO | fuse.CAP_ATOMIC_O_TRUNC | fuse.CAP_AUTO_INVAL_DATA | fuse.CAP_POSIX_LOCKS |
			fuse.CAP_FLOCK_LOCKS | fuse.CAP_EXPORT_SUPPORT | fuse.CAP_PASSTHROUGH | fuse.CAP_WRITEBACK_CACHE,
		DisableSplice: true,
		PanicHandler:  func(v any) fuse.Status { panic(v) }, // the transport catches it
	}
	if ring {
		o.ExtraCapabilities |= fuse.CAP_OVER_IO_URING
	}
	return o
}

// serveFake mounts the fake in this process; the test reaches it only through other programs.
func serveFake(t *testing.T, f *fakefs.FS) (*mount, string, *fakefs.Log) {
	t.Helper()
	dir := t.TempDir()
	log := new(fakefs.Log)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	m, err := serve(ctx, f, dir, transportOfTest(), slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		f.AnswerAll()
		if err := m.Unmount(true); err != nil {
			t.Errorf("unmount: %v", err)
		}
		fakefs.WaitDone(t, m.done)
	})
	return m, dir, log
}

// transportOfTest is what the run of the tests is about; internal/testmount sets it.
func transportOfTest() string { return os.Getenv("SNAPFS_TEST_TRANSPORT") }
