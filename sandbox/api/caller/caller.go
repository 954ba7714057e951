package caller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"snapfs/sandbox/api"
)

// Caller is who makes a call. Immutable; its methods may be called concurrently, also of nil: that is the program itself.
type Caller struct {
	// Trusted may do everything: root, and the user that runs the daemon, over the unix socket.
	Trusted bool
	// Session is the one for which the call is made.
	Session string
	// Sessions are all that a caller is bound to who is not trusted.
	Sessions []string
	// Token is the id of the token, "" of a user of this machine.
	Token string
	// Scopes are those of the token; users of this machine have all.
	Scopes []api.Scope
	// Remote is the address that the call came from, without a port, or the user, as "uid 1000".
	Remote string
	// RequestID names the request in the answer, in the log and in errors.
	RequestID string
	// Refused takes note that a call was refused, for the audit; nil: nobody takes note.
	Refused func(call string, err error)
}

// callerKey is the context key of a Caller.
type callerKey struct{}

// With gives the context of a call that a caller makes.
func With(ctx context.Context, c *Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// From is who makes a call; nil: the program itself.
func From(ctx context.Context) *Caller {
	c, _ := ctx.Value(callerKey{}).(*Caller)
	return c
}

// Access is what requests of the caller have: its session, and nothing of others.
func (c *Caller) Access() api.Access {
	if c == nil {
		return api.Access{}
	}
	return api.Access{Session: c.Session}
}

// Remotely reports whether the caller is no user of this machine: paths of the host mean nothing to it, and must not be
// used for it.
func (c *Caller) Remotely() bool { return c != nil && c.Token != "" }

// ID is RequestID, "" for the program itself.
func (c *Caller) ID() string {
	if c == nil {
		return ""
	}
	return c.RequestID
}

// Need is api.ErrRefused if the caller's token lacks one of some scopes; call is what it asked for. The refusal is
// audited.
func (c *Caller) Need(call string, scopes ...api.Scope) error {
	if c == nil || c.Token == "" {
		return nil
	}
	for _, s := range scopes {
		if !slices.Contains(c.Scopes, s) {
			err := fmt.Errorf("%w: the token lacks the scope %s, which %s needs", api.ErrRefused, s, call)
			c.Refuse(call, err)
			return err
		}
	}
	return nil
}

// May is api.ErrRefused if the caller may not have what an access asks for: a session that it is not bound to, or what
// belongs to others.
func (c *Caller) May(a api.Access) error {
	if c == nil || c.Trusted {
		return nil
	}
	session, err := a.SessionID()
	switch {
	case err != nil:
		return err
	case a.AllowCrossSession:
		return fmt.Errorf("%w: %s is bound to %s and may not use what belongs to others", api.ErrRefused, c, c.Bound())
	case !slices.Contains(c.Sessions, session):
		return fmt.Errorf("%w: %s is bound to %s and may not use session %s", api.ErrRefused, c, c.Bound(), api.Quoted(session))
	}
	return nil
}

// Bind makes an access one of the caller's sessions: the first if it names none. Errors as of May.
func (c *Caller) Bind(a *api.Access) error {
	if a.Session == "" && c != nil && !c.Trusted && len(c.Sessions) > 0 {
		a.Session = c.Sessions[0]
	}
	return c.May(*a)
}

// Bound names the sessions of the caller for a message.
func (c *Caller) Bound() string {
	if len(c.Sessions) == 1 {
		return "session " + c.Sessions[0]
	}
	return "sessions " + strings.Join(c.Sessions, ", ")
}

// NeedTrust is api.ErrRefused for who is bound to sessions and has no token with one of some scopes: call is about all
// sessions. The refusal is audited.
func (c *Caller) NeedTrust(call string, scopes ...api.Scope) error {
	if c == nil || c.Trusted || c.Token != "" {
		return c.Need(call, scopes...)
	}
	err := fmt.Errorf("%w: %s is about all sessions, and %s is bound to %s: ask who runs the daemon",
		api.ErrRefused, call, c, c.Bound())
	c.Refuse(call, err)
	return err
}

// Refuse has the audit take note that a call was refused, and why. Adapters call it for what they refuse themselves.
func (c *Caller) Refuse(call string, err error) {
	if c != nil && c.Refused != nil {
		c.Refused(call, err)
	}
}

// String names the caller for a message.
func (c *Caller) String() string {
	switch {
	case c == nil:
		return "the program itself"
	case c.Token != "":
		return "token " + c.Token
	}
	return c.Remote
}

// Hidden gives what is said instead of an error that tells of what belongs to another session; nil: it tells of nothing.
func Hidden(err error) error {
	var discreet interface {
		error
		Hidden() error
	}
	if errors.As(err, &discreet) {
		return discreet.Hidden()
	}
	return nil
}

// Tell gives the error that the caller is told of a call that has failed. Who is not trusted does not even learn that
// something of another session exists, and the audit takes note. Adapters pass each error of the home through it.
func (c *Caller) Tell(call string, err error) error {
	if c == nil || c.Trusted || err == nil {
		return err
	}
	hidden := Hidden(err)
	if hidden != nil || errors.Is(err, api.ErrRefused) {
		c.Refuse(call, err)
	}
	return cmp.Or(hidden, err)
}
