package kvtext

import (
	"errors"

	"github.com/spf13/pflag"
)

// all is the lowest key there can be, and as the end of a range: no end.
const all = "\x00"

// Span says which keys are meant.
type Span struct {
	Prefix  bool
	FromKey bool
	End     string // exclusive; empty: no range
}

// Flags adds what chooses more than one key.
func (s *Span) Flags(flags *pflag.FlagSet) {
	flags.BoolVar(&s.Prefix, "prefix", false, "all keys that begin with KEY")
	flags.BoolVar(&s.FromKey, "from-key", false, "all keys from KEY on, in the order of bytes")
}

// EndFlag adds the end of a range as a flag.
func (s *Span) EndFlag(flags *pflag.FlagSet) {
	flags.StringVar(&s.End, "range-end", "", "all keys from KEY up to and without `END`")
}

// Single reports whether one key is meant, not a range of them.
func (s *Span) Single() bool { return !s.Prefix && !s.FromKey && s.End == "" }

// Keys returns key and range end of a request.
func (s *Span) Keys(key string) (from, end []byte, err error) {
	chosen := 0
	for _, is := range []bool{s.Prefix, s.FromKey, s.End != ""} {
		if is {
			chosen++
		}
	}
	switch {
	case chosen > 1:
		return nil, nil, errors.New("give one of --prefix, --from-key and a range end")
	case key == "" && !s.Prefix && !s.FromKey:
		return nil, nil, errors.New(`the key is empty: all keys are "" --prefix`)
	case s.End != "" && s.End <= key:
		return nil, nil, errors.New("the range ends before it begins")
	case s.Prefix:
		end = prefixEnd(key)
	case s.FromKey:
		end = []byte(all)
	case s.End != "":
		end = []byte(s.End)
	}
	if key == "" {
		key = all
	}
	return []byte(key), end, nil
}

// prefixEnd is the first key after all that begin with prefix.
func prefixEnd(prefix string) []byte {
	end := []byte(prefix)
	for i := len(end) - 1; i >= 0; i-- {
		if end[i] < 0xff {
			end[i]++
			return end[:i+1]
		}
	}
	return []byte(all)
}
