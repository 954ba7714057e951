package layerstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"snapfs/layers"
	"snapfs/sandbox/internal/catalog"
	"snapfs/squashfs"
)

// A layer that cannot be stored must not keep the others from being stored, and must not end the daemon at every start.
// What lies on it waits, the rest goes on. After an error it is tried once more, less and less often. When the daemon
// has ended ParkAfter times while it was being stored, squashfs cannot hold it, or it stands on a directory in which
// something may not be read, it is parked: it stays a directory, which serves everything, until a call waits for it to be
// stored, or asks for it to be tried (Retry).

// ParkAfter is how often the daemon may end while it stores a layer before that is parked.
const ParkAfter = 3

// Waits between attempts to store a layer after an error.
const (
	firstRetry = time.Second
	lastRetry  = 5 * time.Minute
	// lastLook is lastRetry for a directory that is not there: to look costs nothing.
	lastLook = 10 * time.Second
)

// Absent is the error of an import whose directory is not there.
type Absent struct{ Err error }

// Error implements error.
func (a *Absent) Error() string { return a.Err.Error() }

// Unwrap is for errors.Is.
func (a *Absent) Unwrap() error { return a.Err }

// trouble is why a layer is not stored.
type trouble struct {
	attempts int       // that ended in an error, since somebody asked for one
	until    time.Time // not before; zero: parked
	why      string    // the last one failed
}

// Resume queues a layer that the records call sealed when the home is opened.
func (s *Storer) Resume(ctx context.Context, layer string) error {
	a, err := s.Catalog.Attempts(ctx, layer)
	if err != nil {
		return err
	}
	why := a.Parked
	if why == "" && a.Begun >= ParkAfter {
		why = fmt.Sprintf("the daemon ended %d times while it was storing it", a.Begun)
	}
	if why != "" {
		t := &trouble{why: why}
		if r := s.Catalog.Layer(layer); r != nil && r.Source != nil && a.Parked == "" {
			t.until = time.Now().Add(lastRetry) // the longer an import takes, the more often it is interrupted
		}
		s.Logger.Warn("a layer is not stored; it stays a directory until somebody waits for it", "layer", layer, "why", why,
			"again", t.until)
		s.mu.Lock()
		s.troubles[layer] = t
		s.mu.Unlock()
	}
	s.Add(layer)
	return nil
}

// Retry has a layer tried at once that could not be stored.
func (s *Storer) Retry(layer string) {
	s.mu.Lock()
	s.retryLocked(layer)
	s.mu.Unlock()
	s.kick()
}

// retryLocked has the next attempt made at once. What is known of the last one stays until that has ended.
func (s *Storer) retryLocked(layer string) {
	if t := s.troubles[layer]; t != nil {
		t.attempts, t.until = 0, time.Now()
	}
}

// begin records that a layer is about to be stored.
func (s *Storer) begin(ctx context.Context, layer string) error {
	a, err := s.Catalog.Attempts(ctx, layer)
	if err != nil {
		return err
	}
	if a.Parked != "" || a.Begun >= ParkAfter {
		a = catalog.Attempts{} // a call waits for it
	}
	a.Begun++
	return s.Catalog.PutAttempts(ctx, layer, a)
}

// interrupted takes back what begin recorded: the home is being closed.
func (s *Storer) interrupted(layer string) {
	if s.Catalog.Layer(layer) == nil {
		return
	}
	if err := s.Catalog.PutAttempts(context.Background(), layer, catalog.Attempts{}); err != nil {
		s.Logger.Warn("an attempt to store a layer counts as failed", "layer", layer, "error", err)
	}
}

// failed puts a layer back into the queue after an error. It reports whether that is the same as the last time, and nobody
// has asked for another attempt since.
func (s *Storer) failed(ctx context.Context, layer string, cause error) (again bool) {
	var a catalog.Attempts
	var unreadable *layers.Unreadable
	parked := errors.Is(cause, squashfs.ErrLimit) || errors.As(cause, &unreadable)
	if parked {
		a.Parked = cause.Error()
	}
	if err := s.Catalog.PutAttempts(ctx, layer, a); err != nil {
		s.Logger.Warn("an attempt to store a layer counts as failed", "layer", layer, "error", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.troubles[layer]
	if t == nil {
		t = &trouble{}
		s.troubles[layer] = t
	}
	again = t.attempts > 0 && t.why == cause.Error()
	t.why = cause.Error()
	if t.until = (time.Time{}); !parked {
		most := lastRetry
		if absent := (*Absent)(nil); errors.As(cause, &absent) {
			most = lastLook
		}
		t.until = time.Now().Add(min(firstRetry<<min(t.attempts, 16), most))
	}
	t.attempts++
	s.queue = append(s.queue, layer)
	return again
}

// waitsLocked reports whether a layer, or one that it lies on, is not to be tried yet.
func (s *Storer) waitsLocked(layer string, now time.Time) bool {
	if len(s.troubles) == 0 {
		return false
	}
	sealed, err := s.Catalog.SealedOf(layer)
	if err != nil {
		return false // deleted meanwhile, or for store to report
	}
	return slices.ContainsFunc(sealed, func(r *catalog.Layer) bool {
		t := s.troubles[r.ID]
		return t != nil && (t.until.IsZero() || now.Before(t.until))
	})
}

// pause is how long to wait until a layer is tried once more; false if none is to be.
func (s *Storer) pause() (time.Duration, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var first time.Time
	for layer, t := range s.troubles {
		if s.Catalog.Layer(layer) == nil {
			delete(s.troubles, layer)
		} else if !t.until.IsZero() && (first.IsZero() || t.until.Before(first)) {
			first = t.until
		}
	}
	return max(time.Until(first), time.Millisecond), !first.IsZero()
}

// ProblemOf is Problem of the topmost layer that has one, of those from a layer down, or "".
func (s *Storer) ProblemOf(top string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.troubles) == 0 {
		return ""
	}
	sealed, err := s.Catalog.SealedOf(top)
	if err != nil {
		return "" // Check reports it
	}
	for _, l := range sealed {
		if why := s.problemLocked(l.ID); why != "" {
			return why
		}
	}
	return ""
}

// Problem is why a sealed layer is not going to be stored, or "".
func (s *Storer) Problem(layer string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.problemLocked(layer)
}

func (s *Storer) problemLocked(layer string) string {
	if t := s.troubles[layer]; t != nil && t.until.IsZero() {
		return t.why
	}
	return ""
}
