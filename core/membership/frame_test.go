package membership

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"runtime"
	"testing"
	"testing/iotest"

	"github.com/fairlead/fairlead/core/swim/wire"
)

func TestFramesRoundTrip(t *testing.T) {
	frames := [][]byte{{1}, bytes.Repeat([]byte{2}, 4096), bytes.Repeat([]byte{3}, wire.MaxFrameBytes), {4, 5}}
	for name, wrap := range map[string]func(io.Reader) io.Reader{
		"whole": func(r io.Reader) io.Reader { return r }, "byte by byte": iotest.OneByteReader, "halves": iotest.HalfReader,
	} {
		var stream bytes.Buffer
		if err := writeFrames(&stream, frames); err != nil {
			t.Fatal(err)
		}
		r, buf := wrap(&stream), []byte(nil)
		for i, want := range frames {
			var err error
			if buf, err = readFrame(r, buf); err != nil || !bytes.Equal(buf, want) {
				t.Fatalf("%s: frame %d: %d bytes, %v; want %d bytes", name, i, len(buf), err, len(want))
			}
		}
		if _, err := readFrame(r, buf); !errors.Is(err, io.EOF) {
			t.Errorf("%s: after the last frame: %v, want io.EOF", name, err)
		}
	}
}

func TestFrameLengthIsCheckedBeforeMemoryIsTaken(t *testing.T) {
	for _, length := range []uint32{0, wire.MaxFrameBytes + 1, 1 << 31, 1<<32 - 1} {
		buf, err := readFrame(bytes.NewReader(append(binary.BigEndian.AppendUint32(nil, length), 1, 2, 3)), nil)
		if !errors.Is(err, errFrameLength) {
			t.Errorf("length %d: %v, want errFrameLength", length, err)
		}
		if cap(buf) > 64 {
			t.Errorf("length %d: took %d bytes", length, cap(buf))
		}
	}
	if err := writeFrames(io.Discard, [][]byte{make([]byte, wire.MaxFrameBytes+1)}); !errors.Is(err, errFrameLength) {
		t.Errorf("writing above the cap: %v, want errFrameLength", err)
	}
}

func TestAnnouncedBytesThatNeverComeCostNothing(t *testing.T) {
	prefix := append(binary.BigEndian.AppendUint32(nil, wire.MaxFrameBytes), 1, 2, 3)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	const rounds = 1000
	for range rounds {
		if _, err := readFrame(bytes.NewReader(prefix), nil); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("cut frame: %v, want io.ErrUnexpectedEOF", err)
		}
	}
	runtime.ReadMemStats(&after)
	if each := (after.TotalAlloc - before.TotalAlloc) / rounds; each > 1024 {
		t.Errorf("%d bytes allocated for each announced frame, want at most 1024", each)
	}
}
