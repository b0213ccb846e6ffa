package transfer

import "bytes"

// Resume tells a new assembler what a former process has applied. From then on
// the host may say that this generation is unchanged, and older sessions are
// refused; but changes have nothing to start from, so anything else begins with
// a snapshot, which the provider is given as if nothing were there.
func (a *Assembler) Resume(was Applied) {
	was.Digest = bytes.Clone(was.Digest)
	a.applied, a.resumed = was, true
}

// Forget tells the assembler that nothing is applied any more. The session and
// those before it stay known.
func (a *Assembler) Forget() {
	fresh := NewAssembler(a.limits)
	fresh.fenced = a.fenced
	fresh.applied.Session = a.applied.Session
	*a = *fresh
}

// Resumed reports whether what is applied is the work of a former process, so
// that Given does not tell.
func (a *Assembler) Resumed() bool { return a.resumed }
