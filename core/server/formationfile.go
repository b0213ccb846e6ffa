package server

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"net/url"
	"path/filepath"

	"github.com/fairlead/fairlead/core/durable"
	"github.com/fairlead/fairlead/core/formation"
)

// readFormation returns what a node said about the formation of a cluster; nothing
// without a directory, or in a new one.
func readFormation(dir string) (formation.Record, error) {
	if dir == "" {
		return formation.Record{}, nil
	}
	path := filepath.Join(dir, formationFile)
	data, err := durable.Read(path, formationFileBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return formation.Record{}, nil
	}
	if err != nil {
		return formation.Record{}, fmt.Errorf("server: %w", err)
	}
	rec, err := formation.DecodeRecord(data)
	if err != nil {
		return rec, fmt.Errorf("server: %s: %w: bring back a copy; without what this node said yes to it could be in two clusters", path, err)
	}
	return rec, nil
}

func writeFormation(dir string, rec formation.Record) error {
	if dir == "" {
		return nil
	}
	data, err := formation.EncodeRecord(rec)
	if err != nil {
		return fmt.Errorf("server: %w", err)
	}
	if err := durable.Replace(filepath.Join(dir, formationFile), data); err != nil {
		return fmt.Errorf("server: %w", err)
	}
	return nil
}

// addressOf reads host:port of an IP address; not valid if it is none.
func addressOf(text string) netip.AddrPort {
	a, _ := netip.ParseAddrPort(text)
	return a
}

// hostOf returns host:port of a URL.
func hostOf(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	return u.Host
}
