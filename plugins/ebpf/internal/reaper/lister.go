package reaper

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Lister ends connections by sock_diag(7): it asks for all sockets together with
// their storage, and then for the end of each that is doomed.
type Lister struct{ sockets *ebpf.Map }

// NewLister fails on kernels that do not list storage (5.7), or do not destroy
// sockets (CONFIG_INET_DIAG_DESTROY).
func NewLister(sockets *ebpf.Map) (*Lister, error) {
	l := &Lister{sockets: sockets}
	if _, err := l.list(unix.AF_INET, unix.IPPROTO_TCP); err != nil {
		return nil, fmt.Errorf("reaper: list sockets: %w", err)
	}
	// Nobody has this socket: a kernel that can destroy says so.
	err := l.destroy(request(unix.AF_INET, unix.IPPROTO_TCP, 0, make([]byte, sockIDBytes)))
	if errors.Is(err, unix.EOPNOTSUPP) {
		return nil, fmt.Errorf("reaper: destroy sockets: %w", err)
	}
	return l, nil
}

// Close does nothing: a Lister holds nothing.
func (l *Lister) Close() {}

// Pass implements Reaper.
func (l *Lister) Pass(list []Doom) (ended int, err error) {
	doomed := make(map[Doom]time.Duration, len(list)) // by service and endpoint
	for _, d := range list {
		k := Doom{Service: d.Service, Endpoint: d.Endpoint}
		if old, there := doomed[k]; !there || d.Silent < old {
			doomed[k] = d.Silent
		}
	}
	err = everywhere(func() error {
		n, err := l.here(doomed)
		ended += n
		return err
	})
	if err != nil {
		err = fmt.Errorf("reaper: %w", err)
	}
	return ended, err
}

// here ends connections in this thread's network namespace.
func (l *Lister) here(doomed map[Doom]time.Duration) (ended int, err error) {
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		for _, proto := range []uint8{unix.IPPROTO_TCP, unix.IPPROTO_UDP} {
			found, e := l.list(family, proto)
			err = errors.Join(err, e)
			for _, s := range found {
				silent, is := doomed[Doom{Service: s.service, Endpoint: s.endpoint}]
				if !is || s.heard < silent {
					continue
				}
				switch e := l.destroy(request(family, proto, 0, s.id)); {
				case e == nil:
					ended++
				case !errors.Is(e, unix.ENOENT): // it ended by itself
					err = errors.Join(err, e)
				}
			}
		}
	}
	return ended, err
}

// socket is one that the data path led somewhere.
type socket struct {
	id       []byte // as the kernel names it, cookie included
	service  uint32
	endpoint uint64
	heard    time.Duration // since the last segment; very long if nothing says
}

// Sizes and numbers of linux/inet_diag.h and linux/sock_diag.h.
const (
	sockIDBytes  = 48
	requestBytes = 8 + sockIDBytes
	answerBytes  = 4 + sockIDBytes + 20

	requestStorages = 2 // INET_DIAG_REQ_SK_BPF_STORAGES
	requestMapFD    = 1 // SK_DIAG_BPF_STORAGE_REQ_MAP_FD
	answerInfo      = 2 // INET_DIAG_INFO
	answerStorages  = 20
	oneStorage      = 1 // SK_DIAG_BPF_STORAGE
	storageValue    = 3 // SK_DIAG_BPF_STORAGE_MAP_VALUE

	lastDataAt = 52 // tcpi_last_data_recv, in ms
	lastAckAt  = 56 // tcpi_last_ack_recv, in ms
)

// request is an inet_diag_req_v2 about sockets in any state.
func request(family, proto, extensions uint8, id []byte) []byte {
	b := []byte{family, proto, extensions, 0}
	b = binary.NativeEndian.AppendUint32(b, ^uint32(0))
	return append(b, id...)
}

func attribute(kind uint16, value []byte) []byte {
	b := binary.NativeEndian.AppendUint16(nil, uint16(4+len(value)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = append(b, value...)
	return append(b, make([]byte, -len(b)&3)...)
}

// list returns the sockets with storage that belong to a family and a protocol.
func (l *Lister) list(family, proto uint8) ([]socket, error) {
	fd := binary.NativeEndian.AppendUint32(nil, uint32(l.sockets.FD()))
	body := request(family, proto, 1<<(answerInfo-1), make([]byte, sockIDBytes))
	body = append(body, attribute(requestStorages|unix.NLA_F_NESTED, attribute(requestMapFD, fd))...)
	var found []socket
	err := talk(unix.SOCK_DIAG_BY_FAMILY, unix.NLM_F_DUMP, body, func(answer []byte) {
		if s, ok := parse(answer); ok {
			found = append(found, s)
		}
	})
	return found, err
}

func (l *Lister) destroy(body []byte) error {
	return talk(unix.SOCK_DESTROY, unix.NLM_F_ACK, body, func([]byte) {})
}

// parse reads one inet_diag_msg.
func parse(b []byte) (s socket, ok bool) {
	if len(b) < answerBytes {
		return s, false
	}
	s.id, s.heard = b[4:4+sockIDBytes], 1<<62
	attributes(b[answerBytes:], func(kind uint16, value []byte) {
		switch {
		case kind == answerInfo && len(value) >= lastAckAt+4:
			ms := min(binary.NativeEndian.Uint32(value[lastDataAt:]), binary.NativeEndian.Uint32(value[lastAckAt:]))
			s.heard = time.Duration(ms) * time.Millisecond
		case kind == answerStorages:
			attributes(value, func(kind uint16, value []byte) {
				if kind != oneStorage {
					return
				}
				attributes(value, func(kind uint16, value []byte) {
					if kind == storageValue && len(value) >= 48 { // bpf/headers/association.h
						s.service, s.endpoint, ok = binary.NativeEndian.Uint32(value[36:]), binary.NativeEndian.Uint64(value[40:]), true
					}
				})
			})
		}
	})
	return s, ok
}

// attributes calls each for the attributes in b.
func attributes(b []byte, each func(kind uint16, value []byte)) {
	for len(b) >= 4 {
		n := int(binary.NativeEndian.Uint16(b))
		if n < 4 || n > len(b) {
			return
		}
		each(binary.NativeEndian.Uint16(b[2:])&^(unix.NLA_F_NESTED|unix.NLA_F_NET_BYTEORDER), b[4:n])
		b = b[min(len(b), (n+3)&^3):]
	}
}

// talk sends one message to the kernel, and reads until it has answered.
func talk(kind, flags uint16, body []byte, each func(answer []byte)) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_INET_DIAG)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	message := binary.NativeEndian.AppendUint32(nil, uint32(unix.SizeofNlMsghdr+len(body)))
	message = binary.NativeEndian.AppendUint16(message, kind)
	message = binary.NativeEndian.AppendUint16(message, flags|unix.NLM_F_REQUEST)
	message = append(message, make([]byte, 8)...) // number and port: there is one talk for each socket
	if err := unix.Sendto(fd, append(message, body...), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	b := make([]byte, 64<<10)
	for {
		n, _, err := unix.Recvfrom(fd, b, 0)
		if err != nil {
			return err
		}
		for rest := b[:n]; len(rest) >= unix.SizeofNlMsghdr; {
			size := int(binary.NativeEndian.Uint32(rest))
			if size < unix.SizeofNlMsghdr || size > len(rest) {
				return fmt.Errorf("the kernel sent a message of %d bytes that says %d", len(rest), size)
			}
			content := rest[unix.SizeofNlMsghdr:size]
			switch binary.NativeEndian.Uint16(rest[4:]) {
			case unix.NLMSG_DONE:
				return nil
			case unix.NLMSG_ERROR:
				if code := int32(binary.NativeEndian.Uint32(content)); code != 0 {
					return unix.Errno(-code)
				}
				return nil
			}
			each(append([]byte(nil), content...))
			rest = rest[min(len(rest), (size+3)&^3):]
		}
	}
}
