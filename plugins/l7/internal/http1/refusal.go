package http1

import (
	"fmt"
	"net/http"
)

// Refusal is why a request is not served. It is an error.
type Refusal struct {
	Status int    // of the answer
	Reason string // names the thing, one line, without what the client sent
}

// Error prints status and reason.
func (r *Refusal) Error() string {
	return fmt.Sprintf("http1: %d %s: %s", r.Status, http.StatusText(r.Status), r.Reason)
}

func bad(reason string) *Refusal { return &Refusal{http.StatusBadRequest, reason} }
