package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"snapfs/sandbox/api"
)

type refreshInput struct {
	ID   string `path:"id"`
	Body *RefreshRequest
}

type forkInput struct {
	ID   string `path:"id"`
	Body *ForkSandboxRequest
}

func (s *Server) addLifecycle() {
	const tag = "sandboxes"
	post := func(verb, summary string) operation {
		return operation{
			method: http.MethodPost, path: "/sandboxes/{id}/" + verb, id: verb + "-sandbox", tag: tag,
			scope: api.ScopeWorkspaces, summary: summary,
		}
	}
	add(s, post("pause", "Hold all changes of a sandbox back; one that is paused stays so"), s.pause)
	add(s, post("resume", "Let a sandbox go on; one that is running does"),
		func(ctx context.Context, who api.Access, in *byID) (ResumeResult, error) {
			w, err := s.sandbox(ctx, who, in.ID)
			if err == nil {
				w, err = s.resume(ctx, who, w)
			}
			return ResumeResult{SandboxID: w.ID, Resumed: err == nil}, err
		})
	add(s, post("refresh", "Put the soft end of a sandbox off"), s.refresh)
	fork := post("fork", "Make a paused sandbox of the present state of another")
	fork.status = http.StatusCreated
	add(s, fork, s.fork)
}

func (s *Server) pause(ctx context.Context, who api.Access, in *byID) (PauseResult, error) {
	w, err := s.sandbox(ctx, who, in.ID)
	if err != nil {
		return PauseResult{}, err
	}
	return PauseResult{SandboxID: w.ID, Paused: true, Status: Paused}, s.hold(ctx, who, w)
}

// hold pauses a workspace that may be paused already.
func (s *Server) hold(ctx context.Context, who api.Access, w api.Workspace) error {
	if w.Paused {
		return nil
	}
	_, err := s.service.Pause(ctx, api.PauseRequest{Access: who, Workspace: w.ID})
	return s.unlessNow(ctx, who, w.ID, err, func(w api.Workspace) bool { return w.Paused })
}

// unlessNow drops a conflict if the workspace is by now as it was to be: somebody else has made it so.
func (s *Server) unlessNow(
	ctx context.Context, who api.Access, name string, err error, is func(api.Workspace) bool,
) error {
	if !errors.Is(err, api.ErrConflict) {
		return err
	}
	if now, e := s.workspace(ctx, who, "workspace", name); e == nil && is(now) {
		return nil
	}
	return err
}

// resume lets a sandbox run, which begins a new generation and its soft time. One that runs stays as it is.
func (s *Server) resume(ctx context.Context, who api.Access, w api.Workspace) (api.Workspace, error) {
	if state(w) == Running {
		return w, nil
	}
	f, now := factsOf(w), s.o.Now()
	labels := api.Labels{
		labelGeneration: strconv.FormatInt(f.generation+1, 10), labelUpdated: now.UTC().Format(time.RFC3339Nano),
	}
	setEnd(labels, labelTTL, labelExpires, f.ttl, now)
	// First, so that who sees it running sees its generation: a generation that never ran does no harm.
	if _, err := s.service.Label(ctx, api.LabelRequest{Access: who, Workspace: w.ID, Put: labels}); err != nil {
		return w, err
	}
	s.poke()
	w, err := s.mount(ctx, who, w)
	if err != nil {
		return w, err
	}
	if w.Paused {
		_, err = s.service.Resume(ctx, api.RefRequest{Access: who, Ref: w.ID})
		err = s.unlessNow(ctx, who, w.ID, err, func(w api.Workspace) bool { return !w.Paused })
	}
	if err != nil {
		return w, err
	}
	return s.workspace(ctx, who, "sandbox", w.ID)
}

// mount mounts a workspace that is not, at its own place: where else it was mounted before is for who did that.
func (s *Server) mount(ctx context.Context, who api.Access, w api.Workspace) (api.Workspace, error) {
	if w.State == api.Mounted {
		return w, nil
	}
	mounted, err := s.service.Mount(ctx, api.MountRequest{
		Access: who, Workspace: w.ID, Mountpoint: s.o.Mountpoint(w.ID), MakeMountpoint: true,
		MountOptions: api.MountOptions{NoSUID: true, NoDev: true},
	})
	if err == nil {
		return mounted, nil
	}
	err = s.unlessNow(ctx, who, w.ID, err, func(now api.Workspace) bool { return now.State == api.Mounted })
	if err != nil {
		return w, err
	}
	return s.workspace(ctx, who, "workspace", w.ID)
}

func (s *Server) refresh(ctx context.Context, who api.Access, in *refreshInput) (Refreshed, error) {
	w, err := s.sandbox(ctx, who, in.ID)
	if err != nil {
		return Refreshed{}, err
	}
	f, now := factsOf(w), s.o.Now()
	labels := api.Labels{labelUpdated: now.UTC().Format(time.RFC3339Nano)}
	seconds := f.ttl
	if in.Body != nil && in.Body.Duration > 0 {
		seconds = in.Body.Duration
	}
	setEnd(labels, labelTTL, labelExpires, seconds, now)
	labels[labelTTL] = strconv.FormatInt(f.ttl, 10) // it keeps its own for the next time
	w, err = s.service.Label(ctx, api.LabelRequest{Access: who, Workspace: w.ID, Put: labels})
	s.poke()
	f = factsOf(w)
	return Refreshed{SandboxID: w.ID, ExpiresAt: f.expires, HardExpiresAt: f.ends}, err
}

// fork makes a paused sandbox. If it fails there is none.
func (s *Server) fork(ctx context.Context, who api.Access, in *forkInput) (Forked, error) {
	w, err := s.sandbox(ctx, who, in.ID)
	if err != nil {
		return Forked{}, err
	}
	var config *ForkConfig
	if in.Body != nil {
		config = in.Body.Config
	}
	name := newName("sb")
	made, err := s.service.Fork(ctx, api.ForkRequest{
		Access: who, Workspace: w.ID, Name: name, Labels: inherited(w, config, s.o.Now()),
	})
	if err != nil {
		return Forked{}, err
	}
	if err = s.hold(ctx, who, made); err == nil {
		made, err = s.sandbox(ctx, who, name)
	}
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return Forked{}, errors.Join(err, s.undo(ctx, who, name))
	}
	s.poke()
	return Forked{SourceSandboxID: w.ID, Sandbox: describe(made)}, nil
}

// ready has the files of a workspace at hand: it is mounted, and a sandbox whose files are to change is resumed, if it may
// be. To read the files of one that is paused does not resume it.
func (s *Server) ready(ctx context.Context, who api.Access, w api.Workspace, change bool) error {
	var err error
	switch resumes := state(w) == Paused && (change || !w.Paused); {
	case isVolume(w), !resumes:
		_, err = s.mount(ctx, who, w)
	case !factsOf(w).autoResume:
		err = fmt.Errorf("%w: sandbox %s is paused, and auto_resume is off", api.ErrConflict, w.ID)
	default:
		_, err = s.resume(ctx, who, w)
	}
	return err
}
