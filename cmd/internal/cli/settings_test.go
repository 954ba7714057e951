package cli

import (
	"bytes"
	"context"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestParseDuration(t *testing.T) {
	const day = 24 * time.Hour
	for _, test := range []struct {
		text string
		want time.Duration
	}{
		{"90m", 90 * time.Minute},
		{"7d", 7 * day},
		{"0", 0},
		{"0d", 0},
		{"-1d", -day},
		{"-90m", -90 * time.Minute},
		{"65535d", 65535 * day},
	} {
		if got, err := parseDuration(test.text); err != nil || got != test.want {
			t.Errorf("%q: got %v, %v, want %v", test.text, got, err, test.want)
		}
	}
	for _, bad := range []string{"", "d", "7", "soon", "1.5d", "7d12h", "99999d", "9999999999h"} {
		if got, err := parseDuration(bad); err == nil {
			t.Errorf("%q: got %v, want an error", bad, got)
		}
	}
}

// TestServeSettings: limits come from the command line, else from the environment, and a bad one is never ignored.
func TestServeSettings(t *testing.T) {
	for _, test := range []struct {
		env, args string
		want      ServeOptions
		ends      bool // mounts end with their daemon
		err       string
	}{
		{want: ServeOptions{IdleAfter: 10 * time.Minute}},
		{
			env: "SNAPFS_MAX_BYTES=5000000000 SNAPFS_MAX_SNAPSHOTS=-1 SNAPFS_EVENTS_KEEP=70 SNAPFS_EVENTS_AGE=90d",
			want: ServeOptions{
				IdleAfter: 10 * time.Minute, MaxBytes: 5_000_000_000, MaxSnapshots: -1, EventsKeep: 70,
				EventsAge: 2160 * time.Hour,
			},
		},
		{
			env: "SNAPFS_MAX_BYTES=no SNAPFS_EVENTS_AGE=1h", args: "--max-bytes 7 --events-age 2d --idle-after 1d",
			want: ServeOptions{IdleAfter: 24 * time.Hour, MaxBytes: 7, EventsAge: 48 * time.Hour},
		},
		{env: "SNAPFS_MAX_SIZE=20GiB", want: ServeOptions{IdleAfter: 10 * time.Minute, MaxSize: 20 << 30}},
		{env: "SNAPFS_MAX_SIZE=20G", args: "--max-size 5M", want: ServeOptions{IdleAfter: 10 * time.Minute, MaxSize: 5_000_000}},
		{env: "SNAPFS_MAX_SIZE=much", err: `SNAPFS_MAX_SIZE="much": want a size such as`},
		{env: "SNAPFS_MAX_BYTES=5GB", err: `SNAPFS_MAX_BYTES="5GB": want a whole number`},
		{env: "SNAPFS_MAX_SNAPSHOTS=1e3", err: `SNAPFS_MAX_SNAPSHOTS="1e3": want a whole number`},
		{env: "SNAPFS_EVENTS_KEEP=x", err: `SNAPFS_EVENTS_KEEP="x": want a whole number`},
		{env: "SNAPFS_KEEP_MOUNTS=0", want: ServeOptions{IdleAfter: 10 * time.Minute}, ends: true},
		{env: "SNAPFS_KEEP_MOUNTS=1", args: "--keep-mounts=false", want: ServeOptions{IdleAfter: 10 * time.Minute}, ends: true},
		{env: "SNAPFS_KEEP_MOUNTS=some", err: `SNAPFS_KEEP_MOUNTS="some": want true or false`},
		{env: "SNAPFS_EVENTS_AGE=90", err: `SNAPFS_EVENTS_AGE="90": want a duration such as`},
	} {
		t.Run(test.env+test.args, func(t *testing.T) {
			for _, v := range strings.Fields(test.env) {
				name, value, _ := strings.Cut(v, "=")
				t.Setenv(name, value)
			}
			var got *ServeOptions
			p := Program{Engine: &Engine{Serve: func(_ context.Context, o ServeOptions) error {
				got = &o
				return nil
			}}}
			var out, errOut bytes.Buffer
			args := append([]string{"--home", t.TempDir(), "serve"}, strings.Fields(test.args)...)
			code := p.run(args, nil, &out, &errOut)
			if test.err != "" {
				if code != 2 || got != nil || !strings.Contains(errOut.String(), test.err) {
					t.Errorf("code %d, served %t, error %q; want 2, false, %q", code, got != nil, errOut.String(), test.err)
				}
				return
			}
			if code != 0 || got == nil {
				t.Fatalf("code %d, error %q", code, errOut.String())
			}
			set := ServeOptions{
				IdleAfter: got.IdleAfter, MaxSnapshots: got.MaxSnapshots, MaxBytes: got.MaxBytes, MaxSize: got.MaxSize,
				EventsKeep: got.EventsKeep, EventsAge: got.EventsAge, KeepMounts: got.KeepMounts,
			}
			test.want.KeepMounts = !test.ends
			if !reflect.DeepEqual(set, test.want) {
				t.Errorf("got %+v, want %+v", set, test.want)
			}
		})
	}
}
