package host

import (
	"encoding/binary"
	"fmt"
	"syscall"
	"unsafe"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Fingerprint is a value that changes with every change of a table, whoever makes
// it. It costs a system call or two, and no process.
type Fingerprint [2 + 2*netfilterHooks]uint64

const netfilterHooks = 5

// Take reads the fingerprint of the nat table of a family: what the kernel counts
// of it (legacy), or the number of the ruleset (nft), which changes of other tables
// raise as well.
func (v Variant) Take(f Family) (Fingerprint, error) {
	if v == NFT {
		return takeNFT()
	}
	return takeLegacy(f)
}

// tableInfo is struct ipt_getinfo and struct ip6t_getinfo.
type tableInfo struct {
	name       [32]byte
	validHooks uint32
	hookEntry  [netfilterHooks]uint32
	underflow  [netfilterHooks]uint32
	entries    uint32
	size       uint32
}

// getInfo is IPT_SO_GET_INFO and IP6T_SO_GET_INFO.
const getInfo = 64

// takeLegacy asks for the counts of a table. Only a raw socket can.
func takeLegacy(f Family) (Fingerprint, error) {
	family, level := unix.AF_INET, unix.IPPROTO_IP
	if f == V6 {
		family, level = unix.AF_INET6, unix.IPPROTO_IPV6
	}
	fd, err := unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		return Fingerprint{}, fmt.Errorf("host: a raw %v socket, to look at the tables: %w", f, err)
	}
	defer unix.Close(fd)
	var info tableInfo
	copy(info.name[:], "nat")
	size := uint32(unsafe.Sizeof(info))
	_, _, errno := syscall.Syscall6(syscall.SYS_GETSOCKOPT, uintptr(fd), uintptr(level), getInfo,
		uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return Fingerprint{}, fmt.Errorf("host: the nat table of %v: %w", f, errno)
	}
	out := Fingerprint{uint64(info.entries), uint64(info.size)}
	for i := range netfilterHooks {
		out[2+i], out[2+netfilterHooks+i] = uint64(info.hookEntry[i]), uint64(info.underflow[i])
	}
	return out, nil
}

// What nf_tables is asked, and where its answer says the number.
const (
	msgGetGen  = 16 // NFT_MSG_GETGEN
	attrGenID  = 1  // NFTA_GEN_ID
	subsystem  = 10 // NFNL_SUBSYS_NFTABLES
	headerSize = 4  // struct nfgenmsg
)

func takeNFT() (Fingerprint, error) {
	req := nl.NewNetlinkRequest(subsystem<<8|msgGetGen, 0)
	req.AddData(&nl.Nfgenmsg{NfgenFamily: unix.AF_UNSPEC})
	answers, err := req.Execute(unix.NETLINK_NETFILTER, 0)
	if err != nil {
		return Fingerprint{}, fmt.Errorf("host: the number of the nf_tables ruleset: %w", err)
	}
	for _, a := range answers {
		if len(a) < headerSize {
			continue
		}
		attrs, err := nl.ParseRouteAttr(a[headerSize:])
		if err != nil {
			return Fingerprint{}, fmt.Errorf("host: the number of the nf_tables ruleset: %w", err)
		}
		for _, attr := range attrs {
			if attr.Attr.Type == attrGenID && len(attr.Value) >= 4 {
				return Fingerprint{uint64(binary.BigEndian.Uint32(attr.Value))}, nil
			}
		}
	}
	return Fingerprint{}, fmt.Errorf("host: the kernel did not say the number of the nf_tables ruleset")
}
