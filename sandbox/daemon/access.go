package daemon

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"

	"snapfs/sandbox"
	"snapfs/sandbox/api"
	"snapfs/sandbox/api/wire"
	"snapfs/sandbox/internal/peer"
)

// Access says who may use the socket besides root and the user that runs the daemon. Others are bound to sessions: see
// bound.go for what they may ask. The zero value lets nobody else in. Immutable.
type Access struct {
	group *uint32 // whose members may connect; each has a session of its own, unless a rule says otherwise
	rules []rule
}

// rule binds a user, or the members of a group, to sessions.
type rule struct {
	group    bool
	id       uint32
	sessions []string
}

// ParseAccess reads the group that may use the socket ("" for none) and rules of the form WHO:session=ID[,ID…], where
// WHO is uid=N, gid=N, user=NAME or group=NAME.
func ParseAccess(group string, rules []string) (Access, error) {
	var a Access
	if group != "" {
		gid, err := groupID(group)
		if err != nil {
			return a, err
		}
		a.group = &gid
	}
	for _, text := range rules {
		r, err := parseRule(text)
		if err != nil {
			return a, fmt.Errorf("%w: --allow %s: %w", sandbox.ErrInvalid, api.Quoted(text), err)
		}
		a.rules = append(a.rules, r)
	}
	return a, nil
}

func parseRule(text string) (r rule, err error) {
	who, sessions, ok := strings.Cut(text, ":session=")
	kind, name, named := strings.Cut(who, "=")
	if !ok || !named {
		return r, errors.New("it is WHO:session=ID, where WHO is uid=N, gid=N, user=NAME or group=NAME")
	}
	switch kind {
	case "uid", "gid":
		r.id, err = number(name)
		r.group = kind == "gid"
	case "user":
		r.id, err = userID(name)
	case "group":
		r.id, err = groupID(name)
		r.group = true
	default:
		return r, fmt.Errorf("%s is neither uid, gid, user nor group", api.Quoted(kind))
	}
	if err != nil {
		return r, err
	}
	if !r.group && r.id == 0 {
		return r, errors.New("root may use all sessions, and is not bound to any")
	}
	r.sessions = strings.Split(sessions, ",")
	for _, s := range r.sessions {
		if err := api.ValidSession(s); err != nil {
			return r, err
		}
	}
	return r, nil
}

// number reads the number of a user or group. That of nobody in particular, 2³²-1, is none.
func number(text string) (uint32, error) {
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil || n == 1<<32-1 {
		return 0, fmt.Errorf("%s is not the number of a user or group", api.Quoted(text))
	}
	return uint32(n), nil
}

func userID(name string) (uint32, error) {
	u, err := user.Lookup(name)
	if err != nil {
		return 0, fmt.Errorf("there is no user %s; uid=N does without a name", api.Quoted(name))
	}
	return number(u.Uid)
}

// groupID takes a name or a number.
func groupID(name string) (uint32, error) {
	if n, err := number(name); err == nil {
		return n, nil
	}
	g, err := user.LookupGroup(name)
	if err != nil {
		return 0, fmt.Errorf("%w: there is no group %s", sandbox.ErrInvalid, api.Quoted(name))
	}
	return number(g.Gid)
}

// sessions are those that a user is bound to, the one that it has without a choice first; none: it is a stranger.
func (a Access) sessions(u *peer.User) []string {
	var found []string
	for _, r := range a.rules {
		if r.group && u.In(r.id) || !r.group && u.UID == r.id {
			found = append(found, r.sessions...)
		}
	}
	if found == nil && a.group != nil && u.In(*a.group) {
		return []string{fmt.Sprintf("uid-%d", u.UID)}
	}
	return slices.Compact(found)
}

// mode is that of the socket: who gets through is looked at again when it has connected.
func (a Access) mode() os.FileMode {
	switch {
	case len(a.rules) > 0:
		return 0o666
	case a.group != nil:
		return 0o660
	}
	return 0o600
}

// open lets those through to the socket at a path who may use it.
func (a Access) open(home, path string) error {
	if a.group != nil {
		if err := os.Lchown(path, -1, int(*a.group)); err != nil {
			return fmt.Errorf("giving the socket to group %d: %w", *a.group, err)
		}
	}
	if err := os.Chmod(path, a.mode()); err != nil {
		return err
	}
	return a.pass(home)
}

// openMade is open for a socket that a service manager has made. It stays as it is if nobody else is to use it.
func (a Access) openMade(home string) error {
	if a.mode()&0o066 == 0 {
		return nil
	}
	return wire.WithSocket(home, func(path string) error {
		if err := a.open(home, path); !errors.Is(err, os.ErrNotExist) {
			return err
		}
		return a.pass(home) // it is elsewhere
	})
}

// pass lets those pass the home to its socket who may use that. They can read nothing else there.
func (a Access) pass(home string) error {
	if a.mode()&0o066 == 0 {
		return nil
	}
	fi, err := os.Stat(home)
	if err != nil || fi.Mode()&0o011 == 0o011 {
		return err
	}
	return os.Chmod(home, fi.Mode().Perm()|0o011)
}

// asker is who is at the other end of a connection. Immutable.
type asker struct {
	user     *peer.User // nil: not known
	trusted  bool       // may do all
	sessions []string   // of one that is bound to them; none, and not trusted: a stranger
	pid      int        // of the process; 0: it has none here
	network  bool       // it comes from the network
	remote   string     // its address then
	token    *api.Token // with which it does; nil: none was shown yet
	only     []string   // patterns of the services that there are for it; nil: there is all
}

// who finds out about a connection.
func (a Access) who(conn net.Conn) *asker {
	u, ok := conn.(*net.UnixConn)
	if !ok {
		return &asker{}
	}
	from, err := peer.Of(u)
	if err != nil {
		return &asker{}
	}
	if from.UID == 0 || int(from.UID) == os.Geteuid() {
		return &asker{user: from, trusted: true}
	}
	return &asker{user: from, sessions: a.sessions(from)}
}

// bound reports whether it may ask for some things.
func (a *asker) bound() bool { return !a.trusted && len(a.sessions) > 0 }

// name tells askers apart, all that may do everything alike.
func (a *asker) name() string {
	switch {
	case a.token != nil:
		return "token " + a.token.ID
	case a.trusted || a.user == nil:
		return ""
	}
	return a.user.String()
}

// payer is on whose account something is that is bounded: tokens of one session share.
func (a *asker) payer() string {
	if a.token != nil {
		return "session " + a.token.Session
	}
	return a.name()
}

// from is where it is, for the audit.
func (a *asker) from() string {
	switch {
	case a.network:
		return a.remote
	case a.user == nil:
		return "nobody who is known"
	}
	return a.user.String()
}
