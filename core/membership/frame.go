package membership

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/fairlead/fairlead/core/swim/wire"
)

// On a stream each packet is preceded by its length: four bytes, big endian.
const framePrefix = 4

// errFrameLength reports a length prefix that no honest peer sends.
var errFrameLength = errors.New("membership: frame length out of range")

// readFrame reads one frame into buf, which it grows up to wire.MaxFrameBytes
// only as bytes arrive, so a length without its bytes costs nothing. The
// result shares buf's memory. A stream that ends between frames is io.EOF.
func readFrame(r io.Reader, buf []byte) ([]byte, error) {
	buf = slices.Grow(buf[:0], framePrefix)
	if _, err := io.ReadFull(r, buf[:framePrefix]); err != nil {
		return buf, err
	}
	length := int64(binary.BigEndian.Uint32(buf[:framePrefix]))
	if length == 0 || length > wire.MaxFrameBytes {
		return buf, fmt.Errorf("%w: %d bytes, want 1 to %d", errFrameLength, length, wire.MaxFrameBytes)
	}
	for int64(len(buf)) < length {
		buf = slices.Grow(buf, 1)
		n := min(int64(cap(buf)), length)
		have := len(buf)
		m, err := io.ReadFull(r, buf[have:n])
		buf = buf[:have+m]
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return buf, err
		}
	}
	return buf, nil
}

// writeFrames writes each frame behind its length, in one write per frame.
func writeFrames(w io.Writer, frames [][]byte) error {
	var buf []byte
	for _, f := range frames {
		if len(f) == 0 || len(f) > wire.MaxFrameBytes {
			return fmt.Errorf("%w: %d bytes to send, want 1 to %d", errFrameLength, len(f), wire.MaxFrameBytes)
		}
		buf = binary.BigEndian.AppendUint32(buf[:0], uint32(len(f)))
		buf = append(buf, f...)
		if _, err := w.Write(buf); err != nil {
			return err
		}
	}
	return nil
}
