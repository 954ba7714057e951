package httpapi_test

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"snapfs/sandbox"
	"snapfs/sandbox/api"
	"snapfs/sandbox/httpapi"
)

// TestFiles: what the published client does not send, and what goes wrong.
func TestFiles(t *testing.T) {
	r := open(t, httpapi.Options{MaxFile: 1 << 20})
	id, at := r.claim(nil)
	file := func(path string) string { return at + "/files?path=" + path }
	get[httpapi.Written](r, http.MethodPost, file("/d/f"), "contents")
	get[httpapi.Written](r, http.MethodPost, file("/d/run"), "x")
	if a := r.do(http.MethodGet, file("/d/f"), nil); string(a.body) != "contents" ||
		a.header.Get("Content-Type") != "application/octet-stream" {
		t.Errorf("read: %v %s", a.header, a.body)
	}
	asJSON := r.send(http.MethodGet, file("/d/f"), "application/json", strings.NewReader(""))
	if got := string(asJSON.body); got != `{"success":true,"data":{"encoding":"base64","content":"Y29udGVudHM="}}`+"\n" {
		t.Errorf("as JSON: %s", got)
	}
	// Links lead where they would if the sandbox were the whole file system.
	script := `ln -s /etc/passwd "$1/out"; ln -s ../../../etc "$1/up"; ln -s /d/f "$1/in"; mkfifo "$1/pipe"; mkdir "$1/d/full"; touch "$1/d/full/x"`
	sh(t, script, r.mountpoint(id))
	for _, test := range []struct {
		status       int
		method, path string
		body         any
	}{
		{404, http.MethodGet, file("/out"), nil},
		{404, http.MethodGet, file("/up/passwd"), nil},
		{404, http.MethodGet, file("/..%2f..%2f..%2fetc%2fpasswd"), nil},
		{200, http.MethodGet, file("/in"), nil},
		{400, http.MethodGet, file("/pipe"), nil},
		{400, http.MethodGet, file("/d"), nil},
		{400, http.MethodGet, file(""), nil},
		{400, http.MethodGet, at + "/files", nil},
		{400, http.MethodGet, file("%00"), nil},
		{400, http.MethodGet, file(strings.Repeat("x", 5000)), nil},
		{400, http.MethodGet, file(strings.Repeat("x", 300)), nil},
		{404, http.MethodPost, file("/none/x") + "&mkdir=true", nil},
		{400, http.MethodPost, file("/x") + "&mkdir=perhaps", nil},
		{409, http.MethodPost, file("/d") + "&mkdir=true", nil},
		{413, http.MethodPost, file("/big"), strings.Repeat("x", 1<<20+1)},
		{400, http.MethodGet, at + "/files/watch", nil},
		{404, http.MethodGet, at + "/files/list?path=/none", nil},
		{400, http.MethodPost, at + "/files/move", map[string]any{"source": "/d/f"}},
		{404, http.MethodPost, at + "/files/move", httpapi.MoveRequest{Source: "/none", Destination: "/x/y"}},
	} {
		if test.status == 200 {
			if a := r.do(test.method, test.path, test.body); a.status != 200 {
				t.Errorf("%s %s: %d %s", test.method, test.path, a.status, a.body)
			}
			continue
		}
		r.fails(test.status, test.method, test.path, test.body)
	}
	// Where nothing was moved, nothing was made.
	r.fails(404, http.MethodGet, at+"/files/stat?path=/x", nil)
	// A body that ends early leaves what was there.
	q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.url+file("/d/f"), io.MultiReader(
		strings.NewReader("new"), failing{}))
	if err != nil {
		t.Fatal(err)
	}
	q.ContentLength = 100
	q.Header.Set("Authorization", "Bearer "+r.secret)
	if a, err := http.DefaultClient.Do(q); err == nil {
		_ = a.Body.Close()
		t.Errorf("a body that ends early: %d", a.StatusCode)
	}
	if a := r.do(http.MethodGet, file("/d/f"), nil); string(a.body) != "contents" {
		t.Errorf("a body that ended early has changed the file: %s", a.body)
	}
	list := get[httpapi.FileList](r, http.MethodGet, at+"/files/list?path=/", nil)
	names := []string{}
	for _, e := range list.Entries {
		names = append(names, e.Name+" "+e.Type+" "+e.LinkTarget)
	}
	if want := []string{"d dir ", "in symlink /d/f", "out symlink /etc/passwd", "pipe file ", "up symlink ../../../etc"}; !slices.Equal(names, want) {
		t.Errorf("got %q, want %q", names, want)
	}
	get[httpapi.Deleted](r, http.MethodDelete, file("/d/full"), nil)
	r.fails(404, http.MethodDelete, file("/d/full"), nil)
}

var errCut = errors.New("cut")

// failing is the rest of a body that does not come.
type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errCut }

// TestManyNames: a long list comes whole.
func TestManyNames(t *testing.T) {
	r := open(t, httpapi.Options{})
	id, at := r.claim(nil)
	sh(t, `cd "$1" && seq 10500 | xargs touch`, r.mountpoint(id))
	list := get[httpapi.FileList](r, http.MethodGet, at+"/files/list?path=/", nil)
	seen := map[string]bool{}
	for _, e := range list.Entries {
		seen[e.Name] = true
	}
	if len(list.Entries) != 10500 || len(seen) != 10500 {
		t.Errorf("%d entries, %d names", len(list.Entries), len(seen))
	}
}

// raceEnabled says that the race detector is on, under which pools drop some of what they are given.
var raceEnabled bool

// TestBigFile: a file goes in and out without being in memory. SNAPFS_LONG=1: one of 10 GiB.
func TestBigFile(t *testing.T) {
	size := int64(96 << 20)
	if os.Getenv("SNAPFS_LONG") == "1" {
		size = 10 << 30
	}
	r := open(t, httpapi.Options{})
	_, at := r.claim(nil)
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.TotalAlloc
	}
	before := heap()
	q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.url+at+"/files?path=/big", io.LimitReader(ones{}, size))
	if err != nil {
		t.Fatal(err)
	}
	q.ContentLength = size
	q.Header.Set("Authorization", "Bearer "+r.secret)
	for _, q := range []*http.Request{q, nil} {
		if q == nil {
			q, err = http.NewRequestWithContext(t.Context(), http.MethodGet, r.url+at+"/files?path=/big", nil)
			if err != nil {
				t.Fatal(err)
			}
			q.Header.Set("Authorization", "Bearer "+r.secret)
		}
		a, err := http.DefaultClient.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		n, err := io.Copy(io.Discard, a.Body)
		if a.StatusCode != 200 || err != nil || q.Method == http.MethodGet && n != size {
			t.Errorf("%s: %d, %d bytes: %v", q.Method, a.StatusCode, n, err)
		}
		_ = a.Body.Close()
	}
	allocated := heap() - before
	t.Logf("%d MiB in and out allocated %d MiB in all", size>>20, allocated>>20)
	if !raceEnabled && allocated > uint64(size)/4 {
		t.Errorf("%d bytes in and out allocated %d", size, allocated)
	}
}

// ones is an endless text.
type ones struct{}

func (ones) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = '1'
	}
	return len(p), nil
}

// TestArchive: hostile archives are refused, and nothing of them is elsewhere.
func TestArchive(t *testing.T) {
	r := open(t, httpapi.Options{MaxFile: 1 << 20})
	v := get[httpapi.Volume](r, http.MethodPost, "/api/v1/sandboxvolumes", nil)
	at := "/api/v1/sandboxvolumes/" + v.ID + "/files"
	sh(t, `ln -s /etc "$1/etc"; ln -s ../.. "$1/up"`, v.Mountpoint)
	pack := func(headers ...tar.Header) []byte {
		var out bytes.Buffer
		w := tar.NewWriter(&out)
		for _, h := range headers {
			if err := w.WriteHeader(&h); err != nil {
				t.Fatal(err)
			}
			if _, err := w.Write(make([]byte, h.Size)); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return out.Bytes()
	}
	put := func(body []byte) answer {
		return r.send(http.MethodPut, at+"/archive?path=/in", "application/x-tar", bytes.NewReader(body))
	}
	holes := pack(tar.Header{Name: "first", Typeflag: tar.TypeReg, Size: 1}, tar.Header{
		Name: "holes", Typeflag: tar.TypeReg, Format: tar.FormatPAX, Size: 512,
		PAXRecords: map[string]string{
			"XXX.sparse.major": "1", "XXX.sparse.minor": "0", "XXX.sparse.name": "holes",
			"XXX.sparse.realsize": strconv.FormatInt(math.MaxInt64, 10),
		},
	})
	// Which the package reads, and does not write:
	holes = bytes.ReplaceAll(holes, []byte("XXX.sparse"), []byte("GNU.sparse"))
	copy(holes[len(holes)-3*512:], "0\n")
	good := pack(tar.Header{Name: "./a/b", Typeflag: tar.TypeReg, Mode: 0o4755, Size: 10})
	for _, test := range []struct {
		status int
		body   []byte
	}{
		{200, good},
		{200, good}, // it replaces
		{200, pack()},
		{400, good[:518]},
		{400, []byte(strings.Repeat("no archive ", 100))},
		{400, pack(tar.Header{Name: "../out", Typeflag: tar.TypeReg})},
		{400, pack(tar.Header{Name: "a/../../out", Typeflag: tar.TypeDir})},
		{400, pack(tar.Header{Name: "/etc/out", Typeflag: tar.TypeReg})},
		{400, pack(tar.Header{Name: "link", Linkname: "/etc", Typeflag: tar.TypeSymlink})},
		{400, pack(tar.Header{Name: "link", Linkname: "a", Typeflag: tar.TypeLink})},
		{400, pack(tar.Header{Name: "null", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3})},
		{413, holes},
		{413, pack(tar.Header{Name: "big", Typeflag: tar.TypeReg, Size: 1<<20 + 1})},
		{413, pack(tar.Header{Name: "1", Typeflag: tar.TypeReg, Size: 600 << 10}, tar.Header{Name: "2", Typeflag: tar.TypeReg, Size: 600 << 10})},
	} {
		if a := put(test.body); a.status != test.status {
			t.Errorf("%.40q: %d %s, want %d", test.body, a.status, a.body, test.status)
		}
	}
	info := get[httpapi.FileInfo](r, http.MethodGet, at+"/stat?path=/in/a/b", nil)
	if info.Mode != "0755" || info.Size != 10 {
		t.Errorf("unpacked: %+v", info)
	}
	// Through a link that leads out: not there, or inside.
	into := r.send(http.MethodPut, at+"/archive?path=/up/up/up", "application/x-tar", bytes.NewReader(good))
	if into.status != 200 {
		t.Errorf("through links: %d %s", into.status, into.body)
	}
	if _, err := os.Lstat(filepath.Join(filepath.Dir(v.Mountpoint), "a")); err == nil {
		t.Error("an archive has made something outside")
	}
}

// TestWatch speaks to a watch as the published client does not.
func TestWatch(t *testing.T) {
	r := open(t, httpapi.Options{})
	id, at := r.claim(nil)
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	c, _, err := websocket.Dial(ctx, "ws"+strings.TrimPrefix(r.url, "http")+at+"/files/watch", &websocket.DialOptions{
		HTTPHeader: http.Header{"Authorization": {"Bearer " + r.secret}},
	})
	if err != nil {
		t.Fatal(err)
	}
	say := func(text string) {
		t.Helper()
		if err := c.Write(ctx, websocket.MessageText, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	hear := func() (m httpapi.WatchMessage) {
		t.Helper()
		_, text, err := c.Read(ctx)
		if err == nil {
			err = json.Unmarshal(text, &m)
		}
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	for _, bad := range []string{
		"{", `{"action":"x"}`, `{"action":"subscribe"}`, `{"action":"subscribe","path":"/none"}`, `{"action":"unsubscribe","watch_id":"x"}`,
	} {
		say(bad)
		if m := hear(); m.Type != "error" || m.Error == "" {
			t.Errorf("%s: %+v", bad, m)
		}
	}
	sh(t, `mkdir "$1/d"`, r.mountpoint(id))
	say(`{"action":"subscribe","path":"/","recursive":true}`)
	m := hear()
	if m.Type != "subscribed" || m.WatchID == "" {
		t.Fatalf("%+v", m)
	}
	sh(t, `cd "$1" && echo x >d/f && mv d/f d/g && rm d/g`, r.mountpoint(id))
	for _, want := range []string{"create /d/f", "rename /d/g", "remove /d/g"} {
		for got := ""; got != want; {
			e := hear()
			got = e.Event + " " + e.Path
		}
	}
	say(fmt.Sprintf(`{"action":"unsubscribe","watch_id":%q}`, m.WatchID))
	for hear().Type != "unsubscribed" {
	}
	for range 16 {
		say(`{"action":"subscribe","path":"/"}`)
		if m := hear(); m.Type != "subscribed" {
			t.Fatalf("%+v", m)
		}
	}
	say(`{"action":"subscribe","path":"/"}`)
	if m := hear(); m.Type != "error" {
		t.Errorf("too many watches: %+v", m)
	}
	if err := c.CloseNow(); err != nil {
		t.Error(err)
	}
}

// interrupted is a home whose caller goes away while it mounts.
type interrupted struct {
	*sandbox.Home
	before, after func()
}

func (i interrupted) Mount(ctx context.Context, r api.MountRequest) (api.Workspace, error) {
	i.before()
	w, err := i.Home.Mount(ctx, r)
	i.after()
	return w, err
}

// TestClaimInterrupted: a claim that fails, or whose caller goes away, leaves nothing.
func TestClaimInterrupted(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "home")
	home, err := sandbox.Open(t.Context(), dir, sandbox.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r := serve(t, dir, home, httpapi.Options{})
	at := t.TempDir()
	for _, path := range []string{"/api/v1/sandboxes", "/api/v1/sandboxvolumes"} {
		for _, when := range []string{"before", "after", "never mounted"} {
			ctx, cancel := context.WithCancel(t.Context())
			i := interrupted{home, func() {}, func() {}}
			o := httpapi.Options{Mountpoint: func(w string) string { return filepath.Join(at, w) }}
			switch when {
			case "before":
				i.before = cancel
			case "after":
				i.after = cancel
			default:
				o.Mountpoint = func(w string) string { return filepath.Join(at, "none", w) }
			}
			w := httptest.NewRecorder()
			q := httptest.NewRequestWithContext(ctx, http.MethodPost, path, strings.NewReader("{}"))
			httpapi.New(i, o).ServeHTTP(w, q)
			if w.Code < 400 {
				t.Errorf("%s, %s: %d %s", path, when, w.Code, w.Body)
			}
			cancel()
			if names := r.names(); len(names) != 0 {
				t.Errorf("%s, %s: there is something left: %v", path, when, names)
			}
		}
	}
}
