// Package fakefs is a file system for tests of mounts: any name exists in its root, and the test decides which look-ups
// are answered when. The test's process serves it, and so must not touch it: it runs programs that do.
package fakefs

import (
	"bytes"
	"context"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// Forever is the timeout of names and attributes, in seconds.
const Forever = 10 * 365 * 24 * 3600

// FS has any name in its root, a file each, which is node 2. A look-up of a name that begins with "wait" is not
// answered before AnswerAll is called; one of a name that begins with "panic" panics.
type FS struct {
	fuse.RawFileSystem
	waiting chan string // names that are not answered yet
	once    sync.Once
	release chan struct{} // closed by AnswerAll
}

// New gives a file system of which nothing has been asked.
func New() *FS {
	return &FS{
		RawFileSystem: fuse.NewDefaultRawFileSystem(),
		waiting:       make(chan string, 1000),
		release:       make(chan struct{}),
	}
}

// Lookup implements fuse.RawFileSystem.
func (f *FS) Lookup(_ <-chan struct{}, _ *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	if strings.HasPrefix(name, "wait") {
		f.waiting <- name
		<-f.release
	}
	if strings.HasPrefix(name, "panic") {
		panic("as asked")
	}
	out.NodeId, out.Mode, out.Nlink = 2, unix.S_IFREG|0o644, 1
	out.AttrValid, out.EntryValid = Forever, Forever
	return fuse.OK
}

// GetAttr implements fuse.RawFileSystem.
func (f *FS) GetAttr(_ <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	out.Mode, out.Nlink = unix.S_IFDIR|0o755, 2
	if in.NodeId != fuse.FUSE_ROOT_ID {
		out.Mode, out.Nlink = unix.S_IFREG|0o644, 1
	}
	out.AttrValid = Forever
	return fuse.OK
}

// AwaitOne returns when one more request is not being answered.
func (f *FS) AwaitOne(t *testing.T) {
	t.Helper()
	select {
	case <-f.waiting:
	case <-time.After(time.Minute):
		t.Fatal("the request does not arrive")
	}
}

// AnswerAll has all look-ups answered, from now on.
func (f *FS) AnswerAll() { f.once.Do(func() { close(f.release) }) }

// Log is a buffer that may be written and read at the same time.
type Log struct {
	mu sync.Mutex
	b  bytes.Buffer // guarded by mu
}

// Write implements io.Writer.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// String is all that was written.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// Program starts a program that ends with the test.
func Program(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.WaitDelay = time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cancel(); _ = cmd.Wait() }) // as a rule it was waited for
	return cmd
}

// Stat has another process look at a path.
func Stat(t *testing.T, path string) error {
	t.Helper()
	return Program(t, "stat", path).Wait()
}

// WaitDone waits for the end of a connection.
func WaitDone(t *testing.T, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Error("the connection does not end")
	}
}
