package apitest

import (
	"context"
	"io"
	"strings"

	"snapfs/sandbox"
)

// fileCalls are one of each call about the files of the workspace w.
func fileCalls(api sandbox.API) map[string]func(ctx context.Context) error {
	tell := func(sandbox.File) error { return nil }
	return map[string]func(ctx context.Context) error{
		"StatFile": func(ctx context.Context) error { _, err := api.StatFile(ctx, in("f")); return err },
		"ListDir":  func(ctx context.Context) error { return api.ListDir(ctx, in("/"), tell) },
		"GetFile": func(ctx context.Context) error {
			_, err := api.GetFile(ctx, sandbox.GetFileRequest{WorkFileRequest: in("f")}, io.Discard)
			return err
		},
		"PutFile": func(ctx context.Context) error {
			r := sandbox.PutFileRequest{WorkFileRequest: in("f"), Size: -1}
			_, err := api.PutFile(ctx, r, strings.NewReader("new"))
			return err
		},
		"EditFile": func(ctx context.Context) error {
			_, err := api.EditFile(ctx, sandbox.EditFileRequest{WorkFileRequest: in("f"), Old: "x", New: "y"})
			return err
		},
		"MakeDir": func(ctx context.Context) error {
			_, err := api.MakeDir(ctx, sandbox.MakeDirRequest{WorkFileRequest: in("d")})
			return err
		},
		"MoveFile": func(ctx context.Context) error {
			return api.MoveFile(ctx, sandbox.MoveFileRequest{WorkFileRequest: in("f"), To: "g"})
		},
		"RemoveFile": func(ctx context.Context) error {
			return api.RemoveFile(ctx, sandbox.RemoveFileRequest{WorkFileRequest: in("f")})
		},
		"Glob": func(ctx context.Context) error {
			_, err := api.Glob(ctx, sandbox.GlobRequest{WorkFileRequest: in("/"), Pattern: "*"}, tell)
			return err
		},
		"Grep": func(ctx context.Context) error {
			r := sandbox.GrepRequest{WorkFileRequest: in("/"), Pattern: "x"}
			_, err := api.Grep(ctx, r, func(sandbox.GrepMatch) error { return nil })
			return err
		},
		"WatchFiles": func(ctx context.Context) error {
			r := sandbox.WatchFilesRequest{WorkFileRequest: in("/")}
			return api.WatchFiles(ctx, r, nil, func(sandbox.FileEvent) error { return nil })
		},
	}
}
