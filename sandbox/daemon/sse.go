package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"snapfs/sandbox"
	"snapfs/sandbox/api"
	"snapfs/sandbox/api/caller"
	"snapfs/sandbox/api/wire"
)

// Server-sent events. The id of each is that of the event, so that who connects again goes on after the last one.
const (
	// heartbeat is how often something is sent in any case: proxies close what is silent, and who is gone is noticed.
	heartbeat = 15 * time.Second
	// firstAnswer is how long an error may take to become the status of the answer.
	firstAnswer = 500 * time.Millisecond
)

// eventService serves the log of events as server-sent events.
func (s *server) eventService() Service {
	return Service{
		Pattern: "GET " + wire.Route(wire.CallEvents), Handler: http.HandlerFunc(s.sendEvents),
		Lane: func(r *http.Request) Lane {
			if follow, _ := strconv.ParseBool(r.URL.Query().Get("follow")); follow {
				return FollowLane
			}
			return LongLane
		},
	}
}

// eventsRequest reads the query of a request for events.
func eventsRequest(r *http.Request) (sandbox.EventsRequest, error) {
	var e sandbox.EventsRequest
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return e, fmt.Errorf("%w: query: %w", sandbox.ErrInvalid, err)
	}
	for name, values := range query {
		bad := len(values) != 1
		switch value := values[0]; name {
		case "workspace":
			e.Workspace = value
		case "after":
			e.After = value
		case "since":
			at, err := time.Parse(time.RFC3339, value)
			e.Since, bad = &at, bad || err != nil
		case "follow":
			e.Follow, err = strconv.ParseBool(value)
			bad = bad || err != nil
		default:
			bad = true
		}
		if bad {
			return e, fmt.Errorf("%w: query: %s: workspace, after (id), since (RFC 3339) and follow (0 or 1), each once",
				sandbox.ErrInvalid, api.Quoted(name))
		}
	}
	if last := r.Header.Get("Last-Event-ID"); last != "" {
		e.After = last
	}
	if accept := r.Header.Get("Accept"); accept != "" && !strings.Contains(accept, "text/event-stream") && !strings.Contains(accept, "*/*") {
		return e, fmt.Errorf("%w: the answer is text/event-stream, which the header Accept does not take", sandbox.ErrInvalid)
	}
	return e, nil
}

// sendEvents answers with events until there are no more, or with follow until one side ends it.
func (s *server) sendEvents(w http.ResponseWriter, r *http.Request) {
	by := caller.From(r.Context())
	e, err := eventsRequest(r)
	if err == nil {
		err = by.Need("events", api.ScopeRead)
	}
	if err != nil {
		s.refuse(exchangeOf(r), r, err)
		return
	}
	e.Access = by.Access()
	ctx, cancel := context.WithCancel(r.Context())
	events, ended := make(chan sandbox.Event), make(chan error, 1)
	go func() { // ends with ctx; awaited below
		ended <- s.home.Events(ctx, e, func(e sandbox.Event) error {
			select {
			case events <- e:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	}()
	tell := func(err error) error { return by.Tell("events", err) }
	out := &eventStream{tell: tell, w: w, ctl: http.NewResponseController(w)}
	gone := out.send(events, ended)
	cancel()
	if gone {
		out.failed = <-ended // nobody is there to be told
	} else if out.failed != nil {
		s.refuse(exchangeOf(r), r, out.failed)
	}
}

// eventStream writes server-sent events. One goroutine uses it.
type eventStream struct {
	tell  func(error) error // gives what the client is told of an error
	w     http.ResponseWriter
	ctl   *http.ResponseController
	begun bool
	// failed is why there are no events, if nothing was sent.
	failed error
}

// send sends events until they end, with an error as the last one, or until the client is gone, which it reports.
func (s *eventStream) send(events <-chan sandbox.Event, ended <-chan error) (gone bool) {
	beat := time.NewTimer(firstAnswer)
	defer beat.Stop()
	for {
		var err error
		select {
		case e := <-events:
			err = s.event(e)
		case <-beat.C:
			err = s.write(": \n\n")
		case err := <-ended:
			switch {
			case err != nil && !s.begun:
				s.failed = s.tell(err)
			case err != nil && !errors.Is(err, context.Canceled):
				_ = s.document("error", wire.NewError(s.tell(err))) // the client is gone
			case err == nil:
				_ = s.write("") // as above
			}
			return false
		}
		if err != nil {
			return true
		}
		beat.Reset(heartbeat)
	}
}

func (s *eventStream) event(e sandbox.Event) error {
	text, err := json.Marshal(e)
	if err != nil {
		return err
	}
	return s.write(fmt.Sprintf("id: %s\nevent: %s\ndata: %s\n\n", e.ID, e.Kind, text))
}

// document sends something that is no event of the log.
func (s *eventStream) document(kind string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return s.write(fmt.Sprintf("event: %s\ndata: %s\n\n", kind, text))
}

func (s *eventStream) write(text string) error {
	if !s.begun {
		s.begun = true
		s.w.Header().Set("Content-Type", "text/event-stream")
		s.w.Header().Set("X-Accel-Buffering", "no")
		s.w.WriteHeader(http.StatusOK)
	}
	if _, err := s.w.Write([]byte(text)); err != nil {
		return err
	}
	return s.ctl.Flush()
}
