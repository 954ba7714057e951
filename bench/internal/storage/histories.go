package storage

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"snapfs/bench/internal/corpora"
	"snapfs/bench/internal/report"
	"snapfs/bench/internal/suite"
	"snapfs/bench/internal/tree"
)

// histories builds what is asked for, or finds it in the cache.
func histories(ctx context.Context, e *suite.Env) ([]corpora.History, error) {
	switch {
	case len(e.Trees) > 0:
		return []corpora.History{{Name: "tree", About: strings.Join(e.Trees, " "), States: e.Trees}}, nil
	case e.Repo != "":
		h, err := corpora.Commits(ctx, e.Repo, e.Every, e.Limit, filepath.Join(e.Work, "git"), e.Bar)
		return []corpora.History{h}, err
	}
	var out []corpora.History
	for _, c := range corpora.Chosen(e.Corpora, e.Full) {
		h, err := e.Shelf().History(ctx, c)
		if err != nil {
			return nil, fmt.Errorf("build corpus %s: %w", c.Name, err)
		}
		out = append(out, h)
	}
	return out, nil
}

// PrintCorpora builds the corpora and describes them.
func PrintCorpora(ctx context.Context, e *suite.Env, w io.Writer) error {
	list, err := histories(ctx, e)
	if err != nil {
		return err
	}
	for _, h := range list {
		infos, err := inspectAll(ctx, e, h)
		if err != nil {
			return err
		}
		r := &report.Report{About: map[string]string{}, Digests: map[string]string{}}
		describe(r, h, infos)
		e.Bar.Clear()
		fmt.Fprintf(w, "%s %s\n   %s\n", h.Name, r.Digests[h.Name], r.About[h.Name])
		for _, n := range r.Notes {
			fmt.Fprintln(w, "   note:", n)
		}
	}
	return nil
}

// describe says in the report what a history is, and whether it is that of the committed results.
func describe(r *report.Report, h corpora.History, infos []tree.Info) {
	total, files := int64(0), 0
	for _, in := range infos {
		total += in.Bytes
		files = max(files, in.Files)
	}
	r.About[h.Name] = fmt.Sprintf(
		"%s; %d states, %.0f MB in all, up to %d files", h.About, len(h.States), float64(total)/1e6, files,
	)
	r.Digests[h.Name] = tree.Digest(infos)
	if h.Digest != "" && h.Digest != r.Digests[h.Name] {
		r.Note(
			"%s is not byte for byte the corpus of the committed results: its digest is %.16s, theirs %.16s", h.Name,
			r.Digests[h.Name], h.Digest,
		)
	}
}

func inspectAll(ctx context.Context, e *suite.Env, h corpora.History) ([]tree.Info, error) {
	var out []tree.Info
	for i, s := range h.States {
		e.Bar.Step("reading "+h.Name, i, len(h.States))
		info, err := tree.Inspect(ctx, s)
		if err != nil {
			return nil, err
		}
		out = append(out, info)
	}
	return out, nil
}
