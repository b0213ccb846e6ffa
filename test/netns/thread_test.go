package netns

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestOwnThread(t *testing.T) {
	for _, test := range []struct {
		name string
		end  func() error
		want string
	}{
		{"error", func() error { return errNotYet }, errNotYet.Error()},
		{"panic", func() error { panic("as it happens") }, "as it happens\n\non its own thread:\n"},
		{"exit", func() error { runtime.Goexit(); return nil }, errNoReturn.Error()},
	} {
		// All run at once, so that every idle thread gets its turn, the first of the process included.
		const crowd = 32
		arrived, release, ended := make(chan error, crowd), make(chan struct{}), make(chan string, crowd)
		for range crowd {
			go func() {
				defer func() {
					if r := recover(); r != nil {
						ended <- fmt.Sprint(r)
					}
				}()
				err := onOwnThread(func() error {
					if unix.Gettid() == unix.Getpid() {
						arrived <- errors.New("ran on the first thread of the process, which cannot die")
					} else {
						arrived <- nil
					}
					<-release
					return test.end()
				})
				ended <- fmt.Sprint(err)
			}()
		}
		for range crowd {
			if err := <-arrived; err != nil {
				t.Errorf("%s: %v", test.name, err)
			}
		}
		close(release)
		for range crowd {
			if got := <-ended; !strings.HasPrefix(got, test.want) {
				t.Errorf("%s: ended with %q, want %q", test.name, got, test.want)
			}
		}
	}
}
