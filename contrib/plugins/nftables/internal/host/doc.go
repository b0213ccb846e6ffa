// Package host is what the provider needs of a host beside nftables: routes to
// service addresses, connection tracking, and settings of the kernel.
package host
