package backend

import (
	"errors"
	"fmt"
	"net/http"
	"os"
)

// informational is how many 1xx answers may come before the final one.
const informational = 32

// ErrBadResponse: what the backend sent is no answer that can be passed on.
var ErrBadResponse = errors.New("backend: bad response")

// ReadHead reads the head of the final answer to r. It hands each 1xx before it
// to onInformational. The body of what it returns is read from c; it must not be
// closed, as that would read the rest of it.
func (c *Conn) ReadHead(r *http.Request, onInformational func(*http.Response) error) (*http.Response, error) {
	for range informational {
		c.left = max(c.pool.group.options.Load().HeadBytes-int64(c.reader.Buffered()), 1)
		connection := c.connectionFields()
		answer, err := http.ReadResponse(c.reader, r)
		if err != nil {
			if errors.Is(c.failed, os.ErrDeadlineExceeded) {
				err = c.failed // what a line looks like that was cut by it says nothing
			}
			return nil, err
		}
		switch code := answer.StatusCode; {
		case answer.ProtoMajor != 1:
			return nil, fmt.Errorf("%w: protocol %q", ErrBadResponse, answer.Proto)
		case code < 100 || code > 599:
			return nil, fmt.Errorf("%w: status %d", ErrBadResponse, code)
		case code >= 200 || code == http.StatusSwitchingProtocols:
			if answer.Close && len(connection) > 0 {
				answer.Header["Connection"] = connection
			}
			c.unbounded()
			return answer, nil
		}
		if err := onInformational(answer); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("%w: more than %d informational answers", ErrBadResponse, informational)
}
