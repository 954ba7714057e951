package fs

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/internal/livestate"
	"snapfs/internal/testseed"
	"snapfs/layers"
)

// What the test binary is told to be: a server, which mounts or adopts, or a program in the mount.
const (
	againServer  = "SNAPFS_AGAIN_SERVER"
	againProgram = "SNAPFS_AGAIN_PROGRAM"
	againStop    = "SNAPFS_AGAIN_STOP"
)

// TestAgainServer serves a mount until it is killed.
func TestAgainServer(t *testing.T) {
	base := os.Getenv(againServer)
	if base == "" {
		return // it is run by TestKilledServer
	}
	live, err := livestate.Open(os.NewFile(3, "state"))
	if err != nil {
		t.Fatal(err)
	}
	lower, err := layers.OpenSealed("base", filepath.Join(base, "lower"), 1<<40)
	if err != nil {
		t.Fatal(err)
	}
	o, err := layers.New(filepath.Join(base, "upper"), filepath.Join(base, "work"), []*layers.Lower{lower},
		layers.Options{InoBase: 2 << 40, Live: live})
	if err != nil {
		t.Fatal(err)
	}
	opts, dir := Options{Live: live}, filepath.Join(base, "mount")
	var m *Mount
	if device := os.NewFile(4, "device"); os.Getenv("SNAPFS_AGAIN_ADOPT") != "" {
		m, err = Adopt(context.Background(), o, device, dir, opts)
	} else {
		m, err = New(context.Background(), o, dir, opts)
	}
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println("device", m.DeviceFile().Fd())
	<-m.Done()
}

// TestAgainProgram changes things in a directory of the mount, all of which must succeed, until it is told to stop.
func TestAgainProgram(t *testing.T) {
	dir := os.Getenv(againProgram)
	if dir == "" {
		return // it is run by TestKilledServer
	}
	rounds := 0
	for ; ; rounds++ {
		if _, err := os.Lstat(os.Getenv(againStop)); err == nil && rounds > 2 {
			break
		}
		if err := changeAll(dir, rounds); err != nil {
			t.Fatalf("round %d: %v", rounds, err)
		}
	}
	log, err := os.ReadFile(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range strings.Split(strings.TrimSuffix(string(log), "\n"), "\n") {
		if want := "line " + strconv.Itoa(i); line != want {
			t.Fatalf("the log has %q in place of %q", line, want)
		}
	}
	names, err := os.ReadDir(dir)
	if err != nil || len(names) != 1 {
		t.Errorf("left are %v, %v", names, err)
	}
	fmt.Println("rounds", rounds)
}

// changeAll makes each change whose repetition would be an error or another change.
func changeAll(dir string, round int) error {
	at := func(name string) string { return filepath.Join(dir, name) }
	page := func(c byte) []byte { return bytes.Repeat([]byte{c}, 4096) }
	do := func(what string, err error) error {
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		return nil
	}
	create := func(name string, data []byte) error {
		f, err := os.OpenFile(at(name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o640)
		if err != nil {
			return err
		}
		_, err = f.Write(data)
		return errors.Join(err, f.Close())
	}
	appendTo := func() error {
		f, err := os.OpenFile(at("log"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o640)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(f, "line %d\n", round)
		return errors.Join(err, f.Close())
	}
	shift := func(mode uint32, want []byte) error {
		f, err := os.OpenFile(at("f"), os.O_RDWR, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		err = unix.Fallocate(int(f.Fd()), mode, 4096, 4096)
		if errors.Is(err, unix.EOPNOTSUPP) {
			return nil // the host cannot
		}
		got, rerr := os.ReadFile(at("f"))
		if err == nil && rerr == nil && !bytes.Equal(got, want) {
			return fmt.Errorf("%d bytes, want %d", len(got), len(want))
		}
		return errors.Join(err, rerr)
	}
	text := append(page('a'), page('b')...)
	hole := append(append(page('a'), page(0)...), page('b')...)
	for _, step := range []func() error{
		func() error { return do("append", appendTo()) },
		func() error { return do("mkdir", os.Mkdir(at("d"), 0o750)) },
		func() error { return do("rename directory", os.Rename(at("d"), at("e"))) },
		func() error { return do("create", create("f", text)) },
		func() error { return do("insert", shift(unix.FALLOC_FL_INSERT_RANGE, hole)) },
		func() error { return do("collapse", shift(unix.FALLOC_FL_COLLAPSE_RANGE, text)) },
		func() error {
			return do("set attribute", unix.Setxattr(at("f"), "user.x", []byte("y"), unix.XATTR_CREATE))
		},
		func() error {
			return do("replace attribute", unix.Setxattr(at("f"), "user.x", []byte("z"), unix.XATTR_REPLACE))
		},
		func() error { return do("remove attribute", unix.Removexattr(at("f"), "user.x")) },
		func() error { return do("link", os.Link(at("f"), at("e/g"))) },
		func() error { return do("exclusive", create("h", nil)) },
		func() error {
			return do("exchange", unix.Renameat2(unix.AT_FDCWD, at("f"), unix.AT_FDCWD, at("h"), unix.RENAME_EXCHANGE))
		},
		func() error {
			if fi, err := os.Lstat(at("f")); err != nil || fi.Size() != 0 {
				return fmt.Errorf("exchanged: %v, %w", fi, err)
			}
			return nil
		},
		func() error {
			return do("rename", unix.Renameat2(unix.AT_FDCWD, at("f"), unix.AT_FDCWD, at("i"), unix.RENAME_NOREPLACE))
		},
		func() error { return do("rename over", os.Rename(at("h"), at("i"))) },
		func() error { return do("symlink", os.Symlink("i", at("s"))) },
		func() error { return do("mknod", unix.Mknod(at("p"), unix.S_IFIFO|0o600, 0)) },
		func() error { return do("unlink symlink", os.Remove(at("s"))) },
		func() error { return do("unlink fifo", os.Remove(at("p"))) },
		func() error {
			f, err := os.Open(at("i"))
			if err != nil {
				return do("open", err)
			}
			defer f.Close()
			if err := errors.Join(os.Remove(at("i")), os.Remove(at("e/g"))); err != nil {
				return do("unlink", err)
			}
			got := make([]byte, len(text))
			if _, err := f.ReadAt(got, 0); err != nil || !bytes.Equal(got, text) {
				return fmt.Errorf("what was unlinked has other contents: %w", err)
			}
			return nil
		},
		func() error { return do("rmdir", os.Remove(at("e"))) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// serverProcess starts one that mounts or adopts, and gives a descriptor of the connection.
func serverProcess(t *testing.T, base string, live *livestate.State, device *os.File) (*exec.Cmd, *os.File) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run", "^TestAgainServer$")
	cmd.Env = append(os.Environ(), againServer+"="+base)
	cmd.ExtraFiles = []*os.File{live.File()}
	if device != nil {
		cmd.Env = append(cmd.Env, "SNAPFS_AGAIN_ADOPT=1")
		cmd.ExtraFiles = append(cmd.ExtraFiles, device)
	}
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	line, err := bufio.NewReader(out).ReadString('\n')
	number, found := strings.CutPrefix(strings.TrimSpace(line), "device ")
	if err != nil || !found {
		t.Fatalf("the server says %q, %v", line, err)
	}
	if device != nil {
		return cmd, device
	}
	fd, err := strconv.Atoi(number)
	if err != nil {
		t.Fatal(err)
	}
	pidfd, err := unix.PidfdOpen(cmd.Process.Pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pidfd)
	if fd, err = unix.PidfdGetfd(pidfd, fd, 0); err != nil {
		t.Fatal(err)
	}
	device = os.NewFile(uintptr(fd), "device")
	t.Cleanup(func() { _ = device.Close() })
	return cmd, device
}

// TestKilledServer kills the server of a mount again and again, while programs change things in it: none of them sees an
// error, and nothing is done twice.
func TestKilledServer(t *testing.T) {
	rng := rand.New(rand.NewPCG(testseed.Of(t), 19))
	kills := 25
	if os.Getenv("SNAPFS_LONG") != "" {
		kills = 1000
	}
	base := t.TempDir()
	for _, d := range []string{"lower/one", "lower/two", "lower/three", "upper", "work", "mount"} {
		if err := os.MkdirAll(filepath.Join(base, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	live, err := livestate.Create(t.Name())
	if err != nil {
		t.Fatal(err)
	}
	defer live.Close()
	mount := filepath.Join(base, "mount")
	server, device := serverProcess(t, base, live, nil)
	defer func() { _ = unix.Unmount(mount, unix.MNT_DETACH) }() // without a server it ends by that, too
	stop := filepath.Join(base, "stop")
	var programs []*exec.Cmd
	var outputs []*bytes.Buffer
	for _, d := range []string{"one", "two", "three"} {
		p, out := exec.Command(os.Args[0], "-test.run", "^TestAgainProgram$"), new(bytes.Buffer)
		p.Env = append(os.Environ(), againProgram+"="+filepath.Join(mount, d), againStop+"="+stop)
		p.Stdout, p.Stderr = out, out
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		programs, outputs = append(programs, p), append(outputs, out)
	}
	for range kills {
		time.Sleep(time.Duration(rng.IntN(100_000)) * time.Microsecond)
		if err := server.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = server.Wait() // killed: an error is in order
		server, _ = serverProcess(t, base, live, device)
	}
	if err := os.WriteFile(stop, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for i, p := range programs {
		ended := make(chan error, 1)
		go func() { ended <- p.Wait() }()
		select {
		case err := <-ended:
			t.Logf("%s", outputs[i])
			if err != nil {
				t.Errorf("a program: %v", err)
			}
		case <-time.After(time.Minute):
			_ = p.Process.Kill()
			t.Error("a program hangs")
		}
	}
	if err := unix.Unmount(mount, unix.MNT_DETACH); err != nil {
		t.Error(err)
	}
	_ = server.Process.Kill()
	_ = server.Wait()
}
