package kvtext

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// ParseTxn reads a transaction as etcdctl takes it: compares, an empty line, what to
// do if all of them hold, an empty line, what to do if not. Each of the parts may be
// empty, and those at the end may be absent. Errors name the line.
//
//	mod("key1") > "0"
//
//	put key1 "overwritten"
//
//	put key1 "created"
//	get key2 --prefix
func ParseTxn(text []byte) (*pb.TxnRequest, error) {
	r := &pb.TxnRequest{}
	part := 0
	for i, line := range bytes.Split(text, []byte("\n")) {
		trimmed := strings.TrimSpace(string(line))
		if trimmed == "" {
			part++
			continue
		}
		if err := add(r, part, trimmed); err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
	}
	if len(r.Compare)+len(r.Success)+len(r.Failure) == 0 {
		return nil, errors.New("the transaction is empty: it wants compares, an empty line, what to do if they hold, an empty line, and what to do if not")
	}
	return r, nil
}

// add puts a line of a part into the transaction.
func add(r *pb.TxnRequest, part int, line string) error {
	if part == 0 {
		c, err := parseCompare(line)
		r.Compare = append(r.Compare, c)
		return err
	}
	op, err := parseOp(line)
	switch part {
	case 1:
		r.Success = append(r.Success, op)
	case 2:
		r.Failure = append(r.Failure, op)
	default:
		if err == nil {
			err = errors.New("this is after the third part: an empty line ends a part, so there can be none within")
		}
	}
	return err
}

const compareForm = `want TARGET("KEY") RELATION "VALUE", with a target of version, create, mod, value and lease, and a relation of =, !=, < and >`

// parseCompare reads mod("key") > "0". The quotes around a number may be left off.
func parseCompare(line string) (*pb.Compare, error) {
	m := regexp.MustCompile(`^(\w+)\s*\(\s*("(?:[^"\\]|\\.)*")\s*\)\s*(=|!=|<|>)\s*("(?:[^"\\]|\\.)*"|[^\s"]+)$`).FindStringSubmatch(line)
	if m == nil {
		return nil, fmt.Errorf("%q is no compare: %s", line, compareForm)
	}
	key, err := strconv.Unquote(m[2])
	if err != nil {
		return nil, fmt.Errorf("%s: the key is not quoted as in Go: %w", m[2], err)
	}
	value := m[4]
	if strings.HasPrefix(value, `"`) {
		if value, err = strconv.Unquote(value); err != nil {
			return nil, fmt.Errorf("%s: the value is not quoted as in Go: %w", m[4], err)
		}
	}
	c := &pb.Compare{Key: []byte(key), Result: relation(m[3])}
	switch base := 10; m[1] {
	case "val", "value":
		c.Target, c.TargetUnion = pb.Compare_VALUE, &pb.Compare_Value{Value: []byte(value)}
		return c, nil
	default:
		if m[1] == "lease" {
			base = 16
		}
		n, err := strconv.ParseInt(value, base, 64)
		if err != nil {
			return nil, fmt.Errorf("%q is not a whole number", value)
		}
		return c, target(c, m[1], n)
	}
}

func relation(word string) pb.Compare_CompareResult {
	switch word {
	case "!=":
		return pb.Compare_NOT_EQUAL
	case "<":
		return pb.Compare_LESS
	case ">":
		return pb.Compare_GREATER
	}
	return pb.Compare_EQUAL
}

// target sets what a number is compared with.
func target(c *pb.Compare, word string, n int64) error {
	switch word {
	case "ver", "version":
		c.Target, c.TargetUnion = pb.Compare_VERSION, &pb.Compare_Version{Version: n}
	case "c", "create":
		c.Target, c.TargetUnion = pb.Compare_CREATE, &pb.Compare_CreateRevision{CreateRevision: n}
	case "m", "mod":
		c.Target, c.TargetUnion = pb.Compare_MOD, &pb.Compare_ModRevision{ModRevision: n}
	case "lease":
		c.Target, c.TargetUnion = pb.Compare_LEASE, &pb.Compare_Lease{Lease: n}
	default:
		return fmt.Errorf("%q is nothing to compare: %s", word, compareForm)
	}
	return nil
}

// parseOp reads an operation: a get, put or del with the flags of the command.
func parseOp(line string) (*pb.RequestOp, error) {
	words, err := split(line)
	if err != nil {
		return nil, err
	}
	verb := words[0]
	flags := pflag.NewFlagSet(verb, pflag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.Usage = func() {}
	var get Get
	var put Put
	var del Del
	switch verb {
	case "get":
		get.Flags(flags)
	case "put":
		put.Flags(flags)
	case "del":
		del.Flags(flags)
	default:
		return nil, fmt.Errorf("unknown operation %q: want get, put or del", verb)
	}
	if err := flags.Parse(words[1:]); err != nil {
		return nil, fmt.Errorf("%s: %w", verb, err)
	}
	args := flags.Args()
	switch {
	case verb == "get":
		r, err := get.Request(args)
		return &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: r}}, err
	case verb == "put" && len(args) == 2:
		r, err := put.Request(args[0], []byte(args[1]))
		return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: r}}, err
	case verb == "put":
		return nil, fmt.Errorf("put wants KEY and VALUE, got %d words", len(args))
	case len(args) == 2 && del.End == "":
		del.End = args[1] // as etcdctl
	case len(args) != 1:
		return nil, fmt.Errorf("del wants KEY [RANGE_END], got %d words", len(args))
	}
	r, err := del.Request(args[0])
	return &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: r}}, err
}

// split cuts a line into words: at blanks, but not within quotes. Double quotes are
// those of Go, single quotes take what is between them as it is.
func split(line string) ([]string, error) {
	var words []string
	for rest := line; ; {
		rest = strings.TrimLeft(rest, " \t")
		if rest == "" {
			return words, nil
		}
		var word string
		end := strings.IndexAny(rest, " \t")
		switch rest[0] {
		case '\'':
			length := strings.IndexByte(rest[1:], '\'')
			if length < 0 {
				return nil, fmt.Errorf("a quote is not closed: %s", rest)
			}
			word, end = rest[1:1+length], length+2
		case '"':
			quoted, err := strconv.QuotedPrefix(rest)
			if err != nil {
				return nil, fmt.Errorf("a quote is not closed, or not quoted as in Go: %s", rest)
			}
			if word, err = strconv.Unquote(quoted); err != nil {
				return nil, fmt.Errorf("%s: %w", quoted, err)
			}
			end = len(quoted)
		default:
			if end < 0 {
				end = len(rest)
			}
			word = rest[:end]
		}
		words, rest = append(words, word), rest[end:]
		if rest != "" && rest[0] != ' ' && rest[0] != '\t' {
			return nil, fmt.Errorf("a blank is missing before %s", rest)
		}
	}
}
