package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"snapfs/sandbox/api"
)

// failed is what --json prints of an argument that could not be served.
type failed struct {
	Name     string `json:"name"`
	Error    string `json:"error"`
	Kind     string `json:"kind"`
	ExitCode int    `json:"exit_code"`
}

func newFailed(name string, err error) failed {
	code := exitCode(err)
	text := strings.ReplaceAll(strings.TrimSpace(err.Error()), "\n", "; ")
	return failed{name, text, errorKind(code), code}
}

// eachOf calls do for every argument, and prints the results: alone one, of several a list under key, with those that
// failed. It continues after an error, but not after an interrupt. The error has all of them.
func eachOf[T any](
	ctx context.Context, a *app, args []string, key string, do func(arg string) (T, error), text func(T) string,
) error {
	if len(args) == 1 {
		v, err := do(args[0])
		if err != nil {
			return err
		}
		return a.result(v, line(text(v)))
	}
	return listOf(ctx, a, args, key, do, text)
}

// listOf is eachOf with a list also of one.
func listOf[T any](
	ctx context.Context, a *app, args []string, key string, do func(arg string) (T, error), text func(T) string,
) error {
	ok, bad, errs := []T{}, []failed{}, []error{}
	for _, arg := range args {
		v, err := do(arg)
		if err == nil {
			ok = append(ok, v)
			continue
		}
		bad, errs = append(bad, newFailed(arg, err)), append(errs, err)
		if ctx.Err() != nil {
			break
		}
	}
	errs = append(errs, a.result(map[string]any{key: ok, "failed": bad}, func(w io.Writer) error {
		for _, v := range ok {
			if _, err := fmt.Fprintln(w, text(v)); err != nil {
				return err
			}
		}
		return nil
	}))
	return errors.Join(errs...)
}

// each is eachOf without results: it prints the names of those that succeeded, as do gives them.
func (a *app) each(ctx context.Context, args []string, done string, do func(arg string) (name string, err error)) error {
	return a.eachWith(ctx, args, done, do, func(map[string]any) {})
}

// eachWith is each, of whose document add makes more.
func (a *app) eachWith(
	ctx context.Context, args []string, done string, do func(arg string) (name string, err error),
	add func(doc map[string]any),
) error {
	ok, bad, errs := []string{}, []failed{}, []error{}
	for _, arg := range args {
		name, err := do(arg)
		if err != nil {
			bad, errs = append(bad, newFailed(arg, err)), append(errs, err)
			if ctx.Err() != nil {
				break
			}
			continue
		}
		ok = append(ok, name)
		a.remains = "those " + done + " before stay " + done
	}
	if len(ok) > 0 || len(errs) == 0 || len(args) > 1 {
		doc := map[string]any{done: ok}
		if len(args) > 1 {
			doc["failed"] = bad
		}
		add(doc)
		errs = append(errs, a.result(doc, func(io.Writer) error {
			for _, arg := range ok {
				a.note("%s %s", done, arg)
			}
			return nil
		}))
	}
	return errors.Join(errs...)
}

// allOf lists the names of the session's workspaces and views of snapshots that are in one of some states: what is
// mounted inside another first.
func (a *app) allOf(ctx context.Context, c api.API, states ...api.WorkspaceState) ([]string, error) {
	var found []api.Workspace
	for w, err := range api.AllWorkspaces(ctx, c, api.ListRequest{Access: a.access(), Views: true}) {
		if err != nil {
			return nil, err
		}
		if slices.Contains(states, w.State) {
			found = append(found, w)
		}
	}
	slices.SortStableFunc(found, func(a, b api.Workspace) int { return len(b.Mountpoint) - len(a.Mountpoint) })
	return workspaceNames(found), nil
}

// mountedBefore lists the names of the session's workspaces that are not mounted, and have been: what was mounted inside
// another last.
func (a *app) mountedBefore(ctx context.Context, c api.API) ([]string, error) {
	var found []api.Workspace
	for w, err := range api.AllWorkspaces(ctx, c, api.ListRequest{Access: a.access()}) {
		if err != nil {
			return nil, err
		}
		if w.State == api.Unmounted && w.LastMountpoint != "" {
			found = append(found, w)
		}
	}
	slices.SortStableFunc(found, func(a, b api.Workspace) int { return len(a.LastMountpoint) - len(b.LastMountpoint) })
	return workspaceNames(found), nil
}

func workspaceNames(all []api.Workspace) []string {
	names := make([]string, 0, len(all))
	for _, w := range all {
		names = append(names, w.ID)
	}
	return names
}

// namesOrAll checks that there are names, or --all and none.
func namesOrAll(args []string, all bool) error {
	switch {
	case all && len(args) > 0:
		return usagef("either NAME or --all")
	case !all && len(args) == 0:
		return usagef("missing NAME, or --all")
	}
	return nil
}
