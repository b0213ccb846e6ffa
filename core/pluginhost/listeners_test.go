package pluginhost

import (
	"slices"
	"testing"
)

// TestListening reads a table as Linux 6.18 writes it: of all sockets only those that
// listen, are the process's own, and have a path.
func TestListening(t *testing.T) {
	const table = `Num       RefCount Protocol Flags    Type St Inode Path
0000000000000000: 00000002 00000000 00010000 0001 01 68214 /run/fairlead/api.sock
0000000000000000: 00000002 00000000 00010000 0001 01   214 /home/a b/run  1/fairlead.sock
0000000000000000: 00000003 00000000 00000000 0001 03 68215 /run/fairlead/api.sock
0000000000000000: 00000002 00000000 00010000 0001 01 68216 /run/another.sock
0000000000000000: 00000002 00000000 00010000 0001 01 68217 @abstract/name
0000000000000000: 00000003 00000000 00000000 0001 03 68218
`
	own := map[string]bool{"68214": true, "214": true, "68215": true, "68217": true, "68218": true}
	want := []string{"/run/fairlead/api.sock", "/home/a b/run  1/fairlead.sock"}
	if got := listening(table, own); !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
}
