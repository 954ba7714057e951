package holder

import (
	"context"
	"errors"
)

// Ask asks the holder of a home what it does. It needs no role. Errors: ErrNone if there is no holder, ErrGone
// for one that does not answer within five seconds, or before the deadline of ctx.
func Ask(ctx context.Context, home string) (Status, error) {
	return ask(ctx, home, &request{Op: opStatus})
}

// AskStart has the holder start a daemon at once if there is none.
func AskStart(ctx context.Context, home string) (Status, error) {
	return ask(ctx, home, &request{Op: opStart})
}

// Drop ends the holder with all that it keeps, and a daemon that has not come to serve yet. ErrConflict if one serves.
func Drop(home string) error {
	_, err := ask(context.Background(), home, &request{Op: opDrop})
	return err
}

func ask(ctx context.Context, home string, what *request) (Status, error) {
	limited, cancel := context.WithTimeout(ctx, answerWait)
	defer cancel()
	c, err := dial(limited, home)
	if errors.Is(err, errEnded) {
		err = ErrNone
	}
	if err != nil {
		return Status{}, err
	}
	defer func() { _ = c.close() }() // only its answer matters
	r, err := c.call(limited, what)
	if err != nil || r.Status == nil {
		return Status{}, err
	}
	return *r.Status, nil
}
