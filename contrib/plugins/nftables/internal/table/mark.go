package table

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/fairlead/fairlead/dataplane"
)

// Mark is what a table says of itself.
type Mark struct {
	Instance string // its first bytes, for people
	State    dataplane.State
}

// layout is the version of what is in a table. Another one is made anew.
const layout = "layout 1"

// keys of the set about
const (
	aboutLayout = iota
	aboutInstance
	aboutState
)

// render is the elements of a mark; without a generation it does not say one.
func (e elements) renderMark(m Mark) {
	put := func(key uint32, comment string) {
		e.put(setID{kind: about}, binary.NativeEndian.AppendUint32(nil, key), element{comment: comment})
	}
	put(aboutLayout, layout)
	put(aboutInstance, "instance "+m.Instance[:min(len(m.Instance), 200)])
	if s := m.State; s.Generation != 0 {
		put(aboutState, fmt.Sprintf("agent %s boot %d generation %d digest %s complete %t",
			base64.RawURLEncoding.EncodeToString([]byte(s.Session.AgentID)), s.Session.BootEpoch, s.Generation,
			"."+base64.RawURLEncoding.EncodeToString(s.Digest), s.Complete))
	}
}

// decodeMark reads a mark back; false if the table is of another layout.
func decodeMark(raw elements) (Mark, bool) {
	said := func(key uint32) string {
		return raw[setID{kind: about}][string(binary.NativeEndian.AppendUint32(nil, key))].comment
	}
	m := Mark{Instance: strings.TrimPrefix(said(aboutInstance), "instance ")}
	var s dataplane.State
	var agent, digest string
	_, err := fmt.Sscanf(said(aboutState), "agent %s boot %d generation %d digest %s complete %t", &agent, &s.Session.BootEpoch, &s.Generation, &digest, &s.Complete)
	id, bad := base64.RawURLEncoding.DecodeString(agent)
	sum, worse := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(digest, "."))
	if err == nil && bad == nil && worse == nil {
		s.Session.AgentID, s.Digest = string(id), sum
		m.State = s
	}
	return m, said(aboutLayout) == layout
}
