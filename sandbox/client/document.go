package client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"unicode/utf8"

	"snapfs/sandbox/api"
	"snapfs/sandbox/api/wire"
)

// SaveDocument implements api.API.
func (c *Client) SaveDocument(ctx context.Context, r api.SaveDocumentRequest) (api.Document, error) {
	if err := ctx.Err(); err != nil {
		return api.Document{}, err
	}
	if err := c.place(ctx, r.Access, &r.Snapshot); err != nil {
		return api.Document{}, err
	}
	request, err := encodeDocument(r)
	if err != nil {
		return api.Document{}, err
	}
	return call[api.Document](ctx, c, wire.CallSaveDocument, request, sink{})
}

// encodeDocument gives the JSON of a request with the body as it is, but for blanks: the encoder would escape letters of
// it, and not take all that is JSON.
func encodeDocument(r api.SaveDocumentRequest) (encoded, error) {
	body := r.Body
	r.Body = nil
	head, err := encode(r)
	if err != nil {
		return nil, err
	}
	if !utf8.Valid(body) {
		return nil, fmt.Errorf("%w: the document is not UTF-8", api.ErrInvalid)
	}
	request := bytes.NewBuffer(slices.Grow(head[:len(head)-1], len(body)+len(`,"body":}`)))
	request.WriteString(`,"body":`)
	if err := json.Compact(request, body); err != nil {
		return nil, fmt.Errorf("%w: the document is not JSON: %w", api.ErrInvalid, err)
	}
	if size := request.Len() - len(head); size > api.MaxDocument+len(`,"body":`) {
		return nil, fmt.Errorf("%w: the document is larger than %d bytes", api.ErrInvalid, api.MaxDocument)
	}
	return append(request.Bytes(), '}'), nil
}

// LoadDocument implements api.API.
func (c *Client) LoadDocument(ctx context.Context, r api.DocumentRequest) (d api.Document, err error) {
	var body bytes.Buffer
	err = c.ReadDocument(ctx, r, func(found api.Document) (io.Writer, error) {
		d = found
		return &body, nil
	})
	if err != nil {
		return api.Document{}, err
	}
	d.Body = body.Bytes()
	return d, nil
}

// ReadDocument implements api.API.
func (c *Client) ReadDocument(
	ctx context.Context, r api.DocumentRequest, to func(api.Document) (io.Writer, error),
) error {
	data := &documentData{}
	_, err := call[wire.None](ctx, c, wire.CallLoadDocument, r, sink{data: data, document: func(d api.Document) (err error) {
		data.Writer, err = to(d)
		return err
	}})
	return err
}

// documentData is where the contents of a document go, once that is known.
type documentData struct{ io.Writer }

// ListDocuments implements api.API.
func (c *Client) ListDocuments(ctx context.Context, r api.ListDocumentsRequest) (api.DocumentPage, error) {
	return callAt[api.DocumentPage](ctx, c, wire.CallListDocuments, &r, r.Access, sink{}, &r.Snapshot)
}

// DeleteDocument implements api.API.
func (c *Client) DeleteDocument(ctx context.Context, r api.DocumentRequest) error {
	_, err := call[wire.None](ctx, c, wire.CallDeleteDocument, r, sink{})
	return err
}

// DeleteAgentSession implements api.API.
func (c *Client) DeleteAgentSession(ctx context.Context, r api.AgentSessionRequest) error {
	_, err := call[wire.None](ctx, c, wire.CallDeleteAgentSession, r, sink{})
	return err
}
