package api

import (
	"errors"
	"regexp"
	"strings"
	"testing"
)

func TestIsID(t *testing.T) {
	for id, want := range map[string]bool{
		"018f0000-0000-7000-8000-000000000000":          true,
		"018F0000-0000-7000-8000-000000000000":          false,
		"{018f0000-0000-7000-8000-000000000000}":        false,
		"018f0000000070008000000000000000":              false,
		"urn:uuid:018f0000-0000-7000-8000-000000000000": false,
		"": false,
	} {
		if got := IsID(id); got != want {
			t.Errorf("IsID(%q) = %v", id, got)
		}
	}
}

func TestDerivedName(t *testing.T) {
	for origin, want := range map[string]string{
		"a":                          `^a-restored-[0-9a-f]{4}$`,
		"a-restored-9f00":            `^a-restored-[0-9a-f]{4}$`,
		"a-branch-1234-restored-9f0": `^a-branch-1234-restored-9f0-restored-[0-9a-f]{4}$`, // three digits are not ours
		"a-branch-1234-fork-9f01":    `^a-restored-[0-9a-f]{4}$`,
		"restored-1234":              `^restored-1234-restored-[0-9a-f]{4}$`,
		strings.Repeat("a", 63):      `^a{49}-restored-[0-9a-f]{4}$`,
		strings.Repeat("a-", 31):     `^(a-){24}a-restored-[0-9a-f]{4}$`,
	} {
		got := DerivedName(origin, "restored", 4)
		if !regexp.MustCompile(want).MatchString(got) || ValidWorkspaceName(got) != nil {
			t.Errorf("of %s: got %s, want %s", origin, got, want)
		}
	}
}

func TestSnapshotNames(t *testing.T) {
	for name, ok := range map[string]bool{
		"": true, "a b-c": true, "a b/c": false, "a:b": false, ".": false, "..": false, "..x": true, "-x": false,
		"2026-11-23": true, "20261123": false, "abc": true, "abcd": false, "ABCD": false, "abcdefg": true, "v-abcd": true,
		"b1795862952484": true, "018f00000": true, "018F0000000070008000000000000000": false,
		"018f0000-0000-7000-8000-000000000000": false, "018f0000-0": false, "018f0000-0000-7000-8000-00000000000g": true,
		strings.Repeat("ü", 256): true, strings.Repeat("u", 257): false, "a\tb": false, "\u0085": false, "a ": false,
	} {
		if err := ValidSnapshotName(name); (err == nil) != ok || err != nil && !errors.Is(err, ErrInvalid) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestIsPrefix(t *testing.T) {
	for s, want := range map[string]bool{
		"018f": true, "018f0000-": true, "018f0000-0000-7": true, "018f0000-0000-7000-8000-00000000000": true, "cafe": true,
		"018f0000-0000-7000-8000-000000000000": false, "018": false, "": false, "018F": false, "018f00000": false, "2026-11": false,
		"018f-": false, "----": false,
	} {
		if got := IsPrefix(s); got != want {
			t.Errorf("IsPrefix(%q) = %v", s, got)
		}
	}
}

func TestSplitRef(t *testing.T) {
	for ref, want := range map[string][2]string{
		"app:built": {"app", "built"}, "app:a:b": {"app", "a:b"}, "app:a/b": {"app", "a/b"}, ".:built": {".", "built"},
		"/mnt/app:built": {"/mnt/app", "built"}, "../a:b:built": {"../a:b", "built"}, "a/:built": {"a/", "built"},
	} {
		workspace, snapshot, ok := SplitRef(ref)
		if !ok || workspace != want[0] || snapshot != want[1] {
			t.Errorf("SplitRef(%q) = %q, %q, %v", ref, workspace, snapshot, ok)
		}
	}
	for _, ref := range []string{"", "app", ":", "app:", ":built", "App:built", "a b:c", "/mnt/a:b/c", "/mnt/app", ".", `{"a":"b"}`} {
		if workspace, snapshot, ok := SplitRef(ref); ok {
			t.Errorf("SplitRef(%q) = %q, %q", ref, workspace, snapshot)
		}
	}
}
