package layers

import (
	"log/slog"

	"snapfs/internal/lockorder"
)

// lostData remembers which damaged files have been logged.
type lostData struct {
	mu   lockorder.Mutex[lockorder.LostData]
	seen map[string]bool // guarded by mu
}

// maxLost bounds what is remembered and logged.
const maxLost = 1000

func (l *lostData) log(log *slog.Logger, err error, at *part, name string) {
	path := at.path()
	if name != "" {
		path += "/" + name
	}
	key := at.layer.lower.key + path
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.seen[key] || len(l.seen) >= maxLost {
		return
	}
	if l.seen == nil {
		l.seen = map[string]bool{}
	}
	l.seen[key] = true
	log.Error("layer is damaged", "layer", at.layer.lower.key, "path", path, "error", err)
}
