package host

import (
	"encoding/binary"
	"iter"
	"syscall"
)

// attributes yields what a netlink message holds, by kind. Lengths and kinds are in
// the order of this machine, numbers of netfilter in that of the network.
func attributes(b []byte) iter.Seq2[uint16, []byte] {
	const nested, foreign = syscall.NLA_F_NESTED, syscall.NLA_F_NET_BYTEORDER
	return func(yield func(uint16, []byte) bool) {
		for len(b) >= syscall.SizeofNlAttr {
			size := int(binary.NativeEndian.Uint16(b))
			if size < syscall.SizeofNlAttr || size > len(b) {
				return
			}
			if !yield(binary.NativeEndian.Uint16(b[2:])&^(nested|foreign), b[syscall.SizeofNlAttr:size]) {
				return
			}
			b = b[min(len(b), (size+syscall.NLA_ALIGNTO-1)&^(syscall.NLA_ALIGNTO-1)):]
		}
	}
}

// bigEndian reads a number, 0 if there are not just its bytes.
func bigEndian[T uint16 | uint32](b []byte) (n T) {
	if len(b) != binary.Size(n) {
		return 0
	}
	for _, one := range b {
		n = n<<8 | T(one)
	}
	return n
}
