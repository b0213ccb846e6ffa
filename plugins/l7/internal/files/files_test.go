package files

import "testing"

func TestRoom(t *testing.T) {
	for _, c := range []struct {
		files     uint64
		listeners int
		want      int
	}{{64, 1, 24}, {1024, 1, 384}, {1024, 2, 192}, {1 << 20, 1, 524160}, {0, 1, 1}, {3, 0, 1}} {
		if got := roomIn(c.files, c.listeners); got != c.want {
			t.Errorf("%d files, %d listeners: got %d, want %d", c.files, c.listeners, got, c.want)
		}
	}
}
