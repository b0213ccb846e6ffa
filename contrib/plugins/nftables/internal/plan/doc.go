// Package plan works out what nftables has to hold for a service: for each
// address that is captured, the endpoints behind it and how often each is chosen.
// It is pure.
package plan
