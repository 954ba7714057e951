package cli

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// TestSettings: the command line counts before the environment, and that before the file. What is read again is put
// together in the same way.
func TestSettings(t *testing.T) {
	t.Setenv("SNAPFS_MAX_BYTES", "22")
	file := map[string]any{
		"max-snapshots": int64(1), "max-bytes": int64(2), "events-keep": int64(3), "events-age": "4d",
		"allow": []any{"uid=1:session=a", "uid=2:session=b"}, "no-remount": true,
	}
	o := ServeOptions{}
	flags := serveFlags(&o)
	if err := flags.Parse([]string{"--max-snapshots", "11"}); err != nil {
		t.Fatal(err)
	}
	s := &settings{
		home: t.TempDir(), file: "daemon.toml", line: given(flags),
		read: func(string) (map[string]any, error) { return file, nil },
	}
	if err := s.apply(flags, &o); err != nil {
		t.Fatal(err)
	}
	if o.MaxSnapshots != 11 || o.MaxBytes != 22 || o.EventsKeep != 3 || o.EventsAge != 4*24*time.Hour || !o.NoRemount ||
		!slices.Equal(o.Allow, []string{"uid=1:session=a", "uid=2:session=b"}) {
		t.Errorf("%+v", o)
	}
	file["events-keep"], file["max-snapshots"] = int64(33), int64(99)
	again, err := s.again()
	if err != nil || again.MaxSnapshots != 11 || again.MaxBytes != 22 || again.EventsKeep != 33 {
		t.Errorf("again: %+v, %v", again, err)
	}
	file["home"] = "/elsewhere"
	if _, err := s.again(); err == nil || !strings.Contains(err.Error(), `unknown setting "home"`) {
		t.Errorf("a setting that is none: %v", err)
	}
}

// TestPluginSocket: the option takes a path, and says yes without one.
func TestPluginSocket(t *testing.T) {
	for arg, want := range map[string]string{
		"": "", "--docker-plugin": PluginOn, "--docker-plugin=true": PluginOn, "--docker-plugin=false": PluginOff, "--docker-plugin=0": PluginOff,
		"--docker-plugin=/run//x.sock": "/run/x.sock", "--docker-plugin=x.sock": "error", "--docker-plugin=": "error",
	} {
		o := ServeOptions{}
		err := serveFlags(&o).Parse(strings.Fields(arg))
		if got := o.DockerPlugin; err != nil && want != "error" || err == nil && got != want {
			t.Errorf("%q: %q, %v", arg, got, err)
		}
	}
	t.Setenv("SNAPFS_DOCKER_PLUGIN", "x.sock")
	o := ServeOptions{}
	if err := (&settings{home: t.TempDir()}).apply(serveFlags(&o), &o); err == nil || !strings.Contains(err.Error(), errPluginSocket.Error()) {
		t.Errorf("from the environment: %v", err)
	}
}
