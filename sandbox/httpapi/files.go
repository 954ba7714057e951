package httpapi

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"snapfs/sandbox/api"
)

// find looks up the workspace in which files are.
type find func(ctx context.Context, who api.Access, id string) (api.Workspace, error)

type fileInput struct {
	ID   string `path:"id"`
	Path string `query:"path" required:"true"`
}

type writeInput struct {
	ID        string `path:"id"`
	Path      string `query:"path" required:"true"`
	Mkdir     bool   `query:"mkdir" doc:"make a directory"`
	Recursive bool   `query:"recursive" doc:"also those on the way"`
}

type moveInput struct {
	ID   string `path:"id"`
	Body MoveRequest
}

// addFiles registers the calls about files of sandboxes or of volumes, which are below root.
func (s *Server) addFiles(root, what string, in find) {
	at := func(method, path, id string, scope api.Scope, summary string) operation {
		return operation{
			method: method, path: "/" + root + "/{id}/files" + path, id: id + "-" + what + "-file", tag: "files", scope: scope,
			summary: summary,
		}
	}
	stream(s, at(http.MethodGet, "", "read", api.ScopeRead, "Read a file"), readDoc,
		func(who api.Access, f *fileInput, w http.ResponseWriter, r *http.Request) error {
			at, err := s.place(r.Context(), who, in, f.ID, f.Path, false)
			if err != nil {
				return err
			}
			return s.read(at, w, r)
		})
	stream(s, at(http.MethodPost, "", "write", api.ScopeWrite, "Write a file, whole, or make a directory"), writeDoc,
		func(who api.Access, f *writeInput, w http.ResponseWriter, r *http.Request) error {
			at, err := s.place(r.Context(), who, in, f.ID, f.Path, true)
			if err != nil {
				return err
			}
			if f.Mkdir {
				_, err := s.service.MakeDir(r.Context(), api.MakeDirRequest{WorkFileRequest: at, Parents: f.Recursive})
				return answer(w, err, Written{Written: true, Created: true})
			}
			return answer(w, s.write(at, w, r), Written{Written: true})
		})
	add(s, at(http.MethodGet, "/stat", "stat", api.ScopeRead, "Describe a file; a symbolic link itself"),
		func(ctx context.Context, who api.Access, f *fileInput) (FileInfo, error) {
			at, err := s.place(ctx, who, in, f.ID, f.Path, false)
			if err != nil {
				return FileInfo{}, err
			}
			at.NoFollow = true
			file, err := s.service.StatFile(ctx, at)
			return fileInfo(file, path.Clean("/"+f.Path)), err
		})
	stream(s, at(http.MethodGet, "/list", "list", api.ScopeRead, "List a directory"), jsonDoc[FileList],
		func(who api.Access, f *fileInput, w http.ResponseWriter, r *http.Request) error {
			at, err := s.place(r.Context(), who, in, f.ID, f.Path, false)
			if err != nil {
				return err
			}
			return s.listDir(r.Context(), at, w)
		})
	add(s, at(http.MethodPost, "/move", "move", api.ScopeWrite, "Rename a file"),
		func(ctx context.Context, who api.Access, m *moveInput) (Moved, error) {
			if err := checkPath(m.Body.Destination); err != nil {
				return Moved{}, err
			}
			at, err := s.place(ctx, who, in, m.ID, m.Body.Source, true)
			if err != nil {
				return Moved{}, err
			}
			return Moved{Moved: true}, s.move(ctx, at, m.Body.Destination)
		})
	add(s, at(http.MethodDelete, "", "delete", api.ScopeWrite, "Remove a file, or a directory with all that is in it"),
		func(ctx context.Context, who api.Access, f *fileInput) (Deleted, error) {
			at, err := s.place(ctx, who, in, f.ID, f.Path, true)
			if err != nil {
				return Deleted{}, err
			}
			return Deleted{Deleted: true}, s.service.RemoveFile(ctx, api.RemoveFileRequest{WorkFileRequest: at, Recursive: true})
		})
	stream(s, at(http.MethodGet, "/watch", "watch", api.ScopeRead, "Watch files, over a WebSocket"), watchDoc,
		func(who api.Access, f *byID, w http.ResponseWriter, r *http.Request) error {
			at, err := s.place(r.Context(), who, in, f.ID, "/", false)
			if err != nil {
				return err
			}
			return s.watch(at, w, r)
		})
}

// place says where a file is, in a workspace that is ready for what is to be done with it.
func (s *Server) place(
	ctx context.Context, who api.Access, in find, id, path string, change bool,
) (api.WorkFileRequest, error) {
	if err := checkPath(path); err != nil {
		return api.WorkFileRequest{}, err
	}
	w, err := in(ctx, who, id)
	if err == nil {
		err = s.ready(ctx, who, w, change)
	}
	return api.WorkFileRequest{Access: who, Workspace: w.ID, Path: path}, err
}

// answer sends what a call gives, if it is no error.
func answer[T any](w http.ResponseWriter, err error, data T) error {
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(Envelope[T]{Success: true, Data: data}) // the client is gone
	return nil
}

// read sends a file, as it is or in JSON.
func (s *Server) read(at api.WorkFileRequest, w http.ResponseWriter, r *http.Request) error {
	get := api.GetFileRequest{WorkFileRequest: at}
	if !wantsJSON(r) {
		w.Header().Set("Content-Type", "application/octet-stream")
		_, err := s.service.GetFile(r.Context(), get, w)
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	late := &framed{w: w, before: `{"success":true,"data":{"encoding":"base64","content":"`}
	content := base64.NewEncoder(base64.StdEncoding, late)
	if _, err := s.service.GetFile(r.Context(), get, content); err != nil {
		return err
	}
	if err := content.Close(); err != nil {
		return err
	}
	return late.end("\"}}\n")
}

// framed writes something before the first byte.
type framed struct {
	w      io.Writer
	before string
}

// Write implements io.Writer.
func (f *framed) Write(p []byte) (int, error) {
	if err := f.end(""); err != nil {
		return 0, err
	}
	return f.w.Write(p)
}

// end writes what is to be before, if nothing has been, and what is to be after.
func (f *framed) end(after string) error {
	text := f.before + after
	f.before = ""
	if text == "" {
		return nil
	}
	_, err := io.WriteString(f.w, text)
	return err
}

// write makes a file of the body of a request.
func (s *Server) write(at api.WorkFileRequest, w http.ResponseWriter, r *http.Request) error {
	if r.ContentLength > s.o.MaxFile {
		return &http.MaxBytesError{Limit: s.o.MaxFile}
	}
	_, err := s.service.PutFile(r.Context(), api.PutFileRequest{
		WorkFileRequest: at, Parents: true, Size: r.ContentLength,
	}, s.body(w, r))
	return err
}

// body is the body of a request, of a bounded size.
func (s *Server) body(w http.ResponseWriter, r *http.Request) io.Reader {
	return cutShort{http.MaxBytesReader(w, r.Body, s.o.MaxFile)}
}

// cutShort says of a body that ends early that the request is not what it said.
type cutShort struct{ body io.Reader }

// Read implements io.Reader.
func (c cutShort) Read(p []byte) (int, error) {
	n, err := c.body.Read(p)
	var large *http.MaxBytesError
	if err != nil && !errors.Is(err, io.EOF) && !errors.As(err, &large) {
		err = fmt.Errorf("%w: the body was cut short: %w", api.ErrInvalid, err)
	}
	return n, err
}

// move renames a file. Directories that are missing on the way are made when the file is there.
func (s *Server) move(ctx context.Context, at api.WorkFileRequest, to string) error {
	r := api.MoveFileRequest{WorkFileRequest: at, To: to}
	err := s.service.MoveFile(ctx, r)
	if !errors.Is(err, api.ErrNotFound) {
		return err
	}
	at.NoFollow = true
	if _, e := s.service.StatFile(ctx, at); e != nil {
		return err
	}
	at.NoFollow, at.Path = false, path.Dir(path.Clean("/"+to))
	if _, err := s.service.MakeDir(ctx, api.MakeDirRequest{WorkFileRequest: at, Parents: true}); err != nil {
		return err
	}
	return s.service.MoveFile(ctx, r)
}

// What of a directory is held back, to be sent in order: so many names, of so many bytes with their paths and where
// links lead. Of more, the others come as they are found.
const (
	sorted      = 10_000
	sortedBytes = 4 << 20
)

// listDir sends what a directory holds.
func (s *Server) listDir(ctx context.Context, at api.WorkFileRequest, w http.ResponseWriter) error {
	dir := path.Clean("/" + at.Path)
	var first []FileInfo
	out := &entries{out: framed{w: w, before: `{"success":true,"data":{"entries":[`}}
	w.Header().Set("Content-Type", "application/json")
	flush := func() error {
		slices.SortFunc(first, func(a, b FileInfo) int { return strings.Compare(a.Name, b.Name) })
		for _, f := range first {
			if err := out.send(f); err != nil {
				return err
			}
		}
		first = nil
		return nil
	}
	count, held := 0, 0
	err := s.service.ListDir(ctx, at, func(f api.File) error {
		info := fileInfo(f, path.Join(dir, f.Path))
		held += len(info.Path) + len(info.LinkTarget)
		if count++; count <= sorted && held <= sortedBytes {
			first = append(first, info)
			return nil
		}
		if err := flush(); err != nil {
			return err
		}
		return out.send(info)
	})
	if err != nil {
		return err
	}
	if err := flush(); err != nil {
		return err
	}
	return out.out.end("]}}\n")
}

// entries writes the elements of a JSON array.
type entries struct {
	out   framed
	comma []byte
}

func (e *entries) send(f FileInfo) error {
	text, err := json.Marshal(f)
	if err != nil {
		return err
	}
	_, err = e.out.Write(append(e.comma, text...))
	e.comma = []byte{','}
	return err
}

func fileInfo(f api.File, at string) FileInfo {
	info := FileInfo{
		Name: path.Base(at), Path: at, Type: "file", Size: f.Size, Mode: fmt.Sprintf("%04o", f.Mode&uint32(fs.ModePerm)),
		ModTime: f.Modified, LinkTarget: f.Target,
	}
	switch f.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		info.Type = "dir"
	case unix.S_IFLNK:
		info.Type, info.IsLink = "symlink", true
	}
	return info
}
