package daemon_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/sandbox"
	"snapfs/sandbox/api/wire"
	"snapfs/sandbox/daemon/daemontest"
)

// asker asks a daemon over the network as fast as it can; of the standard library's client, a fixed number of connections.
type asker struct {
	client http.Client
	url    string
	secret string
}

func newAsker(d *daemontest.Daemon, secret string, connections int) *asker {
	return &asker{http.Client{Transport: &http.Transport{MaxConnsPerHost: connections, MaxIdleConnsPerHost: connections}}, d.URL, secret}
}

// call makes a call and gives its result.
func (a *asker) call(b testing.TB, name string, request, result any) {
	body, err := json.Marshal(request)
	if err != nil {
		b.Error(err)
		return
	}
	req, err := http.NewRequestWithContext(b.Context(), http.MethodPost, a.url+wire.Route(name), bytes.NewReader(body))
	if err != nil {
		b.Error(err)
		return
	}
	req.Header.Set("Authorization", "Bearer "+a.secret)
	resp, err := a.client.Do(req)
	if err != nil {
		b.Error(err)
		return
	}
	text, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil || resp.StatusCode != http.StatusOK {
		b.Errorf("%s: %d %s %v", name, resp.StatusCode, text, err)
		return
	}
	if result != nil {
		if err := json.Unmarshal(text, &struct{ Result any }{result}); err != nil {
			b.Error(err)
		}
	}
}

// BenchmarkNetworkClients has 200 clients, each with its connection and one call at a time, ask for a workspace, a page
// of workspaces, a page of snapshots, what a snapshot takes, and a directory, in a home with 200 workspaces and as many
// snapshots. The clients are in the same process, and their time counts.
func BenchmarkNetworkClients(b *testing.B) {
	const clients = 200
	d := daemontest.Start(b, nil)
	secret := d.Token(b, "a").Secret
	who := sandbox.Access{Session: "a"}
	for i := range 200 {
		name := fmt.Sprintf("w%03d", i)
		if _, err := d.Create(b.Context(), sandbox.CreateRequest{Access: who, Name: name}); err != nil {
			b.Fatal(err)
		}
		if _, err := d.Snapshot(b.Context(), sandbox.SnapshotRequest{Access: who, Workspace: name, Name: "first", WaitStored: true}); err != nil {
			b.Fatal(err)
		}
	}
	a := newAsker(d, secret, clients)
	calls := []struct {
		call    string
		request any
	}{
		{wire.CallShow, sandbox.RefRequest{Ref: "w100"}},
		{wire.CallWorkspaces, sandbox.ListRequest{Limit: 20}},
		{wire.CallSnapshots, sandbox.ListRequest{Limit: 20}},
		{wire.CallStats, sandbox.StatsRequest{Ref: "w100:first"}},
		{wire.CallFiles, sandbox.FilesRequest{Ref: "w100:first"}},
	}
	var connected sync.WaitGroup
	for range clients {
		connected.Go(func() { a.call(b, wire.CallInfo, wire.None{}, nil) })
	}
	connected.Wait()
	var mu sync.Mutex
	took := make([]time.Duration, 0, b.N)
	before := processorTime(b)
	b.ResetTimer()
	var wg sync.WaitGroup
	for client := range clients {
		wg.Go(func() {
			var own []time.Duration
			for i := client; i < b.N; i += clients {
				c := calls[i/clients%len(calls)]
				begun := time.Now()
				a.call(b, c.call, c.request, nil)
				own = append(own, time.Since(begun))
			}
			mu.Lock()
			took = append(took, own...)
			mu.Unlock()
		})
	}
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64((processorTime(b)-before).Microseconds())/float64(b.N), "cpu-us/call")
	slices.Sort(took)
	for _, p := range []int{50, 99} {
		b.ReportMetric(took[(len(took)-1)*p/100].Seconds()*1e3, fmt.Sprintf("p%d-ms", p))
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
}

// processorTime is what this process has used.
func processorTime(b *testing.B) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkNetworkSnapshot is a snapshot of a workspace in which a file was written, by the home's method, over the socket
// and over the network.
func BenchmarkNetworkSnapshot(b *testing.B) {
	for _, way := range []string{"home", "socket", "network"} {
		b.Run(way, func(b *testing.B) {
			d := daemontest.Start(b, nil)
			a := newAsker(d, d.Token(b, "a").Secret, 1)
			who := sandbox.Access{Session: "a"}
			if _, err := d.Create(b.Context(), sandbox.CreateRequest{Access: who, Name: "w"}); err != nil {
				b.Fatal(err)
			}
			at := b.TempDir()
			if _, err := d.Mount(b.Context(), sandbox.MountRequest{Access: who, Workspace: "w", Mountpoint: at}); err != nil {
				b.Skip(err)
			}
			b.ResetTimer()
			for i := range b.N {
				b.StopTimer()
				// Another process writes in the mount: this one serves it.
				out, err := exec.CommandContext(b.Context(), "sh", "-c", `echo "$2" >"$1"`, "sh", filepath.Join(at, "file"), strconv.Itoa(i)).CombinedOutput()
				if err != nil {
					b.Fatalf("%v: %s", err, out)
				}
				b.StartTimer()
				r := sandbox.SnapshotRequest{Access: who, Workspace: "w"}
				switch way {
				case "home":
					_, err = d.Home.Snapshot(b.Context(), r)
				case "socket":
					_, err = d.Snapshot(b.Context(), r)
				default:
					a.call(b, wire.CallSnapshot, r, nil)
				}
				if err != nil {
					b.Fatal(err)
				}
			}
			b.StopTimer()
		})
	}
}
