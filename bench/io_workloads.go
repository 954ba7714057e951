package main

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
)

// ioWorkload is one thing that is timed. run is called with the root of the mounted tree.
type ioWorkload struct {
	name     string
	programs []string
	cold     bool // caches are dropped before
	needed   bool // later workloads of the session stand on what it leaves
	npm      bool // needs the node project's packages
	runs     int  // in one call of run, if more than one
	run      func(ctx context.Context, f *fixture, dir string) ([]reading, error)
}

// ioSession is workloads that share a mount, in order.
type ioSession struct {
	name      string
	workloads []ioWorkload
}

const (
	findScript   = `find tree -name .git -prune -o -type f -print0 | xargs -0 stat -c %s >/dev/null`
	grepScript   = `grep -rIF zzqqxx tree --exclude-dir=.git || true`
	statusScript = `git -C tree status >/dev/null`
)

func ioSessions() []ioSession {
	return []ioSession{
		{"reading", []ioWorkload{
			cold(script("find cold", findScript, "git")), warm("find warm", findScript), warm("ls -lR warm", "ls -lR tree >/dev/null"),
			cold(script("grep cold", grepScript)), warm("grep warm", grepScript),
			cold(script("git status cold", statusScript, "git")), warm("git status warm", statusScript, "git"),
		}},
		{"changing", []ioWorkload{
			script("git checkout", "git -C tree checkout -q B && git -C tree checkout -q A", "git"),
			needed(script("untar", `mkdir new && tar -xf "$TARBALL" -C new`, "tar")),
			script("rm -rf upper", "rm -rf new"),
			script("rm -rf lower", "rm -rf tree"),
		}},
		{"building", []ioWorkload{
			script("go build", "cd gomod && go build -o out .", "go"),
			ofNPM(script("npm ci", `cd npm && npm ci --offline $NPM`, "npm")),
			script("sqlite", sqliteScript, "sqlite3"),
		}},
		{"single operations", []ioWorkload{{name: "operations", run: operations}}},
		{"large files", fioWorkloads()},
	}
}

// sqliteScript commits 300 transactions, each of them durable.
const sqliteScript = `{ echo "PRAGMA synchronous=FULL; CREATE TABLE t(a INTEGER PRIMARY KEY, b BLOB);"
i=0; while [ $i -lt 300 ]; do echo "INSERT INTO t(b) VALUES(randomblob(500));"; i=$((i+1)); done; } | sqlite3 t.db`

// script is a workload that is a shell script, run in the root of the tree.
func script(name, text string, programs ...string) ioWorkload {
	return ioWorkload{name: name, programs: programs, run: func(ctx context.Context, f *fixture, dir string) ([]reading, error) {
		t := tool{dir: dir, env: append(f.goEnv(), "TARBALL="+f.tarball, "NPM="+strings.Join(f.npmArgs(), " "))}
		c, err := measure(func() error { return t.run(ctx, "sh", "-c", text) })
		return []reading{{name: name, unit: "s", value: c.wall.Seconds()}}, err
	}}
}

// warm is a script of which the best of three runs counts.
func warm(name, text string, programs ...string) ioWorkload {
	w := script(name, text, programs...)
	w.runs = 3
	once := w.run
	w.run = func(ctx context.Context, f *fixture, dir string) ([]reading, error) {
		var best []reading
		for range w.runs {
			r, err := once(ctx, f, dir)
			if err != nil {
				return nil, err
			}
			if best == nil || r[0].value < best[0].value {
				best = r
			}
		}
		return best, nil
	}
	return w
}

func cold(w ioWorkload) ioWorkload   { w.cold = true; return w }
func needed(w ioWorkload) ioWorkload { w.needed = true; return w }
func ofNPM(w ioWorkload) ioWorkload  { w.npm = true; return w }

// fioWorkloads read a large file of the lower and write one of the upper.
func fioWorkloads() []ioWorkload {
	const (
		read   = "--filename=big.bin --readonly --invalidate=0 --size=128M "
		repeat = "--time_based --runtime=2 --norandommap "
		write  = "--filename=new.bin --size=128M --fallocate=none "
	)
	return []ioWorkload{
		cold(fio("read 1M cold", read+"--rw=read --bs=1M")),
		fio("read 1M warm", read+"--rw=read --bs=1M "+repeat),
		fio("read 4K random warm", read+"--rw=randread --bs=4k "+repeat),
		cold(fio("mmap read cold", read+"--ioengine=mmap --rw=read --bs=64k")),
		fio("mmap 4K random warm", read+"--ioengine=mmap --rw=randread --bs=4k "+repeat),
		fio("write 1M + fsync", write+"--rw=write --bs=1M --end_fsync=1 --overwrite=0"),
		fio("write 1M cached", write+"--rw=write --bs=1M --overwrite=1"),
		fio("write 64K cached", write+"--rw=write --bs=64k --overwrite=1"),
		fio("write 4K cached", write+"--rw=write --bs=4k --overwrite=1"),
		fio("write 4K random", write+"--rw=randwrite --bs=4k --overwrite=1 "+repeat),
	}
}

// fio is a workload of one job of fio.
func fio(name, args string) ioWorkload {
	return ioWorkload{name: name, programs: []string{"fio"}, run: func(ctx context.Context, _ *fixture, dir string) ([]reading, error) {
		if !strings.Contains(args, "ioengine") {
			args += " --ioengine=psync"
		}
		out, err := tool{dir: dir}.output(ctx, "fio", append(strings.Fields(args), "--name=j", "--thread", "--output-format=json")...)
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
		if err := json.Unmarshal([]byte(text[max(0, strings.Index(text, "{")):]), &report); err != nil || len(report.Jobs) != 1 {
			return nil, fmt.Errorf("output of fio: %w", err)
		}
		return []reading{{name: name, unit: "MB/s", value: (report.Jobs[0].Read.BW + report.Jobs[0].Write.BW) / 1e6, more: true}}, nil
	}}
}

// operations runs the single operations in a process of its own, which can be ended when the mount hangs.
func operations(ctx context.Context, f *fixture, dir string) ([]reading, error) {
	if err := dropDentries(); err != nil {
		return nil, err
	}
	// The Go runtime's signals to itself would interrupt system calls, which FUSE turns into requests of their own.
	t := tool{dir: filepath.Clean(dir), env: []string{"GODEBUG=asyncpreemptoff=1"}}
	out, err := t.output(ctx, f.self, "operations")
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
