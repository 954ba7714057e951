package dockerplugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"snapfs/sandbox"
	"snapfs/sandbox/api"
	"snapfs/sandbox/api/caller"
)

// fake is a service with workspaces that have no files.
type fake struct {
	dir string

	mu         sync.Mutex
	workspaces map[string]api.Workspace // guarded by mu, as all that follows
	made       []api.CreateRequest
	mounts     []api.MountRequest
	destroyed  []api.DestroyRequest
	busy       string // what uses all mounts
	fail       error  // of Create and Unmount
}

func newFake(t *testing.T) *fake {
	return &fake{dir: t.TempDir(), workspaces: map[string]api.Workspace{}}
}

func (f *fake) Dir() string { return f.dir }

func (f *fake) Create(_ context.Context, r api.CreateRequest) (api.Workspace, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fail != nil {
		return api.Workspace{}, f.fail
	}
	if _, ok := f.workspaces[r.Name]; ok {
		return api.Workspace{}, fmt.Errorf("%w: workspace %s exists", api.ErrConflict, r.Name)
	}
	f.made = append(f.made, r)
	f.workspaces[r.Name] = api.Workspace{ID: r.Name, Session: "default", State: api.Unmounted, Labels: r.Labels, Engine: r.Engine}
	return f.workspaces[r.Name], nil
}

func (f *fake) change(name string, change func(w *api.Workspace) error) (api.Workspace, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	w, ok := f.workspaces[name]
	if !ok {
		return w, fmt.Errorf("%w: workspace %s", api.ErrNotFound, name)
	}
	err := change(&w)
	f.workspaces[name] = w
	return w, err
}

func (f *fake) Mount(_ context.Context, r api.MountRequest) (api.Workspace, error) {
	return f.change(r.Workspace, func(w *api.Workspace) error {
		f.mounts = append(f.mounts, r)
		if w.State == api.Mounted {
			return fmt.Errorf("%w: it is mounted", api.ErrConflict)
		}
		w.State, w.Mountpoint = api.Mounted, r.Mountpoint
		return nil
	})
}

func (f *fake) Unmount(_ context.Context, r api.UnmountRequest) (api.Workspace, error) {
	return f.change(r.Workspace, func(w *api.Workspace) error {
		if f.fail != nil {
			return f.fail
		}
		w.State, w.Mountpoint = api.Unmounted, ""
		return nil
	})
}

func (f *fake) Show(_ context.Context, r api.RefRequest) (api.Object, error) {
	w, err := f.change(r.Ref, func(*api.Workspace) error { return nil })
	return api.Object{Workspace: &w}, err
}

func (f *fake) Destroy(_ context.Context, r api.DestroyRequest) (api.DestroyResult, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	w, ok := f.workspaces[r.Ref]
	if !ok || w.State != api.Unmounted {
		return api.DestroyResult{}, fmt.Errorf("%w: workspace %s", api.ErrConflict, r.Ref)
	}
	delete(f.workspaces, r.Ref)
	f.destroyed = append(f.destroyed, r)
	return api.DestroyResult{}, nil
}

func (f *fake) UsedBy(_ context.Context, workspace string) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.workspaces[workspace].State != api.Mounted {
		return "", nil
	}
	return f.busy, nil
}

func (f *fake) Labelled(key string) iter.Seq[sandbox.Labelled] {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []sandbox.Labelled
	for _, w := range f.workspaces {
		if _, ok := w.Labels[key]; ok {
			all = append(all, sandbox.Labelled{Workspace: w.ID, Session: w.Session, Labels: w.Labels})
		}
	}
	return slices.Values(all)
}

func newPlugin(t *testing.T, f *fake) *Plugin {
	t.Helper()
	p, err := New(f, Options{})
	require.NoError(t, err)
	return p
}

// ask sends a request, and gives its status and its answer.
func ask(t *testing.T, p *Plugin, method string, body any) (int, answer) {
	t.Helper()
	var in io.Reader = http.NoBody
	switch b := body.(type) {
	case nil:
	case string:
		in = strings.NewReader(b)
	default:
		text, err := json.Marshal(b)
		require.NoError(t, err)
		in = strings.NewReader(string(text))
	}
	w := httptest.NewRecorder()
	p.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/"+method, in))
	var a answer
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &a), "%s", w.Body)
	require.Equal(t, w.Code != http.StatusOK, a.Err != "", "status %d, %s", w.Code, w.Body)
	return w.Code, a
}

// works is ask for what has to succeed.
func works(t *testing.T, p *Plugin, method string, body any) answer {
	t.Helper()
	status, a := ask(t, p, method, body)
	require.Equal(t, http.StatusOK, status, "%s %+v: %s", method, body, a.Err)
	return a
}

// refuses is ask for what has to fail with a text.
func refuses(t *testing.T, p *Plugin, text, method string, body any) {
	t.Helper()
	status, a := ask(t, p, method, body)
	if status == http.StatusOK || !strings.Contains(a.Err, text) {
		t.Errorf("%s %.100v: status %d, %q, want %q", method, body, status, a.Err, text)
	}
}

// TestLife makes a volume, uses it twice, and removes it, as an engine does.
func TestLife(t *testing.T) {
	f := newFake(t)
	p := newPlugin(t, f)
	require.Equal(t, []string{"VolumeDriver"}, works(t, p, "Plugin.Activate", nil).Implements)
	require.Equal(t, "local", works(t, p, "VolumeDriver.Capabilities", "{}").Capabilities.Scope)
	opts := map[string]string{"from": "app:built", "size": "10G", "inodes": "1M", "engine": "fuse"}
	works(t, p, "VolumeDriver.Create", request{Name: "Web_1", Opts: opts})
	works(t, p, "VolumeDriver.Create", request{Name: "Web_1", Opts: opts}) // an engine may ask again
	refuses(t, p, "other options", "VolumeDriver.Create", request{Name: "Web_1"})
	require.Len(t, f.made, 1)
	require.Equal(t, "app:built", f.made[0].Source)
	require.Equal(t, api.Quota{Size: 10_000_000_000, Inodes: 1_000_000}, f.made[0].Quota)
	name := f.made[0].Name
	require.NoError(t, api.ValidWorkspaceName(name))
	require.True(t, strings.HasPrefix(name, "web-1-"), name)

	at := filepath.Join(f.dir, "mnt", name)
	for _, id := range []string{"a", "b", "a"} {
		require.Equal(t, at, works(t, p, "VolumeDriver.Mount", request{Name: "Web_1", ID: id}).Mountpoint)
	}
	require.Len(t, f.mounts, 1)
	require.True(t, f.mounts[0].NoSUID && f.mounts[0].NoDev && f.mounts[0].MakeMountpoint)
	require.Equal(t, at, works(t, p, "VolumeDriver.Path", request{Name: "Web_1"}).Mountpoint)
	v := works(t, p, "VolumeDriver.Get", request{Name: "Web_1"}).Volume
	require.Equal(t, name, v.Status["workspace"])
	require.EqualValues(t, 2, v.Status["uses"])
	require.False(t, v.CreatedAt.IsZero())
	all := works(t, p, "VolumeDriver.List", nil).Volumes
	require.Len(t, all, 1)
	require.Equal(t, at, all[0].Mountpoint)

	f.busy = "process 12 (sleep)"
	refuses(t, p, "in use by 2 containers: process 12 (sleep)", "VolumeDriver.Remove", request{Name: "Web_1"})
	f.busy = ""
	for _, id := range []string{"a", "a", "nobody"} {
		works(t, p, "VolumeDriver.Unmount", request{Name: "Web_1", ID: id})
	}
	require.Equal(t, api.Mounted, f.workspaces[name].State, "b uses it")
	works(t, p, "VolumeDriver.Unmount", request{Name: "Web_1", ID: "b"})
	require.Equal(t, api.Unmounted, f.workspaces[name].State)
	require.Empty(t, works(t, p, "VolumeDriver.Path", request{Name: "Web_1"}).Mountpoint)
	works(t, p, "VolumeDriver.Remove", request{Name: "Web_1"})
	require.Len(t, f.destroyed, 1)
	require.False(t, f.destroyed[0].Now, "what no snapshot has is kept")
	refuses(t, p, "no such volume", "VolumeDriver.Get", request{Name: "Web_1"})
	require.Empty(t, p.volumes)
}

// TestRestart: volumes and their uses outlive the daemon, and uses do not outlive the boot of the machine.
func TestRestart(t *testing.T) {
	f := newFake(t)
	p := newPlugin(t, f)
	works(t, p, "VolumeDriver.Create", request{Name: "web"})
	at := works(t, p, "VolumeDriver.Mount", request{Name: "web", ID: "a"}).Mountpoint
	p = newPlugin(t, f)
	require.Equal(t, at, works(t, p, "VolumeDriver.Mount", request{Name: "web", ID: "b"}).Mountpoint)
	works(t, p, "VolumeDriver.Unmount", request{Name: "web", ID: "a"})
	require.Equal(t, api.Mounted, f.workspaces["web"].State)
	p = newPlugin(t, f)
	works(t, p, "VolumeDriver.Unmount", request{Name: "web", ID: "b"})
	require.Equal(t, api.Unmounted, f.workspaces["web"].State)

	works(t, p, "VolumeDriver.Mount", request{Name: "web", ID: "c"})
	r := p.volumes["web"].rec.Load()
	require.NoError(t, p.store.put(r.with(func(r *record) { r.Boot = "an earlier one" })))
	p = newPlugin(t, f)
	require.Empty(t, p.volumes["web"].rec.Load().Uses)
	f.busy = "nothing that is asked for"
	works(t, p, "VolumeDriver.Remove", request{Name: "web"})
	require.Empty(t, f.workspaces)
}

// TestWorkspaceThatIsThere: a volume of it does not mount, unmount or destroy what it has not made.
func TestWorkspaceThatIsThere(t *testing.T) {
	f := newFake(t)
	p := newPlugin(t, f)
	f.workspaces["app"] = api.Workspace{ID: "app", State: api.Mounted, Mountpoint: "/mnt/app"}
	refuses(t, p, "-o workspace=app makes a volume of a workspace that is there", "VolumeDriver.Create", request{Name: "app"})
	refuses(t, p, "not found", "VolumeDriver.Create", request{Name: "x", Opts: map[string]string{"workspace": "none"}})
	works(t, p, "VolumeDriver.Create", request{Name: "x", Opts: map[string]string{"workspace": "app"}})
	require.Equal(t, "/mnt/app", works(t, p, "VolumeDriver.Mount", request{Name: "x", ID: "a"}).Mountpoint)
	works(t, p, "VolumeDriver.Unmount", request{Name: "x", ID: "a"})
	require.Equal(t, "/mnt/app", f.workspaces["app"].Mountpoint)
	works(t, p, "VolumeDriver.Remove", request{Name: "x"})
	require.Contains(t, f.workspaces, "app")

	// It mounts one that is not, and ends that. Where somebody else has mounted it since is not its own.
	f.workspaces["app"] = api.Workspace{ID: "app", State: api.Unmounted}
	works(t, p, "VolumeDriver.Create", request{Name: "x", Opts: map[string]string{"workspace": "app"}})
	works(t, p, "VolumeDriver.Mount", request{Name: "x", ID: "a"})
	works(t, p, "VolumeDriver.Unmount", request{Name: "x", ID: "a"})
	require.Equal(t, api.Unmounted, f.workspaces["app"].State)
	works(t, p, "VolumeDriver.Mount", request{Name: "x", ID: "a"})
	f.workspaces["app"] = api.Workspace{ID: "app", State: api.Mounted, Mountpoint: "/elsewhere"}
	works(t, p, "VolumeDriver.Unmount", request{Name: "x", ID: "a"})
	require.Equal(t, "/elsewhere", f.workspaces["app"].Mountpoint)

	// A workspace that is gone is told of, and can be let go.
	delete(f.workspaces, "app")
	require.Contains(t, works(t, p, "VolumeDriver.Get", request{Name: "x"}).Volume.Status["problem"], "not found")
	refuses(t, p, "not found", "VolumeDriver.Mount", request{Name: "x", ID: "a"})
	works(t, p, "VolumeDriver.Remove", request{Name: "x"})
}

// TestEngineOfVolume: what shows a volume is as its options say, else as its workspace has it.
func TestEngineOfVolume(t *testing.T) {
	for _, test := range []struct {
		opts             map[string]string
		made, asked, has string
	}{
		{map[string]string{}, "", "", "fuse"},
		{map[string]string{"engine": "fuse"}, "fuse", "fuse", "fuse"},
		{map[string]string{"engine": "kernel"}, "kernel", "kernel", "kernel"},
		{map[string]string{"workspace": "app"}, "", "", "kernel"},
		{map[string]string{"workspace": "app", "engine": "fuse"}, "", "fuse", "kernel"},
	} {
		f := newFake(t)
		f.workspaces["app"] = api.Workspace{ID: "app", State: api.Unmounted, Engine: api.EngineKernel}
		p := newPlugin(t, f)
		works(t, p, "VolumeDriver.Create", request{Name: "x", Opts: test.opts})
		if test.opts["workspace"] == "" {
			require.Equal(t, test.made, f.made[0].Engine, test.opts)
		}
		require.Equal(t, test.has, works(t, p, "VolumeDriver.Get", request{Name: "x"}).Volume.Status["engine"], test.opts)
		works(t, p, "VolumeDriver.Mount", request{Name: "x", ID: "a"})
		require.Equal(t, test.asked, f.mounts[0].Engine, test.opts)
	}
}

// TestRenamed: the workspace of a volume is found by its label.
func TestRenamed(t *testing.T) {
	f := newFake(t)
	p := newPlugin(t, f)
	works(t, p, "VolumeDriver.Create", request{Name: "web"})
	w := f.workspaces["web"]
	w.ID = "other"
	f.workspaces = map[string]api.Workspace{"other": w}
	require.Equal(t, filepath.Join(f.dir, "mnt/other"), works(t, p, "VolumeDriver.Mount", request{Name: "web", ID: "a"}).Mountpoint)
	works(t, p, "VolumeDriver.Remove", request{Name: "web"})
	require.Empty(t, f.workspaces)
}

// TestInterruptedCreate: what a daemon leaves that dies while it makes a volume is no volume, and in nobody's way.
func TestInterruptedCreate(t *testing.T) {
	for _, made := range []bool{false, true} {
		f := newFake(t)
		p := newPlugin(t, f)
		v, done, err := p.hold("web")
		require.NoError(t, err)
		require.NoError(t, p.put(v, &record{Version: recordVersion, Name: "web", Workspace: "web", Mark: "mark", Making: true}))
		done()
		if made {
			f.workspaces["web"] = api.Workspace{ID: "web", State: api.Unmounted, Labels: api.Labels{LabelVolume: "mark"}}
		}
		p = newPlugin(t, f)
		refuses(t, p, "no such volume", "VolumeDriver.Mount", request{Name: "web", ID: "a"})
		require.Empty(t, works(t, p, "VolumeDriver.List", nil).Volumes)
		works(t, p, "VolumeDriver.Create", request{Name: "web", Opts: map[string]string{"from": "app:two"}})
		require.Equal(t, "app:two", f.made[0].Source)
		require.Equal(t, made, len(f.destroyed) == 1)
	}
	f := newFake(t)
	p := newPlugin(t, f)
	f.fail = errors.New("no room")
	refuses(t, p, "no room", "VolumeDriver.Create", request{Name: "web"})
	require.Empty(t, p.volumes)
	require.Empty(t, newPlugin(t, f).volumes)
}

// TestHostile sends what no engine does.
func TestHostile(t *testing.T) {
	f := newFake(t)
	p := newPlugin(t, f)
	works(t, p, "VolumeDriver.Create", request{Name: "web"})
	for _, tc := range []struct {
		text, method string
		body         any
	}{
		{"not JSON", "VolumeDriver.Create", `{"Name":`},
		{"not JSON", "VolumeDriver.Create", `{"Name":"a"} {"Name":"b"}`},
		{"array", "VolumeDriver.Create", `[]`},
		{"number", "VolumeDriver.Create", `{"Name":1}`},
		{"string", "VolumeDriver.Create", `{"Name":"a","Opts":"from=x"}`},
		{"object", "VolumeDriver.Create", `{"Name":"a","Opts":{"from":{}}}`},
		{"not JSON", "VolumeDriver.Create", strings.Repeat(`[`, 100_000)},
		{"more than", "VolumeDriver.Create", `{"Name":"` + strings.Repeat("a", maxBody) + `"}`},
		{"volume name", "VolumeDriver.Create", nil},
		{"volume name", "VolumeDriver.Create", request{Name: "../etc"}},
		{"volume name", "VolumeDriver.Create", request{Name: "a/b"}},
		{"volume name", "VolumeDriver.Create", request{Name: ".hidden"}},
		{"volume name", "VolumeDriver.Create", request{Name: "a\nb"}},
		{"volume name", "VolumeDriver.Create", request{Name: strings.Repeat("a", maxName+1)}},
		{"volume name", "VolumeDriver.Mount", request{Name: "/web", ID: "a"}},
		{"volume name", "VolumeDriver.Remove", request{}},
		{"no such volume", "VolumeDriver.Remove", request{Name: "none"}},
		{"no such volume", "VolumeDriver.Mount", request{Name: "none", ID: "a"}},
		{"no such volume", "VolumeDriver.Unmount", request{Name: "none", ID: "a"}},
		{"no such volume", "VolumeDriver.Path", request{Name: "none"}},
		{"no such volume", "VolumeDriver.Get", request{Name: "none"}},
		{"no ID", "VolumeDriver.Mount", request{Name: "web"}},
		{"no ID", "VolumeDriver.Unmount", request{Name: "web"}},
		{"printable", "VolumeDriver.Mount", request{Name: "web", ID: "a\x00b"}},
		{"printable", "VolumeDriver.Mount", request{Name: "web", ID: strings.Repeat("a", maxUseID+1)}},
		{"no such method", "VolumeDriver.Format", nil},
		{
			"unknown option \"form\": there are allow_other, dev, engine, from", "VolumeDriver.Create",
			request{Name: "a", Opts: map[string]string{"form": "x"}},
		},
		{
			"engine=kernel has no limits", "VolumeDriver.Create",
			request{Name: "a", Opts: map[string]string{"engine": "kernel", "size": "1G"}},
		},
		{"engine of a volume is fuse, kernel or auto", "VolumeDriver.Create", request{Name: "a", Opts: map[string]string{"engine": "zfs"}}},
		{"want a number such as 10G", "VolumeDriver.Create", request{Name: "a", Opts: map[string]string{"size": "-1"}}},
		{"want a number such as 10G", "VolumeDriver.Create", request{Name: "a", Opts: map[string]string{"size": "9e99"}}},
		{"want a number such as 1M", "VolumeDriver.Create", request{Name: "a", Opts: map[string]string{"inodes": "many"}}},
		{"want true or false", "VolumeDriver.Create", request{Name: "a", Opts: map[string]string{"suid": "x"}}},
		{"it is empty", "VolumeDriver.Create", request{Name: "a", Opts: map[string]string{"from": ""}}},
		{"not printable", "VolumeDriver.Create", request{Name: "a", Opts: map[string]string{"from": "a\x00b"}}},
		{"session", "VolumeDriver.Create", request{Name: "a", Opts: map[string]string{"session": "a b"}}},
		{"workspace name", "VolumeDriver.Create", request{Name: "a", Opts: map[string]string{"workspace": "../x"}}},
		{
			"option from is for a workspace that is made", "VolumeDriver.Create",
			request{Name: "a", Opts: map[string]string{"workspace": "app", "from": "x"}},
		},
	} {
		refuses(t, p, tc.text, tc.method, tc.body)
	}
	require.Equal(t, []string{"web"}, slices.Collect(maps.Keys(p.volumes)))

	w := httptest.NewRecorder()
	p.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/VolumeDriver.List", nil))
	require.Equal(t, http.StatusMethodNotAllowed, w.Code)
	w = httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodPost, "/VolumeDriver.List", nil)
	p.ServeHTTP(w, r.WithContext(caller.With(r.Context(), &caller.Caller{Token: "t", Session: "default", Scopes: api.AllScopes()})))
	require.Equal(t, http.StatusForbidden, w.Code, "a token is no engine's")
}

// TestManyAtOnce: uses that come and go at the same time are counted right.
func TestManyAtOnce(t *testing.T) {
	f := newFake(t)
	p := newPlugin(t, f)
	works(t, p, "VolumeDriver.Create", request{Name: "web"})
	all := func(method string) {
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				for range 2 {
					if status, a := ask(t, p, "VolumeDriver."+method, request{Name: "web", ID: fmt.Sprint(i)}); status != http.StatusOK {
						t.Error(a.Err)
					}
				}
			})
		}
		wg.Wait()
	}
	all("Mount")
	require.Len(t, f.mounts, 1)
	require.Len(t, newPlugin(t, f).volumes["web"].rec.Load().Uses, 20)
	all("Unmount")
	require.Equal(t, api.Unmounted, f.workspaces["web"].State)
	require.Empty(t, newPlugin(t, f).volumes["web"].rec.Load().Uses)
}

// TestNoRoom: where nothing can be written down, no use begins and each can end.
func TestNoRoom(t *testing.T) {
	f := newFake(t)
	p := newPlugin(t, f)
	works(t, p, "VolumeDriver.Create", request{Name: "web"})
	works(t, p, "VolumeDriver.Mount", request{Name: "web", ID: "a"})
	room, gone := p.store.volumes(), p.store.volumes()+".gone"
	require.NoError(t, os.Rename(room, gone))
	refuses(t, p, "cannot be recorded", "VolumeDriver.Mount", request{Name: "web", ID: "b"})
	refuses(t, p, "cannot be recorded", "VolumeDriver.Create", request{Name: "other"})
	require.NotContains(t, f.workspaces, "other")
	works(t, p, "VolumeDriver.Unmount", request{Name: "web", ID: "a"})
	require.Equal(t, api.Unmounted, f.workspaces["web"].State)
	refuses(t, p, "cannot be recorded", "VolumeDriver.Mount", request{Name: "web", ID: "b"})
	require.Equal(t, api.Unmounted, f.workspaces["web"].State, "what was mounted for a use that did not begin")
	require.NoError(t, os.Rename(gone, room))
	works(t, p, "VolumeDriver.Unmount", request{Name: "web", ID: "a"})
	require.Empty(t, newPlugin(t, f).volumes["web"].rec.Load().Uses, "it is written down when there is room")
}

// TestBusyAtTheEnd: a program of the host that is in the mount keeps it, and no container does.
func TestBusyAtTheEnd(t *testing.T) {
	f := newFake(t)
	p := newPlugin(t, f)
	works(t, p, "VolumeDriver.Create", request{Name: "web"})
	works(t, p, "VolumeDriver.Mount", request{Name: "web", ID: "a"})
	f.fail = fmt.Errorf("%w: in use by process 12 (sh)", api.ErrConflict)
	works(t, p, "VolumeDriver.Unmount", request{Name: "web", ID: "a"})
	require.Equal(t, api.Mounted, f.workspaces["web"].State)
	refuses(t, p, "process 12 (sh)", "VolumeDriver.Remove", request{Name: "web"})
	f.fail = nil
	works(t, p, "VolumeDriver.Mount", request{Name: "web", ID: "b"})
	works(t, p, "VolumeDriver.Unmount", request{Name: "web", ID: "b"})
	require.Equal(t, api.Unmounted, f.workspaces["web"].State)
}

// TestDamagedRecord: a volume whose record is damaged is an error, and no other volume is the worse for it.
func TestDamagedRecord(t *testing.T) {
	f := newFake(t)
	p := newPlugin(t, f)
	works(t, p, "VolumeDriver.Create", request{Name: "web"})
	works(t, p, "VolumeDriver.Create", request{Name: "other"})
	for text, says := range map[string]string{
		"": "is damaged", `{"version":1,"name":"other","workspace":"w"}`: "is damaged",
		`{"version":2,"name":"web","workspace":"web"}`: "of a later version",
	} {
		require.NoError(t, os.WriteFile(p.store.path("web"), []byte(text), 0o600))
		p = newPlugin(t, f)
		refuses(t, p, says, "VolumeDriver.Mount", request{Name: "web", ID: "a"})
		refuses(t, p, says, "VolumeDriver.Create", request{Name: "web"})
		refuses(t, p, says, "VolumeDriver.Get", request{Name: "web"})
		works(t, p, "VolumeDriver.Get", request{Name: "other"})
	}
}

// TestRemember notes where the socket is.
func TestRemember(t *testing.T) {
	f := newFake(t)
	newPlugin(t, f)
	for _, path := range []string{"", "/run/docker/plugins/snapfs.sock", "/run/other.sock", ""} {
		require.NoError(t, Remember(f.dir, path))
		got, err := Remembered(f.dir)
		require.NoError(t, err)
		require.Equal(t, path, got)
	}
	require.NoError(t, os.WriteFile(socketFile(f.dir), []byte("{"), 0o600))
	_, err := Remembered(f.dir)
	require.ErrorIs(t, err, api.ErrCorrupt)
}

// TestWorkspaceName: each name of a volume gives one of a workspace, and like ones give others.
func TestWorkspaceName(t *testing.T) {
	seen := map[string]bool{}
	for _, volume := range []string{
		"web", "Web", "web_1", "web.1", "project_ws", "a.", "A", "a--", strings.Repeat("0123456789abcdef", 4), strings.Repeat("a-", 100),
	} {
		name := workspaceName(volume)
		require.NoError(t, api.ValidWorkspaceName(name), volume)
		require.False(t, seen[name], name)
		seen[name] = true
	}
	require.True(t, seen["web"])
}
