// Package transfer carries snapshots over the contract: it turns a snapshot or
// a delta into messages of bounded size (Encoder, for hosts), and messages
// back into a snapshot and a delta that a provider can rely on (Assembler, for
// the SDK). It holds the rules of sessions, generations and completeness, and
// does no I/O. A Change stays bytes on both sides, as far as that goes: Encoder
// makes it so, and Codec leaves it so.
package transfer
