package mcp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"snapfs/internal/lockorder"
	"snapfs/sandbox/api"
	"snapfs/sandbox/api/caller"
)

// idleWait is after how long without a request a session of an older protocol ends.
const idleWait = 15 * time.Minute

// present is the first version of the protocol without sessions.
const present = "2026-07-28"

// versionHeader tells which version of the protocol a request is of.
const versionHeader = "Mcp-Protocol-Version"

// HTTPOptions are those of a Handler.
type HTTPOptions struct {
	Options
	// Who tells who makes a request, which has been let in already. An error is answered with the status of its class.
	Who func(*http.Request) (Caller, error)
}

// Handler serves agents over HTTP, at one address. A request of the present protocol stands for itself, and ends with its
// connection. Clients of older protocols have sessions, each bound to the caller that began it. The caller's Start may be
// refined by the address: ?workspace=NAME and ?state=NAME.
type Handler struct {
	service  Service
	options  HTTPOptions
	turns    *turns
	sessions sessions

	stateless, stateful http.Handler

	extend func(*mcp.Server) // adds tools of tests; nil: there are none

	mu      lockorder.Mutex[lockorder.MCPServers]
	servers map[string]*mcp.Server // guarded by mu: by scopes
}

// NewHandler makes a Handler. Close ends it.
func NewHandler(s Service, o HTTPOptions) *Handler {
	h := &Handler{service: s, options: o, turns: newTurns(), servers: map[string]*mcp.Server{}}
	get := func(r *http.Request) *mcp.Server {
		return h.server(requestOf(auth.TokenInfoFromContext(r.Context())).caller.Scopes)
	}
	h.stateless = mcp.NewStreamableHTTPHandler(get, &mcp.StreamableHTTPOptions{
		Stateless: true, PropagateRequestCancellation: true, MaxRequestBodyBytes: maxRequest, Logger: o.Log,
	})
	h.stateful = mcp.NewStreamableHTTPHandler(get, &mcp.StreamableHTTPOptions{
		SessionTimeout: idleWait, MaxRequestBodyBytes: maxRequest, Logger: o.Log,
	})
	return h
}

// request is one request of HTTP, for the calls that come with it.
type request struct {
	caller Caller
	ctx    context.Context //nolint:containedctx // it ends with the connection, which the calls must learn
}

// requestKey is the key of a request in what the SDK knows of a caller.
const requestKey = "snapfs.request"

func requestOf(info *auth.TokenInfo) *request {
	if info != nil {
		if r, ok := info.Extra[requestKey].(*request); ok {
			return r
		}
	}
	return &request{ctx: context.Background()}
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	who, err := h.options.Who(r)
	if err == nil {
		who.Start, err = refine(who.Start, r)
	}
	if err != nil {
		refuse(w, api.ClassOf(err).Status, err.Error())
		return
	}
	// The SDK takes its callers from bearer tokens that it has seen checked: it binds sessions to them.
	checked := r.Clone(r.Context())
	checked.Header.Set("Authorization", "Bearer checked")
	verify := func(context.Context, string, *http.Request) (*auth.TokenInfo, error) {
		return &auth.TokenInfo{
			UserID: who.Key, Expiration: time.Now().Add(time.Hour),
			Extra: map[string]any{requestKey: &request{who, r.Context()}},
		}, nil
	}
	auth.RequireBearerToken(verify, nil)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get(versionHeader) >= present {
			h.stateless.ServeHTTP(w, r)
			return
		}
		h.sessions.serve(h.stateful, h.session, who.Key, w, r)
	})).ServeHTTP(&spoken{ResponseWriter: w}, checked)
}

// refine takes what the address says about where an agent begins.
func refine(s Start, r *http.Request) (Start, error) {
	q := r.URL.Query()
	if name := q.Get("workspace"); name != "" {
		if err := api.ValidWorkspaceName(name); err != nil {
			return s, err
		}
		s.Workspace = name
	}
	if name := q.Get("state"); name != "" {
		if err := ValidState(name); err != nil {
			return s, err
		}
		s.State = name
	}
	return s, nil
}

// server gives the server for callers of some scopes.
func (h *Handler) server(scopes []api.Scope) *mcp.Server {
	var has []api.Scope
	var words []string
	for _, s := range api.AllScopes() {
		if slices.Contains(scopes, s) {
			has, words = append(has, s), append(words, string(s))
		}
	}
	key := strings.Join(words, " ")
	h.mu.Lock()
	defer h.mu.Unlock()
	if s := h.servers[key]; s != nil {
		return s
	}
	b := &builder{scopes: has, agent: h.agent}
	s := b.build(h.options.Options)
	if h.extend != nil {
		h.extend(s)
	}
	h.servers[key] = s
	return s
}

// agent gives who makes a call. The call ends with the connection that it came over.
func (h *Handler) agent(ctx context.Context, r *mcp.CallToolRequest) (context.Context, *agent, func(), error) {
	if r.Extra == nil || r.Extra.TokenInfo == nil {
		return ctx, nil, nil, errors.New("the caller is not known")
	}
	from := requestOf(r.Extra.TokenInfo)
	ctx, cancel := context.WithCancel(ctx)
	stops := []func() bool{context.AfterFunc(from.ctx, cancel)}
	if id := r.Session.ID(); id != "" {
		stops = append(stops, context.AfterFunc(h.sessions.during(from.caller.Key, id), cancel))
	}
	a := &agent{Caller: from.caller, service: h.service, home: h.options.Home, turns: h.turns}
	return during{ctx, from.ctx}, a, func() {
		for _, stop := range stops {
			stop()
		}
		cancel()
	}, nil
}

// during is the context of a call: it ends with either, and has the values of the request before those of the session.
type during struct {
	context.Context //nolint:containedctx // of the session, or of the call if there is none

	request context.Context //nolint:containedctx // of the request of HTTP
}

// Value implements context.Context.
func (d during) Value(key any) any {
	if v := d.request.Value(key); v != nil {
		return v
	}
	return d.Context.Value(key)
}

// session finds a session by its id, nil if there is none.
func (h *Handler) session(id string) *mcp.ServerSession {
	for _, s := range h.all() {
		for session := range s.Sessions() {
			if session.ID() == id {
				return session
			}
		}
	}
	return nil
}

// all gives all servers.
func (h *Handler) all() (all []*mcp.Server) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.servers {
		all = append(all, s)
	}
	return all
}

// Close ends all sessions, and the calls that are under way.
func (h *Handler) Close() error {
	h.sessions.endAll()
	var errs []error
	for _, s := range h.all() {
		for session := range s.Sessions() {
			errs = append(errs, session.Close())
		}
	}
	return errors.Join(errs...)
}

// WhoOf is a Who for requests of the daemon, whose contexts tell the caller.
func WhoOf(r *http.Request) (Caller, error) {
	c := caller.From(r.Context())
	if c == nil {
		return Caller{}, fmt.Errorf("%w: the caller is not known", api.ErrRefused)
	}
	who := Caller{Access: c.Access(), Scopes: c.Scopes, Key: "token " + c.Token}
	if c.Token == "" {
		who.Scopes, who.Key = api.AllScopes(), c.Remote+" "+c.Session
	}
	return who, nil
}

// Lasts reports whether a request may work for long: those of older protocols do not tell before they are read.
func Lasts(r *http.Request) bool {
	if r.Method != http.MethodPost {
		return false
	}
	if r.Header.Get(versionHeader) < present {
		return true
	}
	switch r.Header.Get("Mcp-Name") {
	case "workspace_snapshot", "workspace_diff", "workspace_glob", "workspace_grep":
		return true
	}
	return false
}
