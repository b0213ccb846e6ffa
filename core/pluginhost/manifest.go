package pluginhost

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// ManifestSuffix is added to the path of a plugin for that of its manifest.
const ManifestSuffix = ".manifest.json"

// maxManifestBytes bounds what is read of a manifest.
const maxManifestBytes = 64 << 10

// Manifest is what the one who installed a plugin says of it. All keys are
// required, and an unknown one is an error: a pin with a typing error in it
// would pin nothing.
type Manifest struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	// SHA256 of the file, 64 hexadecimal digits.
	SHA256 string `json:"sha256"`
	// Capabilities of Linux that the process gets, and no other, such as
	// CAP_NET_ADMIN; [] for none.
	Capabilities []string `json:"capabilities"`

	sum          [sha256.Size]byte
	capabilities capabilities
}

// readManifest returns the manifest beside the plugin at path, nil if there is
// none.
func readManifest(path, name string, who trust) (*Manifest, *Refusal) {
	path += ManifestSuffix
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, refuse("cannot read the manifest: "+err.Error(), "make it readable for the agent")
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, refuse("cannot read the manifest: "+err.Error(), "")
	}
	if r := who.file(path, info); r != nil {
		return nil, r
	}
	text, err := io.ReadAll(io.LimitReader(f, maxManifestBytes))
	if err != nil {
		return nil, refuse("cannot read the manifest: "+err.Error(), "")
	}
	m, err := parseManifest(text, name)
	if err != nil {
		return nil, refuse(fmt.Sprintf("manifest %s: %v", path, err), "write it anew, or take that of the plugin's package")
	}
	return m, nil
}

func parseManifest(text []byte, name string) (*Manifest, error) {
	var m Manifest
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&m); err != nil {
		return nil, err
	}
	sum, err := hex.DecodeString(m.SHA256)
	switch {
	case m.Name != name:
		return nil, fmt.Errorf("name is %q and the file's is %q", m.Name, name)
	case m.Version == "":
		return nil, errors.New("version is missing")
	case err != nil || len(sum) != sha256.Size:
		return nil, fmt.Errorf("sha256 is %q: want 64 hexadecimal digits", m.SHA256)
	case m.Capabilities == nil:
		return nil, errors.New("capabilities is missing: list those that the plugin needs, [] for none")
	}
	copy(m.sum[:], sum)
	if m.capabilities, err = parseCapabilities(m.Capabilities); err != nil {
		return nil, fmt.Errorf("capabilities: %w", err)
	}
	return &m, nil
}
