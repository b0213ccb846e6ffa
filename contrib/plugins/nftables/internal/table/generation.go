package table

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// errUntold is an answer without what was asked for.
var errUntold = errors.New("the kernel does not tell")

// asker asks what the library does not.
type asker struct{ conn *netlink.Conn }

func newAsker() (*asker, error) {
	c, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return nil, fmt.Errorf("netlink: %w", err)
	}
	return &asker{c}, nil
}

// Generation is the number of the kernel's rules in this network namespace. It rises
// with every transaction of anybody, and costs next to nothing to ask.
func (t *Tables) Generation() (uint32, error) {
	if _, err := t.connect(); err != nil {
		return 0, err
	}
	id, told := uint32(0), false
	err := t.asker.ask(generationMessage(), func(ad *netlink.AttributeDecoder) {
		if ad.Type() == unix.NFTA_GEN_ID {
			id, told = ad.Uint32(), true
		}
	})
	if err == nil && !told {
		err = errUntold
	}
	if err != nil {
		t.Close()
		return 0, fmt.Errorf("generation of the rules: %w", err)
	}
	return id, nil
}

// countRules counts the rules of each chain of a table. The library would read all
// of their parts, of which it does not understand some.
func (a *asker) countRules(t *nftables.Table, into map[string]int) error {
	attributes := []netlink.Attribute{{Type: unix.NFTA_RULE_TABLE, Data: []byte(t.Name + "\x00")}}
	m, err := message(unix.NFT_MSG_GETRULE, byte(t.Family), netlink.Dump, attributes)
	if err != nil {
		return fmt.Errorf("list rules: %w", err)
	}
	err = a.ask(m, func(ad *netlink.AttributeDecoder) {
		if ad.Type() == unix.NFTA_RULE_CHAIN {
			into[ad.String()]++
		}
	})
	if err != nil {
		return fmt.Errorf("list rules: %w", err)
	}
	return nil
}

func generationMessage() netlink.Message {
	m, _ := message(unix.NFT_MSG_GETGEN, unix.AF_UNSPEC, 0, nil) // nothing in it can be wrong
	return m
}

func message(kind uint16, family byte, flags netlink.HeaderFlags, attributes []netlink.Attribute) (netlink.Message, error) {
	data, err := netlink.MarshalAttributes(attributes)
	return netlink.Message{
		Header: netlink.Header{Type: netlink.HeaderType(unix.NFNL_SUBSYS_NFTABLES<<8 | kind), Flags: netlink.Request | flags},
		Data:   append([]byte{family, unix.NFNETLINK_V0, 0, 0}, data...),
	}, err
}

// ask sends one message, and shows the attributes of all answers.
func (a *asker) ask(m netlink.Message, see func(*netlink.AttributeDecoder)) error {
	answers, err := a.conn.Execute(m)
	if err != nil {
		return err
	}
	const header = 4
	for _, m := range answers {
		if len(m.Data) < header {
			continue
		}
		ad, err := netlink.NewAttributeDecoder(m.Data[header:])
		if err != nil {
			return err
		}
		ad.ByteOrder = binary.BigEndian
		for ad.Next() {
			see(ad)
		}
		if err := ad.Err(); err != nil {
			return err
		}
	}
	return nil
}
