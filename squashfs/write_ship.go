package squashfs

import (
	"context"
	"errors"
	"io"
)

// WriteShip writes a compressed image of src for other tools, deterministic for equal options (Workers aside).
func WriteShip(ctx context.Context, w io.WriterAt, src Source, opts ShipOptions) (Info, error) {
	return Info{}, errors.ErrUnsupported
}
