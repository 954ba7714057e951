package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"snapfs/internal/testseed"
)

// TestSmallLimits: a daemon with few descriptors serves many workspaces, whatever programs in one of them keep open:
// removed files and directories stay usable there, and nobody else meets an error.
func TestSmallLimits(t *testing.T) {
	rng := rand.New(rand.NewPCG(testseed.Of(t), 6))
	for _, limit := range []int{256, 1024} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) { smallLimit(t, rng, limit) })
	}
}

func smallLimit(t *testing.T, rng *rand.Rand, limit int) {
	h := newHome(t)
	script := fmt.Sprintf("ulimit -n %d; exec %s serve >%s 2>&1", limit, snapfs, h.path("serve.log"))
	serve := exec.Command("bash", "-c", script)
	serve.Env = append(os.Environ(), h.env...)
	serve.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(t, serve.Start())
	ended := make(chan error, 1)
	go func() { ended <- serve.Wait() }()
	t.Cleanup(func() {
		if t.Failed() {
			text, _ := os.ReadFile(h.path("serve.log")) // beside the failure
			t.Logf("serve.log:\n%s", tail(string(text)))
		}
		h.ok("stop")
		require.NoError(t, <-ended)
	})
	for end := time.Now().Add(soon); ; time.Sleep(20 * time.Millisecond) {
		if _, err := os.Stat(filepath.Join(h.dir, "daemon.sock")); err == nil {
			break
		}
		require.True(t, time.Now().Before(end), "no daemon")
	}

	const count = 12
	var dirs []string
	wrote := make([]map[string]string, count)
	for i := range count {
		dirs = append(dirs, h.path(fmt.Sprintf("w%d", i)))
		wrote[i] = map[string]string{}
		h.ok("up", fmt.Sprintf("w%d", i), dirs[i])
	}
	type kept struct {
		fd   int
		text string // "" for a directory
	}
	var open []kept
	defer func() {
		for _, k := range open {
			_ = unix.Close(k.fd) // what was written was read back
		}
	}()
	steps := limit
	if long {
		steps = 3 * limit
	}
	for step := range steps {
		name := filepath.Join(dirs[0], fmt.Sprint("gone", step))
		k := kept{}
		var err error
		if rng.IntN(2) == 0 {
			k.text = fmt.Sprint("text ", step)
			require.NoError(t, os.WriteFile(name, []byte(k.text), 0o600))
			if rng.IntN(8) == 0 { // a name that nobody has looked at is no help here: both go
				require.NoError(t, os.Link(name, name+".link"))
				require.NoError(t, os.Remove(name+".link"))
			}
			k.fd, err = unix.Open(name, unix.O_RDWR|unix.O_CLOEXEC, 0)
		} else {
			require.NoError(t, os.Mkdir(name, 0o700))
			k.fd, err = unix.Open(name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		}
		require.NoError(t, err)
		require.NoError(t, os.Remove(name))
		open = append(open, k)
		if step%8 == 0 {
			i := 1 + rng.IntN(count-1)
			sub := fmt.Sprintf("d%d", rng.IntN(40))
			require.NoError(t, os.MkdirAll(filepath.Join(dirs[i], sub), 0o755))
			file := filepath.Join(sub, fmt.Sprint(rng.IntN(3)))
			text := fmt.Sprint(step, " of ", i)
			require.NoError(t, os.WriteFile(filepath.Join(dirs[i], file), []byte(text), 0o644))
			wrote[i][file] = text
		}
		if step%limit == limit/2 {
			h.ok("snapshot", fmt.Sprintf("w%d", rng.IntN(count)), "--quiet")
		}
	}
	for i, files := range wrote {
		for file, text := range files {
			got, err := os.ReadFile(filepath.Join(dirs[i], file))
			require.NoError(t, err)
			require.Equal(t, text, string(got))
		}
	}
	buf := make([]byte, 100)
	for _, i := range rng.Perm(len(open)) {
		k := open[i]
		var st unix.Stat_t
		require.NoError(t, unix.Fstat(k.fd, &st))
		require.Zero(t, st.Nlink)
		if k.text != "" {
			n, err := unix.Pread(k.fd, buf, 0)
			require.NoError(t, err)
			require.Equal(t, k.text, string(buf[:n]))
		}
	}
	// More than there is room for is refused in one clear line, and harms nobody.
	if limit == 256 {
		var made []string
		for i := range 100 {
			name, dir := fmt.Sprintf("more%d", i), h.path(fmt.Sprintf("more%d", i))
			if r := h.run("up", name, dir); r.code != 0 {
				require.Equal(t, 7, r.code, r.err)
				require.Contains(t, strings.ToLower(r.err), "descriptors")
				break
			}
			made = append(made, name)
		}
		require.NotEmpty(t, made)
		require.Less(t, len(made), 100)
		h.ok("snapshot", "w1", "--quiet")
		slices.Reverse(made)
		for _, name := range made {
			h.ok("umount", name)
		}
	}
}
