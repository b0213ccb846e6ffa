package formation

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"github.com/fairlead/fairlead/core/model"
)

// MaxRecord bounds an encoded record.
const MaxRecord = 1 << 17

// check says what is wrong with the record of a server.
func (r *Record) check(id model.NodeID) error {
	if b := r.Yes; b != nil {
		if err := b.check(); err != nil {
			return err
		}
		if !b.has(id) || r.Formed != nil {
			return fmt.Errorf("%w: the record holds a yes of cluster %s that does not fit server %s: it was copied from another", ErrDamaged, b.Cluster, id)
		}
	}
	if b := r.Formed; b != nil {
		if b.Candidate == 0 && len(b.Voters) == 0 && b.Cluster != 0 {
			return nil // added
		}
		if err := b.check(); err != nil {
			return err
		}
		if !b.voter(id) {
			return fmt.Errorf("%w: the record holds cluster %s, of which server %s is no voter: it was copied from another", ErrDamaged, b.Cluster, id)
		}
	}
	return nil
}

// The file is JSON, so that an operator can read what a server is bound to.
type (
	jsonRecord struct {
		Version int         `json:"version"`
		Yes     *jsonBallot `json:"yes,omitempty"`
		Formed  *jsonBallot `json:"formed,omitempty"`
		Begun   bool        `json:"begun,omitempty"`
		Seen    string      `json:"seen,omitempty"`
		Lost    []string    `json:"lost,omitempty"`
	}
	jsonBallot struct {
		Cluster   string         `json:"cluster"`
		Candidate string         `json:"candidate,omitempty"`
		Voters    []model.NodeID `json:"voters,omitempty"`
		Witnesses []model.NodeID `json:"witnesses,omitempty"`
	}
)

// EncodeRecord returns the bytes for the disk.
func EncodeRecord(r Record) ([]byte, error) {
	j := jsonRecord{Version: 1, Yes: toJSON(r.Yes), Formed: toJSON(r.Formed), Begun: r.Begun}
	if r.Seen != 0 {
		j.Seen = r.Seen.String()
	}
	for _, c := range r.Lost {
		j.Lost = append(j.Lost, c.String())
	}
	b, err := json.MarshalIndent(j, "", "  ")
	return append(b, '\n'), err
}

// DecodeRecord reads what EncodeRecord wrote. The error wraps ErrDamaged.
func DecodeRecord(b []byte) (Record, error) {
	var j jsonRecord
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if len(b) > MaxRecord {
		return Record{}, fmt.Errorf("%w: the record has %d bytes, at most %d", ErrDamaged, len(b), MaxRecord)
	}
	if err := d.Decode(&j); err != nil {
		return Record{}, fmt.Errorf("%w: the record: %w", ErrDamaged, err)
	}
	if _, err := d.Token(); err != io.EOF {
		return Record{}, fmt.Errorf("%w: the record goes on after its end", ErrDamaged)
	}
	if j.Version != 1 {
		return Record{}, fmt.Errorf("%w: the record has version %d, this program reads 1: start the program that wrote it", ErrDamaged, j.Version)
	}
	return j.record()
}

func (j *jsonRecord) record() (Record, error) {
	r := Record{Begun: j.Begun}
	var err error
	if r.Yes, err = j.Yes.ballot(); err != nil {
		return Record{}, err
	}
	if r.Formed, err = j.Formed.ballot(); err != nil {
		return Record{}, err
	}
	if j.Seen != "" {
		if r.Seen, err = ParseClusterID(j.Seen); err != nil {
			return Record{}, err
		}
	}
	if len(j.Lost) > maxLost {
		return Record{}, fmt.Errorf("%w: the record lists %d lost clusters", ErrDamaged, len(j.Lost))
	}
	for _, s := range j.Lost {
		c, err := ParseClusterID(s)
		if err != nil {
			return Record{}, err
		}
		r.Lost = append(r.Lost, c)
	}
	return r, nil
}

func toJSON(b *Ballot) *jsonBallot {
	if b == nil {
		return nil
	}
	j := &jsonBallot{Cluster: b.Cluster.String(), Voters: b.Voters, Witnesses: b.Witnesses}
	if b.Candidate != 0 {
		j.Candidate = b.Candidate.String()
	}
	return j
}

func (j *jsonBallot) ballot() (*Ballot, error) {
	if j == nil {
		return nil, nil
	}
	cluster, err := ParseClusterID(j.Cluster)
	if err != nil {
		return nil, err
	}
	b := &Ballot{Cluster: cluster, Voters: j.Voters, Witnesses: j.Witnesses}
	if j.Candidate != "" {
		if b.Candidate, err = model.ParseNodeID(j.Candidate); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
		}
	}
	return b, nil
}
