package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
)

// ProviderID marks the refs of snapfs among those of other providers of snapshots.
const ProviderID = "snapfs"

// maxRefText is how many bytes the text of a Ref may have.
const maxRefText = 4096

// Ref names a snapshot for programs that keep snapshots of several providers: they store it, and give it back, as it
// is. Its JSON form is accepted wherever a snapshot is named:
//
//	{"providerId":"snapfs","ref":{"snapshot":"0199…","workspace":"app"}}
//
// Fields that snapfs does not know are an error outside, and pass unharmed inside of "ref".
type Ref struct {
	ProviderID string     `json:"providerId"`
	Ref        RefPayload `json:"ref"`
}

// RefPayload is what the ref of a snapshot says.
type RefPayload struct {
	Snapshot  string // id
	Workspace string // of which it was taken; it must be so
	// Other are fields of somebody else.
	Other map[string]json.RawMessage
}

// MarshalJSON spells the payload with what others have put into it.
func (p RefPayload) MarshalJSON() ([]byte, error) {
	all := maps.Clone(p.Other)
	if all == nil {
		all = map[string]json.RawMessage{}
	}
	for key, value := range map[string]string{"snapshot": p.Snapshot, "workspace": p.Workspace} {
		text, err := json.Marshal(value)
		if err != nil {
			return nil, err
		}
		all[key] = text
	}
	return json.Marshal(all)
}

// UnmarshalJSON keeps what it does not know in Other.
func (p *RefPayload) UnmarshalJSON(text []byte) error {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(text, &all); err != nil {
		return err
	}
	*p = RefPayload{}
	for key, into := range map[string]*string{"snapshot": &p.Snapshot, "workspace": &p.Workspace} {
		value, ok := all[key]
		if !ok || bytes.Equal(value, []byte("null")) {
			return fmt.Errorf("%s is missing", key)
		}
		if err := json.Unmarshal(value, into); err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		delete(all, key)
	}
	if len(all) > 0 {
		p.Other = all
	}
	return nil
}

// String is the JSON form of the ref.
func (r Ref) String() string {
	text, err := json.Marshal(r)
	if err != nil {
		return err.Error() // only for an Other that is no JSON
	}
	return string(text)
}

// ParseRef reads the JSON form of a ref, strictly. ErrInvalid if it is not one of snapfs or cannot be the ref of any
// snapshot.
func ParseRef(text string) (Ref, error) {
	bad := func(err error) (Ref, error) {
		return Ref{}, fmt.Errorf("%w: ref %s: %w", ErrInvalid, Quoted(text), err)
	}
	if len(text) > maxRefText {
		return bad(fmt.Errorf("longer than %d bytes", maxRefText))
	}
	// Not into a Ref: the decoder would take its names in any case of letters.
	d := json.NewDecoder(strings.NewReader(text))
	var outer map[string]json.RawMessage
	if err := d.Decode(&outer); err != nil {
		return bad(err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return bad(errors.New("something follows it"))
	}
	var r Ref
	for key, value := range outer {
		var err error
		switch key {
		case "providerId":
			err = json.Unmarshal(value, &r.ProviderID)
		case "ref":
			err = json.Unmarshal(value, &r.Ref)
		default:
			err = fmt.Errorf("unknown field %s", Quoted(key))
		}
		if err != nil {
			return bad(err)
		}
	}
	switch {
	case r.ProviderID != ProviderID:
		return bad(fmt.Errorf("providerId %s is not %s", Quoted(r.ProviderID), ProviderID))
	case !IsID(r.Ref.Snapshot):
		return bad(fmt.Errorf("snapshot %s is no id", Quoted(r.Ref.Snapshot)))
	}
	if err := ValidWorkspaceName(r.Ref.Workspace); err != nil {
		return bad(err)
	}
	return r, nil
}

// IsRef reports whether what names a snapshot is the JSON form of a ref; no name of a snapshot is.
func IsRef(ref string) bool { return strings.HasPrefix(ref, "{") }

// CompleteID is the id that a reference names without a look at the records; "" if it is abbreviated, or a name.
func CompleteID(ref string) string {
	if IsRef(ref) {
		if r, err := ParseRef(ref); err == nil {
			return r.Ref.Snapshot
		}
	}
	if IsID(ref) {
		return ref
	}
	return ""
}
