// Package host is what the iptables data plane asks of the system: the binaries of
// one variant, run with a bound; the lock that they share; a fingerprint of the
// tables that costs no process; routes to VIPs; conntrack; sysctls, which it only
// reads. It decides nothing: package iptables does.
//
// All functions work in the network namespace of the calling thread.
package host
