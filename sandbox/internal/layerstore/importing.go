package layerstore

import (
	"snapfs/sandbox/api"
)

// imported is how far an import has come, for a call that waits for it.
func (n *storing) imported() api.Progress {
	p := api.Progress{Stage: api.StageImport, Files: n.files.Load(), Bytes: n.bytes.Load(), Total: -1}
	if all := n.expected.Load(); all >= 0 {
		p.Bytes, p.Total, p.Files, p.Unit = p.Files, max(all, p.Files), 0, "files"
	}
	return p
}

// Importing is how far the import of a layer has come.
type Importing struct {
	Running             bool
	Files, Bytes, Total int64  // of the present attempt; Total, of files, is -1 if it is not known
	Problem             string // why the last attempt failed
}

// Importing tells how far the import of a layer has come.
func (s *Storer) Importing(layer string) Importing {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := Importing{Total: -1}
	if now := s.now[layer]; now != nil {
		i.Running, i.Files, i.Bytes, i.Total = true, now.files.Load(), now.bytes.Load(), now.expected.Load()
	}
	if t := s.troubles[layer]; t != nil {
		i.Problem = t.why
	}
	return i
}
