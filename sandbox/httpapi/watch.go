package httpapi

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"

	"snapfs/internal/lockorder"
	"snapfs/sandbox/api"
)

const (
	// maxWatches bounds the watches of one connection.
	maxWatches = 16
	// maxWatchRequest bounds what a client says at a time, in bytes.
	maxWatchRequest = 16 << 10
	// watchReady is how long a watch may take to begin: clients give up after 10 s.
	watchReady = 8 * time.Second
	// watchWrite is how long a client may take to read a message.
	watchWrite = 30 * time.Second
)

// events are what clients call what happens to files.
var events = map[api.FileEventKind]string{
	api.FileCreated: "create", api.FileModified: "write", api.FileDeleted: "remove", api.FileRenamed: "rename",
	api.FileOverflow: "invalidate", // whatever the client knows may be wrong
}

// watcher is one connection that watches files.
type watcher struct {
	service Service
	at      api.WorkFileRequest
	conn    *websocket.Conn

	mu      lockorder.Mutex[lockorder.RESTWatcher]
	watches map[string]context.CancelFunc // guarded by mu: by id
	running sync.WaitGroup                // of the watches
}

// watch serves one connection until the client closes it, or the service ends.
func (s *Server) watch(at api.WorkFileRequest, w http.ResponseWriter, r *http.Request) error {
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		return fmt.Errorf("%w: files are watched over a WebSocket", api.ErrInvalid)
	}
	conn, err := websocket.Accept(w, r, nil)
	if err != nil {
		return nil //nolint:nilerr // it has answered
	}
	conn.SetReadLimit(maxWatchRequest)
	ctx, cancel := context.WithCancel(r.Context())
	c := &watcher{service: s.service, at: at, conn: conn, watches: map[string]context.CancelFunc{}}
	defer c.running.Wait()
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = conn.CloseNow() })() // ends the read below
	for {
		_, text, err := conn.Read(ctx)
		if err != nil {
			return nil //nolint:nilerr // the client is gone, or the service ends
		}
		var said WatchRequest
		if err := json.Unmarshal(text, &said); err != nil {
			_ = c.send(ctx, WatchMessage{Type: "error", Error: "not the JSON of a request: " + err.Error()})
			continue
		}
		switch said.Action {
		case "subscribe":
			c.subscribe(ctx, said)
		case "unsubscribe":
			c.unsubscribe(ctx, said.WatchID)
		default:
			_ = c.send(ctx, WatchMessage{Type: "error", Error: "unknown action " + api.Quoted(said.Action)})
		}
	}
}

// subscribe begins a watch.
func (c *watcher) subscribe(ctx context.Context, said WatchRequest) {
	if err := checkPath(said.Path); err != nil {
		_ = c.send(ctx, WatchMessage{Type: "error", Error: err.Error()})
		return
	}
	id := "watch-" + strings.ToLower(rand.Text()[:12])
	during, cancel := context.WithCancel(ctx)
	c.mu.Lock()
	full := len(c.watches) >= maxWatches
	if !full {
		c.watches[id] = cancel
	}
	c.mu.Unlock()
	if full {
		cancel()
		_ = c.send(ctx, WatchMessage{Type: "error", Error: fmt.Sprintf("more than %d watches", maxWatches)})
		return
	}
	at := c.at
	at.Path = said.Path
	r := api.WatchFilesRequest{WorkFileRequest: at, Recursive: said.Recursive}
	c.running.Go(func() {
		defer cancel()
		defer c.drop(id)
		late := time.AfterFunc(watchReady, cancel)
		defer late.Stop()
		err := c.service.WatchFiles(during, r, func() {
			if late.Stop() {
				_ = c.send(during, WatchMessage{Type: "subscribed", WatchID: id, Path: said.Path})
			}
		}, func(e api.FileEvent) error {
			return c.send(during, WatchMessage{
				Type: "event", WatchID: id, Event: events[e.Kind], Path: e.Path, OldPath: e.OldPath,
			})
		})
		if during.Err() != nil && c.drop(id) { // nobody has ended it
			err = fmt.Errorf("%w: no room for another watch: end one", api.ErrUnavailable)
		} else if during.Err() != nil {
			return
		}
		if err != nil {
			why := failure(told(ctx, "watch files", err)).Reason.Message
			_ = c.send(ctx, WatchMessage{Type: "error", WatchID: id, Error: why})
		}
	})
}

// drop ends a watch; it reports whether there was one.
func (c *watcher) drop(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	cancel, ok := c.watches[id]
	if ok {
		cancel()
		delete(c.watches, id)
	}
	return ok
}

func (c *watcher) unsubscribe(ctx context.Context, id string) {
	if !c.drop(id) {
		_ = c.send(ctx, WatchMessage{Type: "error", WatchID: id, Error: "there is no such watch"})
		return
	}
	_ = c.send(ctx, WatchMessage{Type: "unsubscribed", WatchID: id})
}

// send sends a message. A client that does not read loses its connection.
func (c *watcher) send(ctx context.Context, m WatchMessage) error {
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, watchWrite)
	defer cancel()
	return c.conn.Write(ctx, websocket.MessageText, text)
}
