package api

import (
	"strings"
	"testing"
)

func TestApply(t *testing.T) {
	for _, c := range []struct {
		words string
		want  MountOptions
	}{
		{"", MountOptions{}},
		{"ro,nosuid,nodev,noexec,noatime,writeback", MountOptions{
			ReadOnly: true, NoSUID: true, NoDev: true, NoExec: true, NoAtime: true, Writeback: true,
		}},
		{"ro,nosuid,nodev,noexec,noatime,writeback,rw,suid,dev,exec,atime,nowriteback", MountOptions{SUID: true, Dev: true}},
		{"suid,dev,nosuid,nodev", MountOptions{NoSUID: true, NoDev: true}},
		{"allow_suid,allow_dev", MountOptions{SUID: true, Dev: true}},
		{"transport=dev,transport=uring", MountOptions{Transport: "uring"}},
		{"engine=fuse,ro,engine=kernel", MountOptions{Engine: EngineKernel, ReadOnly: true}},
	} {
		var got MountOptions
		for word := range strings.SplitSeq(c.words, ",") {
			if word != "" && !got.Apply(word) {
				t.Errorf("%s is not known", word)
			}
		}
		if got != c.want {
			t.Errorf("%s: %+v, want %+v", c.words, got, c.want)
		}
	}
	for _, word := range []string{"", "remount", "transport", "ro=1", "RO", "engine"} {
		if got := (MountOptions{}); got.Apply(word) || got != (MountOptions{}) {
			t.Errorf("%q is known: %+v", word, got)
		}
	}
}
