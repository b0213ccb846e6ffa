package state

import (
	"errors"
	"fmt"
	"regexp"
	"sync"
	"sync/atomic"

	"other"
)

type guard struct{}

func (guard) String() string { return "" }

type typedError struct{ code int }

func (*typedError) Error() string { return "" }

type entry struct {
	name string
	run  func() error
	any  any
}

type counter struct{ n int }

func (c *counter) inc()    { c.n++ }
func (c counter) get() int { return c.n }

// What follows may stand.
var (
	_ fmt.Stringer = guard{}

	ErrPlain = errors.New("plain")
	errTyped = &typedError{1}
	names    = map[int]string{1: "one"}
	table    = []entry{{name: "a"}}
	pattern  = regexp.MustCompile("a+")
	version  = "dev"
	fixed    counter
)

var mu sync.Mutex // want `package variable mu is a sync.Mutex: make it a field`

var hits atomic.Int64 // want `package variable hits is a sync/atomic.Int64`

var queue = make(chan int) // want `package variable queue is a channel`

var shared = &counter{} // want `package variable shared is a pointer`

var output fmt.Stringer = guard{} // want `package variable output is an interface that may hold state`

var registry = map[string]*counter{} // want `package variable registry is a pointer`

var nested struct { // want `package variable nested has a field mu that is a sync.Mutex`
	mu sync.Mutex
}

var (
	cache  = map[string]int{}
	count  int
	limits [3]int
	config entry
)

func init() { // want `init function`
}

func writes() {
	cache["a"] = 1              // want `assignment to package variable cache`
	delete(cache, "a")          // want `delete on package variable cache`
	clear(cache)                // want `clear on package variable cache`
	count++                     // want `assignment to package variable count`
	count, _ = 1, 2             // want `assignment to package variable count`
	limits[1] = 2               // want `assignment to package variable limits`
	copy(limits[:], limits[1:]) // want `copy on package variable limits`
	config.name = "b"           // want `assignment to package variable config`
	_ = &config                 // want `address of package variable config`
	fixed.inc()                 // want `method inc may change package variable fixed`
	other.Limit = 4             // want `assignment to package variable Limit`
	for count = range 3 {       // want `assignment to package variable count`
	}
}

func reads() {
	_ = fixed.get()
	_ = names[1]
	_ = pattern.MatchString("a")
	count := count
	count++
	var local counter
	local.inc()
	_ = table[0].run
	_ = other.ErrOther
}
