package dockerplugin

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"snapfs/internal/hosttree"
	"snapfs/sandbox/api"
)

// record is a volume as it is kept in the home. Immutable: changes make another one.
type record struct {
	Version   int               `json:"version"` // recordVersion
	Name      string            `json:"name"`
	Workspace string            `json:"workspace"`
	Session   string            `json:"session,omitempty"`
	Options   map[string]string `json:"options,omitempty"` // as they were given
	CreatedAt time.Time         `json:"created_at"`
	// Mark is in the label of the workspace that was made with the volume, and is destroyed with it; "": it was there
	// before.
	Mark   string `json:"mark,omitempty"`
	Making bool   `json:"making,omitempty"` // the workspace is not known to be there

	// At is where the workspace is mounted for the uses, and Own says that it was mounted for them.
	At  string `json:"at,omitempty"`
	Own bool   `json:"own,omitempty"`
	// Uses are the ids that engines have given to uses, in the boot of the machine that Boot names.
	Boot string `json:"boot,omitempty"`
	Uses []use  `json:"uses,omitempty"`
}

const recordVersion = 1

// with is a copy that a function has changed.
func (r *record) with(change func(*record)) *record {
	next := *r
	next.Uses = slices.Clone(r.Uses)
	change(&next)
	return &next
}

// access is that of the calls for a volume.
func (r *record) access() api.Access { return api.Access{Session: r.Session} }

// store keeps the records of a home in files.
type store struct {
	dir  string // of the plugin
	boot string
}

// bootID tells this boot of the machine from others.
func bootID() (string, error) {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(text)), err
}

// make makes the directories of the plugin in a home.
func (s *store) make(home string) error {
	if err := os.MkdirAll(s.volumes(), 0o700); err != nil {
		return err
	}
	return errors.Join(hosttree.SyncDir(s.dir), hosttree.SyncDir(home))
}

func (s *store) volumes() string { return filepath.Join(s.dir, "volumes") }

const recordSuffix = ".json"

func (s *store) path(name string) string { return filepath.Join(s.volumes(), name+recordSuffix) }

// loaded is a record as it was read, or why it is of no use.
type loaded struct {
	record  *record
	problem error
}

// load reads all records, by the names of the volumes.
func (s *store) load() (map[string]loaded, error) {
	entries, err := os.ReadDir(s.volumes())
	if err != nil {
		return nil, err
	}
	all := map[string]loaded{}
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), recordSuffix)
		if !ok || validName(name) != nil {
			continue // what a write has left that did not end
		}
		r, err := s.read(name)
		all[name] = loaded{r, err}
	}
	return all, nil
}

// read reads the record of a volume. Uses of an earlier boot are left out.
func (s *store) read(name string) (*record, error) {
	text, err := os.ReadFile(s.path(name))
	if err != nil {
		return nil, fmt.Errorf("volume %s: %w", name, err)
	}
	r := &record{}
	if err := json.Unmarshal(text, r); err != nil || r.Name != name || r.Workspace == "" {
		return nil, fmt.Errorf("%w: volume %s: %s is damaged: restore it, or remove it to give the volume up",
			api.ErrCorrupt, name, s.path(name))
	}
	if r.Version != recordVersion {
		return nil, fmt.Errorf("%w: volume %s: %s is of a later version of snapfs", api.ErrInvalid, name, s.path(name))
	}
	if r.Boot != s.boot {
		r.Boot, r.Uses = "", nil
	}
	for i := range r.Uses {
		r.Uses[i].earlier = true
	}
	return r, nil
}

// put writes a record durably.
func (s *store) put(r *record) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return hosttree.WriteFile(s.path(r.Name), append(text, '\n'))
}

// drop removes a record durably.
func (s *store) drop(name string) error {
	err := os.Remove(s.path(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return errors.Join(err, hosttree.SyncDir(s.volumes()))
}

// remembered is what plugin.json has.
type remembered struct {
	Socket string `json:"socket"`
}

func socketFile(home string) string { return filepath.Join(home, dirName, "plugin.json") }

// dirName is the directory of the plugin in a home.
const dirName = "docker"

// Remembered is the path of the socket at which the last daemon of a home served volumes; "" for none.
func Remembered(home string) (string, error) {
	text, err := os.ReadFile(socketFile(home))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	var r remembered
	if err := json.Unmarshal(text, &r); err != nil || !filepath.IsAbs(r.Socket) {
		return "", fmt.Errorf("%w: %s is damaged: remove it, and say --docker-plugin", api.ErrCorrupt, socketFile(home))
	}
	return r.Socket, nil
}

// Remember notes the path of the socket for the next daemon of a home; "" for none.
func Remember(home, socket string) error {
	if socket == "" {
		err := os.Remove(socketFile(home))
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return errors.Join(err, hosttree.SyncDir(filepath.Dir(socketFile(home))))
	}
	if before, err := Remembered(home); err == nil && before == socket {
		return nil
	}
	text, err := json.Marshal(remembered{Socket: socket})
	if err != nil {
		return err
	}
	return hosttree.WriteFile(socketFile(home), append(text, '\n'))
}
