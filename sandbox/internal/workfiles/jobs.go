package workfiles

import (
	"encoding/json"
	"fmt"

	"snapfs/sandbox/api"
	"snapfs/sandbox/internal/workfiles/scoped"
)

// nothing is the result of a call that has none.
type nothing struct{}

// do does what a task asks.
func (j *job) do(r *scoped.Root) (any, error) {
	switch j.Do {
	case Stat:
		return with(j, func(q api.WorkFileRequest) (api.File, error) { return r.Stat(q) })
	case List:
		return with(j, func(q api.WorkFileRequest) (nothing, error) {
			return nothing{}, r.List(j.ctx, q, items[api.File](j))
		})
	case Get:
		return with(j, func(q api.GetFileRequest) (api.File, error) { return r.Get(j.ctx, q, pieces{j}) })
	case Put:
		return with(j, func(q api.PutFileRequest) (api.File, error) { return r.Put(j.ctx, q, j.Temp, j) })
	case Edit:
		return with(j, func(q api.EditFileRequest) (api.EditFileResult, error) { return r.Edit(j.ctx, q, j.Temp) })
	case Make:
		return with(j, r.MakeDir)
	case Move:
		return with(j, func(q api.MoveFileRequest) (nothing, error) { return nothing{}, r.Move(q) })
	case Remove:
		return with(j, func(q api.RemoveFileRequest) (nothing, error) { return nothing{}, r.Remove(j.ctx, q) })
	case Glob:
		return with(j, func(q api.GlobRequest) (api.SearchResult, error) { return r.Glob(j.ctx, q, items[api.File](j)) })
	case Grep:
		return with(j, func(q api.GrepRequest) (api.SearchResult, error) { return r.Grep(j.ctx, q, items[api.GrepMatch](j)) })
	case Watch:
		return with(j, j.watch)
	case sweep:
		return with(j, func(q api.WorkFileRequest) (nothing, error) { return nothing{}, r.Sweep(q.Path, j.Temp) })
	}
	return nil, fmt.Errorf("no call is named %s", api.Quoted(j.Do))
}

// with reads the request of a task.
func with[Req, Res any](j *job, fn func(Req) (Res, error)) (any, error) {
	var q Req
	if err := json.Unmarshal(j.Request, &q); err != nil {
		return nil, err
	}
	return fn(q)
}

// items gives what sends parts of a result.
func items[T any](j *job) func(T) error {
	return func(v T) error { return j.out.sendJSON(item, v) }
}

// pieces sends what a file has.
type pieces struct{ j *job }

func (p pieces) Write(b []byte) (int, error) { return len(b), p.j.out.send(data, b) }

// watch tells events, each at once.
func (j *job) watch(q api.WatchFilesRequest) (nothing, error) {
	tell := func() error { return j.out.send(ready, nil) }
	return nothing{}, scoped.Watch(j.ctx, j.openInside, q, flushed(j, tell), func(e api.FileEvent) error {
		return flushed(j, func() error { return j.out.sendJSON(item, e) })()
	})
}

// flushed has what is sent arrive at once.
func flushed(j *job, send func() error) func() error {
	return func() error {
		if err := send(); err != nil {
			return err
		}
		return j.out.flush()
	}
}
