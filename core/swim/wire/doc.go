// Package wire is the codec of gossip: fixed binary, varints, no reflection,
// no allocation to encode or decode a packet. It is pure.
//
// A packet is a datagram, or one frame of a stream (there preceded by its
// length, four bytes, big endian):
//
//	offset  bytes   what
//	0       1       format version, 1
//	1       8       sender's node id, not 0
//	9       1–7     sender's epoch, varint
//	…       1–7     sender's incarnation, varint
//	…               messages: type (1), length of body (varint), body
//	end-8   8       xxHash64 of all before, seeded by the cluster
//
// A packet has at most MaxFrameBytes, checksum included. The seed is the first
// eight bytes of SHA-256("fairlead gossip v1", a zero byte, cluster name). The
// checksum finds damage and packets of other clusters; it is no defence
// against anybody who knows the cluster's name. AEAD takes its place in
// Codec.Seal and Codec.Open once it exists, and nowhere else.
//
// # Messages
//
// Numbers are append only. A reader skips types that it does not know, flags
// that it does not know, and bytes behind the fields that it knows, so later
// versions may add all three; record and part have no bytes behind, because
// their last field takes all that is left.
//
//	1 ping      seq (4) target id (8)                         are you there, and are you this id?
//	2 ack       seq (4)                                       yes; the sender id says who answers
//	3 ping-req  seq (4) target id (8) wait ms (varint)        ping it for me and answer within wait
//	4 nack      seq (4) reason (1)                            I tried for you: 0 no answer | 1 I do not know it
//	5 claim     subject id (8) epoch, incarnation (varints) state (1) flags (1)
//	            accusers: count (1), ids (8 each)             if flag 1
//	            name: length (1), bytes; address              if flag 2
//	            hold ms (varint)                              if flag 4: alive, and off for a planned restart of so long
//	6 record    owner id (8) epoch, seq (varints) payload     state record, opaque here
//	7 exchange  flags (1): 1 = answer, 2 = end                first message of each frame of a full exchange; the end
//	                                                          mark is the last message of the last frame
//	8 pull      hash (16)                                     send me this definition
//	9 part      hash (16) total, offset (varints) bytes       a piece of a definition
//
// The states are those of model.State: 0 alive, 1 suspect, 2 dead, 3 left. An
// address is its length (4 or 16), its bytes and a port of two bytes; a mapped
// IPv4 address reads as IPv4. A hash is the first 16 bytes of the definition's
// SHA-256. All fixed-width integers are big endian; varints are those of
// protobuf, written in their shortest form, and may be read padded.
//
// # Caps
//
// Every length is checked against a cap before anything is done with it, and
// one field beyond its cap refuses the whole packet:
//
//	ids                                  not 0
//	epochs, incarnations, record seq     ≤ MaxWord
//	length of a body                     ≤ MaxFrameBytes, and what is left
//	wait ms                              ≤ MaxWaitMillis
//	state                                ≤ 3
//	accusers                             ≤ MaxAccusers, distinct
//	name                                 ≤ MaxNameBytes, printable ASCII, no space
//	hold ms                              ≤ MaxHoldMillis; what is honoured of it is up to package swim
//	payload of a record                  ≤ MaxRecordBytes
//	bytes of a part                      ≤ MaxPartBytes
//	total                                ≤ MaxDefinition
//	offset                               ≤ total less the bytes of the part
package wire
