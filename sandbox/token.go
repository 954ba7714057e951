package sandbox

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"snapfs/sandbox/api"
	"snapfs/sandbox/internal/catalog"
	"snapfs/sandbox/internal/secret"
)

const (
	// maxTokens is how many tokens a session has at most, those that have expired and were not removed yet included.
	maxTokens = 1000
	// expiredTokens is for how long tokens that have expired are listed.
	expiredTokens = 24 * time.Hour
)

// CreateToken makes a token for the session of the request, and tells its secret, which nobody can find out later.
// ErrConflict if the session has too many.
func (h *Home) CreateToken(ctx context.Context, r TokenRequest) (NewToken, error) {
	ctx, end, err := h.beginChange(ctx)
	if err != nil {
		return NewToken{}, err
	}
	defer end()
	who, err := tokenAsker(ctx, r.Access)
	if err != nil {
		return NewToken{}, err
	}
	record, err := h.newToken(who.session, r)
	if err != nil {
		return NewToken{}, err
	}
	text, sum := "", secret.Sum{}
	_, err = h.catalog.Update(ctx, true, func(ch *catalog.Change) error {
		others := h.catalog.Tokens(who.session)
		for _, t := range others {
			if t.Expired(record.CreatedAt) && len(others) >= maxTokens {
				ch.DelTokens = append(ch.DelTokens, t)
			}
		}
		if len(others)-len(ch.DelTokens) >= maxTokens {
			return fmt.Errorf("%w: session %s has %d tokens: revoke some", ErrConflict, who.session, len(others))
		}
		record.ID = h.catalog.NewID()
		text, sum = secret.New(record.ID)
		record.Sum = sum[:]
		ch.PutTokens = append(ch.PutTokens, record)
		ch.Events = append(ch.Events, h.event(EventTokenCreated, "", who.session, "", tokenLine(record)))
		return nil
	})
	if err != nil {
		return NewToken{}, err
	}
	return NewToken{Token: describeToken(record), Secret: text}, nil
}

// newToken checks a request, and makes the record of a token that has no id yet.
func (h *Home) newToken(session string, r TokenRequest) (*catalog.Token, error) {
	if err := api.ValidDescription(r.Description); err != nil {
		return nil, err
	}
	if r.TTL < 0 {
		return nil, fmt.Errorf("%w: time to live %v is negative", ErrInvalid, r.TTL)
	}
	t := &catalog.Token{Session: session, Description: r.Description, CreatedAt: h.now().UTC()}
	if r.TTL > 0 {
		at := t.CreatedAt.Add(r.TTL)
		t.ExpiresAt = &at
	}
	for _, s := range r.Scopes {
		if !slices.Contains(api.KnownScopes(), s) {
			return nil, fmt.Errorf("%w: scope %s: one of %s", ErrInvalid, api.Quoted(string(s)), scopeList(api.KnownScopes()))
		}
	}
	wanted := r.Scopes
	if len(wanted) == 0 {
		wanted = api.AllScopes()
	}
	for _, s := range api.KnownScopes() { // in their order, each once
		if slices.Contains(wanted, s) {
			t.Scopes = append(t.Scopes, s)
		}
	}
	return t, nil
}

// Tokens lists the tokens of the session, or of all if cross-session access is allowed, the oldest first.
func (h *Home) Tokens(ctx context.Context, r ListRequest) (TokenPage, error) {
	ctx, end, err := h.begin(ctx)
	if err != nil {
		return TokenPage{}, err
	}
	defer end()
	who, err := tokenAsker(ctx, r.Access)
	if err != nil {
		return TokenPage{}, err
	}
	limit, err := pageLimit(r)
	if err != nil {
		return TokenPage{}, err
	}
	if r.After != "" && !api.IsID(r.After) {
		return TokenPage{}, fmt.Errorf("%w: cursor %s is not the id of a token", ErrInvalid, api.Quoted(r.After))
	}
	page := TokenPage{Tokens: []Token{}}
	for _, t := range h.catalog.Tokens(who.tokensOf()) {
		if t.ID <= r.After {
			continue
		}
		if page.More = len(page.Tokens) == limit; page.More {
			break
		}
		page.Tokens = append(page.Tokens, describeToken(t))
	}
	return page, nil
}

// RevokeToken ends a token of the session, or of any if cross-session access is allowed. Calls that are under way go on.
// It is named by its id, or by a unique prefix of that. To revoke the id of one that is gone is no error.
func (h *Home) RevokeToken(ctx context.Context, r RefRequest) error {
	ctx, end, err := h.beginChange(ctx)
	if err != nil {
		return err
	}
	defer end()
	who, err := tokenAsker(ctx, r.Access)
	if err != nil {
		return err
	}
	if !api.IsID(r.Ref) && !api.IsPrefix(r.Ref) {
		return fmt.Errorf("%w: %s is not the id of a token, or the beginning of one", ErrInvalid, api.Quoted(r.Ref))
	}
	_, err = h.catalog.Update(ctx, true, func(ch *catalog.Change) error {
		t, err := h.findToken(who, r.Ref)
		if t == nil || err != nil {
			return err
		}
		ch.DelTokens = append(ch.DelTokens, t)
		e := h.event(EventTokenRevoked, "", t.Session, "", tokenLine(t))
		if t.Session != who.session {
			e.Detail += ", by session " + who.session
		}
		ch.Events = append(ch.Events, e)
		return nil
	})
	return err
}

// findToken finds a token by its id, or by the beginning of one; nil if there was one, perhaps.
func (h *Home) findToken(who asker, ref string) (*catalog.Token, error) {
	if api.IsID(ref) {
		t := h.catalog.Token(ref)
		if t != nil && !who.may(t.Session) {
			return nil, refused("token", ref)
		}
		return t, nil
	}
	var found []*catalog.Token
	for _, t := range h.catalog.Tokens(who.tokensOf()) {
		if strings.HasPrefix(t.ID, ref) {
			found = append(found, t)
		}
	}
	switch len(found) {
	case 0:
		return nil, fmt.Errorf("%w: token %s", ErrNotFound, api.Quoted(ref))
	case 1:
		return found[0], nil
	}
	return nil, fmt.Errorf("%w: %d tokens begin with %s: say which one", ErrConflict, len(found), ref)
}

// Authenticate gives the token of a secret. ErrRefused, always with the same words, if there is none, or it has expired
// or was revoked. What is no secret by its form is refused before anything is looked up. Safe for concurrent use.
func (h *Home) Authenticate(ctx context.Context, text string) (Token, error) {
	if err := ctx.Err(); err != nil {
		return Token{}, err
	}
	id, sum, err := secret.Parse(text)
	if err != nil {
		return Token{}, errNoToken
	}
	t := h.catalog.Token(id)
	if t == nil || !sum.Is(t.Sum) || t.Expired(h.now()) {
		return Token{}, errNoToken
	}
	return describeToken(t), nil
}

// errNoToken is what Authenticate says of any secret that it does not take.
var errNoToken = fmt.Errorf("%w: the token is not known, has expired or was revoked", ErrRefused)

// sweepTokens removes the tokens that have expired some time ago.
func (h *Home) sweepTokens(ctx context.Context) error {
	before := h.now().Add(-expiredTokens)
	gone := slices.DeleteFunc(h.catalog.Tokens(""), func(t *catalog.Token) bool { return !t.Expired(before) })
	for some := range slices.Chunk(gone, maxTokens) {
		if _, err := h.catalog.Update(ctx, false, func(ch *catalog.Change) error {
			ch.DelTokens = some
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// tokenAsker gives who asks for something about tokens: only who may use all sessions may.
func tokenAsker(ctx context.Context, a Access) (asker, error) {
	if !byOwner(ctx) {
		return asker{}, fmt.Errorf("%w: tokens are made and revoked by who runs the daemon", ErrRefused)
	}
	return newAsker(ctx, a)
}

// tokensOf is the session whose tokens the asker sees, "" for all.
func (a asker) tokensOf() string {
	if a.access.AllowCrossSession {
		return ""
	}
	return a.session
}

// describeToken is the public form of a token.
func describeToken(t *catalog.Token) Token {
	return Token{
		ID: t.ID, Session: t.Session, Description: t.Description, Scopes: slices.Clone(t.Scopes), CreatedAt: t.CreatedAt,
		ExpiresAt: t.ExpiresAt,
	}
}

// tokenLine describes a token for an event.
func tokenLine(t *catalog.Token) string {
	line := t.ID + ", scopes " + scopeList(t.Scopes)
	if t.ExpiresAt != nil {
		line += ", until " + t.ExpiresAt.Format(time.RFC3339)
	}
	return line
}

func scopeList(scopes []api.Scope) string {
	words := make([]string, len(scopes))
	for i, s := range scopes {
		words[i] = string(s)
	}
	return strings.Join(words, " ")
}
