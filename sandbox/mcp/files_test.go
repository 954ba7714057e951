package mcp

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"snapfs/sandbox/api"
)

// TestFiles: files are read, written, searched and removed, in the workspace at hand.
func TestFiles(t *testing.T) {
	s := newStation(t)
	who := someone("s")
	who.Start.Workspace = "app"
	a := s.begin(who)
	a.call("workspace_write_file", args{"path": "src/main.go", "content": "package main\n\nfunc main() {\n\trun()\n}\n"})
	a.call("workspace_write_file", args{"path": "/run.sh", "content": "#!/bin/sh\n", "mode": "0755"})
	text, out := a.call("workspace_read_file", args{"path": "src/main.go"})
	if text != "package main\n\nfunc main() {\n\trun()\n}\n" || out["lines"] != 5.0 || out["truncated"] != false || out["path"] != "/src/main.go" {
		t.Errorf("read: %q, %v", text, out)
	}
	a.call("workspace_snapshot", args{"name": "before"})
	text, _ = a.call("workspace_edit_file", args{"path": "src/main.go", "old_text": "run()", "new_text": "walk()"})
	has(t, text, "replaced once")
	text, _ = a.call("workspace_diff", args{"patch": true})
	has(t, text, `newest snapshot "before"`, "M src/main.go", "-\trun()", "+\twalk()")
	text, _ = a.call("workspace_diff", args{"from": "before", "path": "run.sh"})
	has(t, text, "No changes")
	a.fails("workspace_diff", args{"path": "nothing"}, "/nothing is in neither")
	text, _ = a.call("workspace_grep", args{"pattern": `w..k\(`, "include": "*.go"})
	has(t, text, "/src/main.go:4:\twalk()")
	text, _ = a.call("workspace_glob", args{"pattern": "**/*.{go,sh}"})
	has(t, text, "/run.sh", "/src/main.go")
	text, _ = a.call("workspace_ls", nil)
	has(t, text, "run.sh  (10 bytes)", "src/")
	text, out = a.call("workspace_stat", args{"path": "run.sh"})
	if has(t, text, "mode 0755"); out["mode"] != "0755" || out["type"] != "file" {
		t.Errorf("stat: %v", out)
	}
	a.call("workspace_mkdir", args{"path": "a/b/c"})
	a.call("workspace_mkdir", args{"path": "a/b/c"})
	a.fails("workspace_rm", args{"path": "a"}, "recursive=true")
	a.call("workspace_rm", args{"path": "a", "recursive": true})
	a.fails("workspace_rm", args{"path": "a"}, "there is no /a")
	a.fails("workspace_rm", args{"path": "/", "recursive": true}, "root")

	// Back, and the files are those of before; started again, they still are.
	a.call("workspace_restore", args{"snapshot": "before"})
	text, _ = a.call("workspace_read_file", args{"path": "src/main.go"})
	has(t, text, "run()")
	text, _ = s.begin(who).call("workspace_read_file", args{"path": "src/main.go"})
	has(t, text, "You go on in workspace app-restored-", "run()")
}

// TestReadPages: large files and directories come in parts, each of which says how to go on.
func TestReadPages(t *testing.T) {
	s := newStation(t)
	who := someone("s")
	who.Start.Workspace = "app"
	a := s.begin(who)
	var lines strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&lines, "line %d of some length, so that all of them are more than is given at once\n", i+1)
	}
	wide := strings.Repeat("ä", 50000)
	binary := string([]byte{0, 1, 2, 0xff}) + strings.Repeat("x", 100000)
	a.call("workspace_write_file", args{"path": "lines", "content": lines.String()})
	a.call("workspace_write_file", args{"path": "wide", "content": "x" + wide})
	a.call("workspace_write_file", args{"path": "binary", "content": base64.StdEncoding.EncodeToString([]byte(binary)), "encoding": "base64"})
	a.call("workspace_write_file", args{"path": "empty", "content": ""})
	read := func(in args, next string) (all string, parts int) {
		t.Helper()
		for parts = 1; ; parts++ {
			_, out := a.call("workspace_read_file", in)
			content, _ := out["content"].(string)
			if in["encoding"] == "base64" {
				data, err := base64.StdEncoding.DecodeString(content)
				if err != nil {
					t.Fatal(err)
				}
				content = string(data)
			}
			if all += content; len(content) > maxBytes {
				t.Errorf("%v gives %d bytes", in, len(content))
			}
			if out["truncated"] != true || parts > 50 {
				return all, parts
			}
			in[strings.TrimPrefix(next, "next_")] = out[next]
			if out[next] == nil {
				t.Fatalf("%v does not say how to go on: %v", in, out["next_offset"])
			}
		}
	}
	if all, parts := read(args{"path": "lines"}, "next_offset"); all != lines.String() || parts < 3 {
		t.Errorf("%d parts of lines, %d bytes of %d", parts, len(all), lines.Len())
	}
	if all, _ := read(args{"path": "lines", "limit": 700}, "next_byte_offset"); all != lines.String() {
		t.Errorf("by bytes: %d bytes of %d", len(all), lines.Len())
	}
	if all, parts := read(args{"path": "wide"}, "next_byte_offset"); all != "x"+wide || parts != 2 {
		t.Errorf("%d parts of one line, %d bytes", parts, len(all))
	}
	if all, parts := read(args{"path": "binary", "encoding": "base64"}, "next_byte_offset"); all != binary || parts != 3 {
		t.Errorf("%d parts of a binary file, %d bytes", parts, len(all))
	}
	text, out := a.call("workspace_read_file", args{"path": "lines", "offset": 2999, "limit": 5})
	if has(t, text, "line 2999 ", "line 3000 "); out["first_line"] != 2999.0 || out["lines"] != 2.0 {
		t.Errorf("the last lines: %v", out["first_line"])
	}
	text, _ = a.call("workspace_read_file", args{"path": "lines", "offset": 4000})
	has(t, text, "the file ends before that")
	text, _ = a.call("workspace_read_file", args{"path": "empty"})
	has(t, text, "the file is empty")
	a.fails("workspace_read_file", args{"path": "binary"}, "not a text file", "100004 bytes", "encoding=base64")

	for i := range 30 {
		a.call("workspace_mkdir", args{"path": fmt.Sprintf("dir/%02d", i)})
	}
	names, in := 0, args{"path": "dir", "limit": 7}
	for {
		_, out := a.call("workspace_ls", in)
		names += len(out["entries"].([]any))
		if out["truncated"] != true {
			break
		}
		in["after"] = out["next_after"]
	}
	if names != 30 {
		t.Errorf("%d names of 30", names)
	}
	for tool, in := range map[string]args{
		"workspace_glob": {"pattern": "dir/*", "limit": 7}, "workspace_grep": {"pattern": "line .*7 ", "limit": 70},
	} {
		all, parts := 0, 0
		for ; ; parts++ {
			_, out := a.call(tool, in)
			list, _ := out["entries"].([]any)
			if tool == "workspace_grep" {
				list = out["matches"].([]any)
			}
			all += len(list)
			if out["truncated"] != true {
				break
			}
			in["offset"] = out["next_offset"]
		}
		if want := map[string]int{"workspace_glob": 30, "workspace_grep": 300}[tool]; all != want || parts < 4 {
			t.Errorf("%s gives %d of %d in %d parts", tool, all, want, parts+1)
		}
	}
}

// TestFileRefusals: what cannot be done with a file is said in words, without a path of the host.
func TestFileRefusals(t *testing.T) {
	s := newStation(t)
	who := someone("s")
	who.Start.Workspace = "app"
	a := s.begin(who)
	a.call("workspace_write_file", args{"path": "dir/file", "content": "a b a"})
	for _, path := range []string{"nothing", "/dir/nothing", "dir/file/nothing", "../nothing"} {
		a.fails("workspace_read_file", args{"path": path}, "there is no /")
		a.fails("workspace_stat", args{"path": path}, "there is no /")
		a.fails("workspace_ls", args{"path": path}, "")
		a.fails("workspace_edit_file", args{"path": path, "old_text": "a", "new_text": "b"}, "there is no /")
		a.fails("workspace_rm", args{"path": path}, "there is no /")
		a.fails("workspace_grep", args{"path": path, "pattern": "x"}, "there is no /")
	}
	a.fails("workspace_read_file", args{"path": "dir"}, "workspace_ls lists it")
	a.fails("workspace_ls", args{"path": "dir/file"}, "/dir/file")
	a.fails("workspace_read_file", args{"path": " "}, "path is blank")
	a.fails("workspace_read_file", args{"path": "dir/file", "offset": 1, "byte_offset": 1}, "not both")
	a.fails("workspace_read_file", args{"path": "dir/file", "offset": -1}, "offset")
	a.fails("workspace_read_file", args{"path": "dir/file", "encoding": "latin1"}, "utf-8 or base64")
	a.fails("workspace_read_file", args{"path": strings.Repeat("x", 10000)}, "")
	a.fails("workspace_write_file", args{"path": "dir/file", "content": "", "create_only": true}, "there already")
	a.fails("workspace_write_file", args{"path": "dir", "content": ""}, "dir")
	a.fails("workspace_write_file", args{"path": "x", "content": "%", "encoding": "base64"}, "not base64")
	a.fails("workspace_write_file", args{"path": "x", "content": "", "mode": "7777"}, "octal")
	a.fails("workspace_write_file", args{"path": "x", "content": strings.Repeat("x", maxContent+1)}, "at most")
	a.fails("workspace_edit_file", args{"path": "dir/file", "old_text": "a", "new_text": "c"}, "/dir/file is not changed", "replace_all")
	a.fails("workspace_edit_file", args{"path": "dir/file", "old_text": "z", "new_text": "c"}, "/dir/file is not changed")
	a.fails("workspace_edit_file", args{"path": "dir/file", "old_text": "", "new_text": "c"}, "old_text is empty")
	a.fails("workspace_mkdir", args{"path": "dir/file"}, "no directory")
	a.fails("workspace_grep", args{"pattern": "("}, "")
	a.fails("workspace_glob", args{"pattern": "[", "offset": 1 << 20}, "narrow")
	text, _ := a.call("workspace_edit_file", args{"path": "dir/file", "old_text": "a", "new_text": "c", "replace_all": true})
	has(t, text, "replaced 2 times")
	if r := a.raw("workspace_grep", args{"pattern": "("}); strings.Contains(words(r), "path of the server") {
		t.Errorf("grep: %s", words(r))
	}
	o, err := s.home.Show(t.Context(), api.RefRequest{Access: who.Access, Ref: "app"})
	if err != nil || o.Workspace.State != api.Mounted || !strings.HasPrefix(o.Workspace.Mountpoint, s.home.Dir()) {
		t.Errorf("the workspace is %+v, %v", o.Workspace, err)
	}
}
