package mountio

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"

	"snapfs/bench/internal/program"
)

// workload is what is timed, with the root of the mounted tree as working directory: a shell script, or run.
type workload struct {
	name       string
	programs   []string
	prepare    string // script that is run before, not timed
	script     string
	repeatable bool // it changes nothing: its script runs several times in a sample
	cold       bool // caches are emptied before
	dentries   bool // the kernel's caches of names and inodes are emptied before
	needed     bool // later workloads of the session stand on what it leaves
	npm        bool // needs the node project's packages
	best       int  // so many samples are taken, each made ready anew, of which the best counts
	run        func(ctx context.Context, f *fixture, dir string) ([]reading, error)
}

// session is workloads that share a mount, in order.
type session struct {
	name      string
	parts     []string // of the fixture that they use
	prepare   string   // script that is run before, not timed, so that all systems start alike
	once      bool     // in the first round only: it takes long and varies little
	workloads []workload
}

const (
	findScript   = `find tree -name .git -prune -o -type f -print0 | xargs -0 stat -c %s >/dev/null`
	grepScript   = `grep -rIF zzqqxx tree --exclude-dir=.git || true`
	statusScript = `git -C tree status >/dev/null`
	// git notes where each file lies, which differs between the fixture and a copy of it: the first status looks at all
	// contents.
	gitPrepare = statusScript + "\n"
	// Everything is read once: no system has to wait for the disk where another has found the page cache full.
	readPrepare = gitPrepare + grepScript + `
find tree/.git -type f -exec cat {} + >/dev/null
cat "$TARBALL" >/dev/null
`
	checkoutScript = `git -C tree checkout -q B && git -C tree checkout -q A`
	buildPrepare   = `find gomod -type f -exec cat {} + >/dev/null
( cd gomod && go build -o out . && rm out )
`
	npmPrepare = `find npm "$NPMDIR" -type f -exec cat {} + >/dev/null`
)

func sessions() []session {
	return []session{
		{name: "reading", parts: []string{"tree"}, prepare: gitPrepare, workloads: []workload{
			cold(script("find cold", findScript, "git")),
			repeatable(script("find warm", findScript)),
			repeatable(script("ls -lR warm", "ls -lR tree >/dev/null")),
			cold(script("grep cold", grepScript)),
			repeatable(script("grep warm", grepScript)),
			cold(script("git status cold", statusScript, "git")),
			repeatable(script("git status warm", statusScript, "git")),
			cold(script("git checkout cold", checkoutScript, "git")),
		}},
		{name: "changing", parts: []string{"tree"}, prepare: readPrepare, workloads: []workload{
			script("git checkout", repeated(checkoutScript), "git"),
			needed(script("untar", repeated(`mkdir new$i && tar -xf "$TARBALL" -C new$i`), "tar")),
			script("rm -rf upper", repeated("rm -rf new$i")),
			script("cp -a", "cp -a tree copy"),
			script("rm -rf lower", "rm -rf tree"),
		}},
		{name: "building", parts: []string{"gomod"}, prepare: buildPrepare, workloads: []workload{
			repeatable(script("go build", "cd gomod && go build -o out . && rm out", "go")),
			script("sqlite", sqliteScript, "sqlite3"),
		}},
		{name: "installing", parts: []string{"npm"}, prepare: npmPrepare, once: true, workloads: []workload{
			ofNPM(script("npm ci", `cd npm && npm ci --offline $NPM`, "npm")),
		}},
		{
			name: "single operations", parts: []string{"small"},
			workloads: []workload{{name: "operations", dentries: true, run: operations}},
		},
		{name: "large files", parts: []string{"big.bin"}, workloads: fioWorkloads()},
	}
}

// sqliteScript commits 300 transactions, each of them durable.
const sqliteScript = `{ echo "PRAGMA synchronous=FULL; CREATE TABLE t(a INTEGER PRIMARY KEY, b BLOB);"
i=0; while [ $i -lt 300 ]; do echo "INSERT INTO t(b) VALUES(randomblob(500));"; i=$((i+1)); done; } | sqlite3 t.db`

// script is a workload that is a shell script.
func script(name, text string, programs ...string) workload {
	return workload{name: name, programs: programs, script: text}
}

// repeated runs a script fixture.repeat times, with $i counting.
func repeated(text string) string {
	return "i=0; while [ $i -lt $REPEAT ]; do " + text + " || exit 1; i=$((i+1)); done"
}

func repeatable(w workload) workload { w.repeatable = true; return w }
func cold(w workload) workload       { w.cold = true; return w }
func needed(w workload) workload     { w.needed = true; return w }
func best(n int, w workload) workload {
	w.best = n
	return w
}
func ofNPM(w workload) workload { w.npm = true; return w }

// fioWorkloads read a large file of the lower and write one of the upper.
func fioWorkloads() []workload {
	const (
		read   = "--filename=big.bin --readonly --invalidate=0 --size=256M "
		repeat = "--time_based --runtime=1 --norandommap "
		write  = "--filename=new.bin --size=256M --fallocate=none --overwrite=0 "
		random = "--filename=old.bin --size=64M --fallocate=none --overwrite=1 "

		load   = "cat big.bin >/dev/null"
		remove = "rm -f new.bin"
	)
	return []workload{
		best(3, cold(fio("read 1M cold", "", read+"--rw=read --bs=1M"))),
		fio("read 1M warm", load, read+"--rw=read --bs=1M "+repeat),
		fio("read 4K random warm", load, read+"--rw=randread --bs=4k "+repeat),
		best(3, cold(fio("mmap read cold", "", read+"--ioengine=mmap --rw=read --bs=64k"))),
		fio("mmap 4K random warm", load, read+"--ioengine=mmap --rw=randread --bs=4k "+repeat),
		best(3, fio("write 1M + fsync", remove, write+"--rw=write --bs=1M --end_fsync=1")),
		best(3, fio("write 1M cached", remove, write+"--rw=write --bs=1M")),
		best(3, fio("write 64K cached", remove, write+"--rw=write --bs=64k")),
		fio("write 4K cached", remove, write+"--rw=write --bs=4k"),
		fio("write 4K random", "head -c 67108864 big.bin >old.bin", random+"--rw=randwrite --bs=4k "+repeat),
	}
}

// fio is a workload of one job of fio, with a script that prepares it.
func fio(name, prepare, args string) workload {
	return workload{
		name:     name,
		prepare:  prepare,
		programs: []string{"fio"},
		run: func(ctx context.Context, _ *fixture, dir string) ([]reading, error) {
			if !strings.Contains(args, "ioengine") {
				args += " --ioengine=psync"
			}
			out, err := program.Setup{Dir: dir}.Output(
				ctx,
				"fio",
				append(strings.Fields(args), "--name=j", "--thread", "--output-format=json")...)
			if err != nil {
				return nil, err
			}
			var report struct {
				Jobs []struct {
					Read struct {
						BW float64 `json:"bw_bytes"`
					} `json:"read"`
					Write struct {
						BW float64 `json:"bw_bytes"`
					} `json:"write"`
				} `json:"jobs"`
			}
			// fio may say something else before the document.
			text := string(out)
			if err := json.Unmarshal([]byte(text[max(0, strings.Index(text, "{")):]), &report); err != nil ||
				len(report.Jobs) != 1 {
				return nil, fmt.Errorf("output of fio: %w", err)
			}
			return []reading{
				{name: name, unit: "MB/s", value: (report.Jobs[0].Read.BW + report.Jobs[0].Write.BW) / 1e6, more: true},
			}, nil
		},
	}
}

// operations runs the single operations in a process of its own, which can be ended when the mount hangs.
func operations(ctx context.Context, f *fixture, dir string) ([]reading, error) {
	// The Go runtime's signals to itself would interrupt system calls, which FUSE turns into requests of their own.
	t := program.Setup{Dir: filepath.Clean(dir), Env: []string{"GODEBUG=asyncpreemptoff=1"}}
	out, err := t.Output(ctx, f.self, "operations")
	if err != nil {
		return nil, err
	}
	var found []operation
	if err := json.Unmarshal(out, &found); err != nil {
		return nil, fmt.Errorf("single operations: %w", err)
	}
	var list []reading
	for _, o := range found {
		list = append(list, reading{name: o.Name, unit: "µs", value: o.Micros})
	}
	return list, nil
}
