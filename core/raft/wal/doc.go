// Package wal is the log of Raft on disk: batches of records, of which each is
// whole or not there after a crash, and none is lost that Append returned for.
//
//	SEQ-INDEX.wal   64 MiB, preallocated with zeros
//	┌──────┬──────┬───────┬─────┬──────┬───────┬───────┬────────┐
//	│ meta │ hard │ entry │ end │ hard │ entry │ end   │ 0 0 0 …│
//	└──────┴──────┴───────┴─────┴──────┴───────┴───────┴────────┘
//	 the segment's head          one batch: one write, one fdatasync
//
// # Frames
//
// A record is in a frame: length of the payload (4 bytes, little endian), kind
// (1), three zeros, CRC-32C (4), four more bytes, the payload, and zeros up to a
// multiple of 8. The CRC covers the CRC of the frame before, the head's first
// eight bytes and the payload, so that a frame that was left from elsewhere does
// not fit in. The four bytes are the CRC-32C of the payload alone in the frame
// that ends a batch, so that it is found whatever is before it, and zeros
// otherwise. A length of 0 where a frame could begin is the end of the segment.
//
// # Crashes
//
// A batch is written only after the one before is on disk, and a segment is begun
// only after the one before is. So a crash can harm nothing but the last batch of
// the last segment: it is then cut off, if it looks like a write that was cut
// short: its end is missing, or a sector of it is still the zeros of the
// preallocation. Anything else is damage: Open refuses with a *DamageError that
// names file and offset. What was promised is never dropped silently.
//
// # Errors
//
// After a write or fdatasync that failed, nobody knows what is on disk. The log
// then refuses everything: the process has to start again from what it finds.
package wal
