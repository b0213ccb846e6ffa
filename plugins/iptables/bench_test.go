package iptables

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/plugins/iptables/internal/host"
)

// crowd is n services with VIPs of their own and k endpoints each.
func crowd(n, k int) []*dataplane.Service {
	out := make([]*dataplane.Service, n)
	for i := range out {
		addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 200, byte(i >> 8), byte(i)}), 80)
		var endpoints []netip.AddrPort
		for e := range k {
			endpoints = append(endpoints, netip.AddrPortFrom(netip.AddrFrom4([4]byte{172, 16 + byte(e), byte(i >> 8), byte(i)}), 8080))
		}
		out[i] = service(fmt.Sprintf("crowd%05d", i), vip(addr.String(), dataplane.TCP), endpoints...)
	}
	return out
}

// BenchmarkApply times what a host waits for: all services at once, one endpoint
// changed, and a comparison with the tables.
func BenchmarkApply(b *testing.B) {
	for _, v := range []host.Variant{host.Legacy, host.NFT} {
		for _, n := range []int{100, 1_000, 10_000} {
			b.Run(fmt.Sprintf("%s/%d", v, n), func(b *testing.B) {
				w := newWorld(b, v)
				services := crowd(n, 5)
				begun := time.Now()
				w.good(w.apply(services...))
				full := time.Since(begun)
				one := crowd(n, 4)
				five := services[n/2]
				b.ResetTimer()
				for i := range b.N {
					services[n/2] = one[n/2]
					if i%2 == 1 {
						services[n/2] = five
					}
					w.good(w.apply(services...))
				}
				b.StopTimer()
				b.ReportMetric(float64(full.Milliseconds()), "ms-full")
				b.ReportMetric(float64(b.Elapsed().Milliseconds())/float64(b.N), "ms-change")
				begun = time.Now()
				w.restart()
				b.ReportMetric(float64(time.Since(begun).Milliseconds()), "ms-restart")
			})
		}
	}
}
