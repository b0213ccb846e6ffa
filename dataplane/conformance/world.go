package conformance

import (
	"encoding/binary"
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/fairlead/fairlead/dataplane"
	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
	"github.com/fairlead/fairlead/dataplane/transfer"
)

// namespace holds all services of the suite.
const namespace = "conform"

func key(n int) dataplane.Key {
	return dataplane.Key{Namespace: namespace, Name: fmt.Sprintf("web-%d", n)}
}

// vip is the frontend address of service n.
func vip(n int) []byte { return address(198, 18, n, 80) }

// stand is the address of endpoint e of service n.
func stand(n, e int) []byte { return address(198, 19, n, 8000+e) }

func address(a, b byte, n, port int) []byte {
	return transfer.AppendAddr(nil, netip.AddrPortFrom(netip.AddrFrom4([4]byte{a, b, byte(n >> 8), byte(n)}), uint16(port)))
}

func address6(n, port int) []byte {
	ip := [16]byte{0x20, 0x01, 0x0d, 0xb8}
	binary.BigEndian.PutUint32(ip[12:], uint32(n))
	return transfer.AppendAddr(nil, netip.AddrPortFrom(netip.AddrFrom16(ip), uint16(port)))
}

// service is service n, handle n, with one TCP frontend.
func service(n int, edits ...func(*pb.Service)) *pb.Service {
	s := &pb.Service{
		Handle: uint32(n), Key: transfer.EncodeKey(key(n)),
		Frontends: []*pb.Frontend{{Address: vip(n), Protocol: pb.Protocol_PROTOCOL_TCP, Kind: pb.FrontendKind_FRONTEND_KIND_VIP}},
	}
	for _, edit := range edits {
		edit(s)
	}
	return s
}

// endpoints are these endpoints of service n.
func endpoints(n int, ids ...int) *pb.EndpointGroup {
	g := &pb.EndpointGroup{Service: uint32(n)}
	for _, id := range ids {
		g.Endpoints = append(g.Endpoints, &pb.Endpoint{Id: uint64(id), Address: stand(n, id), Name: fmt.Sprintf("web-%d-%d", n, id), Zone: "rack-17"})
	}
	return g
}

// whole is a change with service n and endpoints 1 to count.
func whole(n, count int) *pb.Change { return add(&pb.Change{}, n, count) }

// several is a change with services 1 to n, two endpoints each.
func several(n int) *pb.Change {
	c := &pb.Change{}
	for i := 1; i <= n; i++ {
		add(c, i, 2)
	}
	return c
}

func add(c *pb.Change, n, count int) *pb.Change {
	ids := make([]int, count)
	for i := range ids {
		ids[i] = i + 1
	}
	c.Services = append(c.Services, service(n))
	c.Endpoints = append(c.Endpoints, endpoints(n, ids...))
	return c
}

// inOrder yields cases in the order of their names, so that runs are alike.
func inOrder[T any](cases map[string]T) iter.Seq2[string, T] {
	return func(yield func(string, T) bool) {
		for _, name := range slices.Sorted(maps.Keys(cases)) {
			if !yield(name, cases[name]) {
				return
			}
		}
	}
}

// large yields the whole of a large world in messages of at most
// transfer.MaxChangeBytes, and how many bytes that is.
func large(services, perService int) (changes []*pb.Change, bytes int) {
	c, size := &pb.Change{}, 0
	for n := 1; n <= services; n++ {
		one := whole(n, perService)
		if b := proto.Size(one); size+b > transfer.MaxChangeBytes {
			changes, c, size = append(changes, c), one, b
		} else {
			proto.Merge(c, one)
			size += b
		}
		bytes += proto.Size(one)
	}
	return append(changes, c), bytes
}
