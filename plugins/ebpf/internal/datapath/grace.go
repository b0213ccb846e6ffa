package datapath

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
)

// Grace waits until every program that was running has ended. Nothing in the
// system calls says that; but an update of an array of maps waits for just that
// before it returns, so that nobody uses the inner map that it replaced.
type Grace struct {
	outer, inner *ebpf.Map
}

// NewGrace makes the two maps that it takes. They are not pinned.
func NewGrace() (*Grace, error) {
	innerSpec := &ebpf.MapSpec{Name: "fl_grace_inner", Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1}
	inner, err := ebpf.NewMap(innerSpec)
	if err != nil {
		return nil, fmt.Errorf("inner map for graces: %w", err)
	}
	outer, err := ebpf.NewMap(&ebpf.MapSpec{
		Name: "fl_grace", Type: ebpf.ArrayOfMaps, KeySize: 4, ValueSize: 4, MaxEntries: 1, InnerMap: innerSpec,
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("map for graces: %w", err), inner.Close())
	}
	return &Grace{outer: outer, inner: inner}, nil
}

// Wait returns when every program that ran when it was called has ended.
func (g *Grace) Wait() error { return g.outer.Put(uint32(0), g.inner) }

// Close gives the maps up.
func (g *Grace) Close() { _, _ = g.outer.Close(), g.inner.Close() }
