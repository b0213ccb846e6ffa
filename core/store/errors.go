package store

import "errors"

// What a command or a read can be refused with. They are part of a result, so
// that each server refuses the same; wire numbers are in resultcodec.go.
var (
	ErrCompacted      = errors.New("store: the revision is compacted: read at a newer one")
	ErrFutureRevision = errors.New("store: the revision is still to come")
	ErrEmptyKey       = errors.New("store: the key is empty")
	ErrKeyNotFound    = errors.New("store: the key is not there, so nothing of it can be kept")
	ErrValueProvided  = errors.New("store: a value is given although the old one is to be kept")
	ErrLeaseProvided  = errors.New("store: a lease is given although the old one is to be kept")
	ErrDuplicateKey   = errors.New("store: the transaction writes a key twice")
	ErrTooManyOps     = errors.New("store: the transaction has too many operations")
	ErrTooLarge       = errors.New("store: the request is too large")
	ErrLeaseNotFound  = errors.New("store: the lease is not there: it ended or never was")
	ErrLeaseExists    = errors.New("store: a lease of that id is there already")
	ErrLeaseTTL       = errors.New("store: the time to live of the lease is out of range")
	ErrNoSpace        = errors.New("store: the keyspace is full: compact it or delete keys, then disarm the alarm")
	ErrFenced         = errors.New("store: another leader rules since this was proposed")
	ErrClientUnknown  = errors.New("store: the client is not registered, or was not heard of for so long that nobody knows whether this was applied")
	ErrClientBusy     = errors.New("store: the client has too many commands on the way whose results it did not say to have")
	ErrResultGone     = errors.New("store: this was applied; its result is no longer kept")
	ErrInvalid        = errors.New("store: the request makes no sense")

	// ErrDamaged says that bytes are not what this package wrote.
	ErrDamaged = errors.New("store: damaged")
)
