package gitapply

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"snapfs/cmd/internal/gitcommit"
	"snapfs/sandbox/api"
)

// Request says what is to be committed, and where.
type Request struct {
	Access api.Access

	From       string // workspace or snapshot
	Base       string // snapshot that it is compared with; "" is the one that it began with
	Repository string // absolute path of the repository, or of a directory in its work tree
	Branch     string // new
	Parent     string // commit that the new one follows; "" is the one that was checked out where From began
	Prefix     string // directory of the repository that From began with, "." for all of it; "" is to be found out
	Message    string // "" is one that names From
	DryRun     bool   // make no commit

	// Note gets what the user is to know beside the result, as fmt.Printf does.
	Note func(format string, args ...any)
}

// Result says what was committed.
type Result struct {
	From       string    `json:"from"`
	Repository string    `json:"repository"`
	Branch     string    `json:"branch"`
	Commit     string    `json:"commit,omitempty"` // "" if there is nothing to commit, or with DryRun
	Parent     string    `json:"parent,omitempty"` // "" if the commit has none
	Tree       string    `json:"tree"`
	Base       string    `json:"base"` // the snapshot that From was compared with
	Files      int       `json:"files"`
	Changes    []Change  `json:"changes"`
	LeftOut    []LeftOut `json:"left_out"`
	Applied    bool      `json:"applied"` // the branch has been made
}

// Change is a file of the commit.
type Change struct {
	Kind    string `json:"kind"` // A M D T
	Path    string `json:"path"`
	RawPath []byte `json:"raw_path,omitempty"` // of one that is not UTF-8
}

// LeftOut is a changed file that is not in the commit, or a directory of such.
type LeftOut struct {
	Path    string `json:"path"`
	RawPath []byte `json:"raw_path,omitempty"` // of one that is not UTF-8
	Why     string `json:"why"`                // submodule, repository, special file
}

// commit is a commit that is being made.
type commit struct {
	r    Request
	api  api.API
	git  *gitcommit.Repo
	res  Result
	base string // snapshot
	tree string // snapshot of From, or with DryRun From itself

	leftOut  map[string]bool // paths of res.LeftOut
	specials map[string]bool // files of kinds that git cannot know, where it would look, by their paths in From
}

// Apply makes the commit. What it calls c for is bounded by ctx, and so is git. ErrConflict: the branch exists.
// ErrInvalid: the request has to say more, or git takes a file's name from nobody.
func Apply(ctx context.Context, c api.API, r Request) (_ Result, err error) {
	m := &commit{r: r, api: c, leftOut: map[string]bool{}, specials: map[string]bool{}}
	if m.git, err = gitcommit.Open(ctx, r.Repository, r.DryRun); err != nil {
		return Result{}, err
	}
	defer func() { err = errors.Join(err, m.git.Close()) }()
	if err := m.git.CheckBranch(ctx, r.Branch); err != nil {
		return Result{}, err
	}
	err = m.make(ctx)
	return m.res, err
}

// leave notes that a path is left out.
func (m *commit) leave(at, why string) {
	if !m.leftOut[at] {
		m.leftOut[at] = true
		m.res.LeftOut = append(m.res.LeftOut, LeftOut{Path: at, RawPath: api.RawPath(at), Why: why})
	}
}

// make makes the commit.
func (m *commit) make(ctx context.Context) error {
	where, err := m.findBase(ctx)
	if err != nil {
		return err
	}
	if err := m.freeze(ctx); err != nil {
		return err
	}
	if err := m.findParent(ctx, where); err != nil {
		return err
	}
	m.res.From, m.res.Repository, m.res.Branch, m.res.Base = m.r.From, m.r.Repository, m.r.Branch, m.base
	m.res.Changes, m.res.LeftOut = []Change{}, []LeftOut{}
	if err := m.git.Begin(ctx, m.res.Parent); err != nil {
		return err
	}
	remove, add, err := m.gather(ctx)
	if err != nil {
		return err
	}
	if err := m.git.Stage(ctx, remove, add); err != nil {
		return err
	}
	tree, changes, err := m.git.Tree(ctx, m.res.Parent)
	if err != nil {
		return err
	}
	m.res.Tree, m.res.Files = tree, len(changes)
	for _, ch := range changes {
		m.res.Changes = append(m.res.Changes, Change{Kind: ch.Kind, Path: ch.Path, RawPath: api.RawPath(ch.Path)})
	}
	if len(changes) == 0 || m.r.DryRun {
		return nil
	}
	message := cmp.Or(m.r.Message, "Changes of "+m.r.From)
	m.res.Commit, err = m.git.Make(ctx, m.r.Branch, tree, m.res.Parent, message)
	m.res.Applied = err == nil
	return err
}

// findBase finds the snapshot with which FROM is compared, and the directory that it was imported from, if known.
func (m *commit) findBase(ctx context.Context) (where string, err error) {
	got, err := m.api.Base(ctx, api.BaseRequest{Access: m.r.Access, Of: []string{m.r.From}})
	if m.r.Base == "" {
		m.base = got.Snapshot.ID
		return got.Path, err
	}
	if err != nil && !errors.Is(err, api.ErrNotFound) {
		return "", err
	}
	o, err := m.api.Show(ctx, api.RefRequest{Access: m.r.Access, Ref: m.r.Base})
	if err != nil {
		return "", err
	}
	if o.Snapshot == nil {
		return "", fmt.Errorf("%w: --base %s: it is no snapshot", api.ErrInvalid, api.Quoted(m.r.Base))
	}
	m.base = o.Snapshot.ID
	return got.Path, nil
}

// keptCommitted is for how long what was committed stays a snapshot.
const keptCommitted = 7 * 24 * time.Hour

// freeze takes a snapshot of a workspace that is to be committed.
func (m *commit) freeze(ctx context.Context) error {
	m.tree = m.r.From
	o, err := m.api.Show(ctx, api.RefRequest{Access: m.r.Access, Ref: m.r.From})
	if err != nil {
		return err
	}
	if o.Snapshot != nil {
		m.tree = o.Snapshot.ID
	}
	if o.Workspace == nil || m.r.DryRun {
		return nil
	}
	s, err := m.api.Snapshot(ctx, api.SnapshotRequest{
		Access: m.r.Access, Workspace: m.r.From, TTL: keptCommitted, Description: "committed to branch " + m.r.Branch,
	})
	m.tree = s.ID
	return err
}
