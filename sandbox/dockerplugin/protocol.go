package dockerplugin

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"snapfs/sandbox/api"
	"snapfs/sandbox/api/caller"
	"snapfs/sandbox/api/wire"
)

// maxBody bounds a request, in bytes.
const maxBody = 256 << 10

// contentType is what engines send, and expect.
const contentType = "application/vnd.docker.plugins.v1.2+json"

// request has the fields of all requests.
type request struct {
	Name string
	ID   string // of a use, in Mount and Unmount
	Opts map[string]string
}

// answer has the fields of all answers.
type answer struct {
	Implements   []string      `json:",omitempty"`
	Capabilities *capabilities `json:",omitempty"`
	Mountpoint   string        `json:",omitempty"`
	Volume       *volumeInfo   `json:",omitempty"`
	Volumes      []volumeInfo  `json:",omitempty"`
	Err          string        // "" for none
}

type capabilities struct {
	Scope string // local: a volume of the same name is another one on another machine
}

// volumeInfo is a volume as engines see it.
type volumeInfo struct {
	Name       string
	Mountpoint string         `json:",omitempty"`
	CreatedAt  time.Time      // as RFC 3339
	Status     map[string]any `json:",omitempty"`
}

// method is what answers one kind of request.
type method struct {
	name string
	long bool // it may move data, or wait for something
	run  func(p *Plugin, r *http.Request, in request) (answer, error)
}

func methods() []method {
	const driver = "/VolumeDriver."
	return []method{
		{"/Plugin.Activate", false, func(*Plugin, *http.Request, request) (answer, error) {
			return answer{Implements: []string{"VolumeDriver"}}, nil
		}},
		{driver + "Capabilities", false, func(*Plugin, *http.Request, request) (answer, error) {
			return answer{Capabilities: &capabilities{Scope: "local"}}, nil
		}},
		{driver + "Create", true, func(p *Plugin, r *http.Request, in request) (answer, error) {
			return answer{}, p.create(r.Context(), in.Name, in.Opts)
		}},
		{driver + "Remove", true, func(p *Plugin, r *http.Request, in request) (answer, error) {
			return answer{}, p.remove(r.Context(), in.Name)
		}},
		{driver + "Mount", true, func(p *Plugin, r *http.Request, in request) (answer, error) {
			at, err := p.mount(r.Context(), in.Name, in.ID)
			return answer{Mountpoint: at}, err
		}},
		{driver + "Unmount", true, func(p *Plugin, r *http.Request, in request) (answer, error) {
			return answer{}, p.unmount(r.Context(), in.Name, in.ID)
		}},
		{driver + "Path", false, func(p *Plugin, r *http.Request, in request) (answer, error) {
			v, err := p.get(r.Context(), in.Name)
			return answer{Mountpoint: v.Mountpoint}, err
		}},
		{driver + "Get", false, func(p *Plugin, r *http.Request, in request) (answer, error) {
			v, err := p.get(r.Context(), in.Name)
			return answer{Volume: &v}, err
		}},
		{driver + "List", false, func(p *Plugin, _ *http.Request, _ request) (answer, error) {
			return answer{Volumes: p.list()}, nil
		}},
	}
}

// Patterns are what a Plugin answers, in the form of [http.ServeMux].
func Patterns() []string {
	var all []string
	for _, m := range methods() {
		all = append(all, m.name)
	}
	return all
}

// Wait is how long a request may wait for others: as long as Docker does. Many containers come and go at once, and an
// engine does not ask again.
const Wait = 2 * time.Minute

// Lasts reports whether a request may move data, or wait for something.
func Lasts(r *http.Request) bool {
	for _, m := range methods() {
		if m.name == r.URL.Path {
			return m.long
		}
	}
	return false
}

// ServeHTTP implements http.Handler. Whoever is not trusted is refused: engines act for root, or for the user of the
// daemon.
func (p *Plugin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	for _, m := range p.methods {
		if m.name != r.URL.Path {
			continue
		}
		if who := caller.From(r.Context()); who != nil && !who.Trusted {
			err := fmt.Errorf("%w: volumes are for engines of root and of the user that runs the daemon", api.ErrRefused)
			who.Refuse(m.name, err)
			reply(w, http.StatusForbidden, answer{Err: err.Error()})
			return
		}
		if r.Method != http.MethodPost {
			w.Header().Set("Allow", http.MethodPost)
			reply(w, http.StatusMethodNotAllowed, answer{Err: "requests are sent by POST"})
			return
		}
		in, err := decode(r.Body)
		var out answer
		if err == nil {
			out, err = m.run(p, r, in)
		}
		if err != nil {
			level := slog.LevelInfo
			if errors.Is(err, api.ErrNotFound) { // engines ask first whether there is a volume
				level = slog.LevelDebug
			}
			p.log.Log(r.Context(), level, "a request of a container engine fails", "request", m.name,
				"volume", api.Quoted(in.Name), "error", err)
			// Podman takes an answer with status 200 for a success, whatever Err says.
			reply(w, http.StatusInternalServerError, answer{Err: strings.TrimSpace(err.Error())})
			return
		}
		reply(w, http.StatusOK, out)
		return
	}
	reply(w, http.StatusNotFound, answer{Err: "there is no such method"})
}

// decode reads a request: nothing, or one JSON object.
func decode(body io.Reader) (in request, err error) {
	data, err := io.ReadAll(io.LimitReader(body, maxBody+1))
	switch {
	case err != nil:
		return in, err
	case len(data) > maxBody:
		return in, fmt.Errorf("%w: the request has more than %d bytes", api.ErrInvalid, maxBody)
	case len(strings.TrimSpace(string(data))) == 0:
		return in, nil
	}
	if err := json.Unmarshal(data, &in); err != nil {
		var kind *json.UnmarshalTypeError
		if errors.As(err, &kind) {
			return in, fmt.Errorf("%w: the request has a %s as %s", api.ErrInvalid, kind.Value, api.Quoted(kind.Field))
		}
		return in, fmt.Errorf("%w: the request is not JSON", api.ErrInvalid)
	}
	return in, nil
}

func reply(w http.ResponseWriter, status int, a answer) {
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(a) // the engine is gone
}

// Refuse answers a request that does not get to the handler.
func Refuse(w http.ResponseWriter, _ *http.Request, status int, e *wire.Error) {
	reply(w, status, answer{Err: e.Error()})
}
