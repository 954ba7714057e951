package mcp

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"snapfs/sandbox/api"
	"snapfs/sandbox/api/caller"
)

// Bounds of what is asked and answered, in bytes.
const (
	maxBytes   = 64 << 10 // of the contents of a result
	maxContent = 4 << 20  // of a file that is written in one call
	maxRequest = 8 << 20  // of a request: JSON may need two bytes for one
)

// tool describes a tool.
type tool struct {
	name, title, description string

	scope api.Scope // that its caller needs
	does  effect
}

// effect is what a tool does to its environment, as its annotations say.
type effect struct{ readOnly, destructive, idempotent bool }

// call is one call of a tool.
type call struct {
	*agent
	request *mcp.CallToolRequest
}

// result is what a tool answers: it is sent as it is, and in words.
type result interface {
	// text is the result as a model reads it.
	text() string
	// news is what the model must know first; "" for nothing.
	news() string
}

// At says on which workspace a tool has worked. Results embed it.
type At struct {
	Workspace string `json:"workspace" jsonschema:"the workspace at hand"`
	Notice    string `json:"notice,omitempty" jsonschema:"what happened to the workspace at hand before this call"`
}

func (a At) news() string { return a.Notice }

// at is the part of a result that says where.
func (h here) at() At { return At{h.ID, h.notice} }

// add gives a server a tool, unless its scope is not among those of the callers.
func add[In any, Out result](b *builder, t tool, fn func(ctx context.Context, c *call, in In) (Out, error)) {
	if !slices.Contains(b.scopes, t.scope) {
		b.denied[t.name] = t.scope
		return
	}
	closed, destructive := false, t.does.destructive
	mcp.AddTool(b.server, &mcp.Tool{
		Name: t.name, Title: t.title, Description: t.description,
		Annotations: &mcp.ToolAnnotations{
			Title: t.title, ReadOnlyHint: t.does.readOnly, DestructiveHint: &destructive,
			IdempotentHint: t.does.idempotent, OpenWorldHint: &closed,
		},
	}, func(ctx context.Context, request *mcp.CallToolRequest, in In) (*mcp.CallToolResult, Out, error) {
		var none Out
		ctx, a, done, err := b.agent(ctx, request)
		if err != nil {
			return nil, none, err
		}
		defer done()
		c := &call{a, request}
		if err := whole(in); err != nil {
			return nil, none, err
		}
		out, err := fn(ctx, c, in)
		if err != nil {
			return nil, none, c.words(caller.From(ctx).Tell(t.name, err))
		}
		var content []mcp.Content
		if n := out.news(); n != "" {
			content = append(content, &mcp.TextContent{Text: "Note: " + n})
		}
		return &mcp.CallToolResult{Content: append(content, &mcp.TextContent{Text: out.text()})}, out, nil
	})
}

// whole refuses arguments that are missing or blank. Those with the tag verbatim may be anything.
func whole(in any) error {
	v := reflect.ValueOf(in)
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if f.Type.Kind() != reflect.String || f.Tag.Get("verbatim") != "" {
			continue
		}
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		text := v.Field(i).String()
		switch {
		case text != "" && strings.TrimSpace(text) == "":
			return fmt.Errorf("%s is blank: give a value, or leave it out if it is optional", name)
		case text == "" && !strings.Contains(options, "omitempty"):
			return fmt.Errorf("%s is empty: give a value", name)
		}
	}
	return nil
}

// clamp is a limit that was asked for, within bounds; usual if none was.
func clamp(asked, usual, most int) int {
	if asked <= 0 {
		return usual
	}
	return min(asked, most)
}

// errEnough ends a call of the service that has given all that is wanted.
var errEnough = errors.New("enough")

// enough is the error of such a call, nil if it was only ended.
func enough(err error) error {
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}
