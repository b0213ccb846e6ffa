package proxy

import (
	"testing"
	"time"

	"github.com/fairlead/fairlead/plugins/l7/internal/settings"
)

// Where another endpoint can be tried, a connect into the void takes no longer
// than a silent answer: two of them leave most of a second for the third.
func TestConnectAgain(t *testing.T) {
	for _, c := range []struct{ connect, try, want time.Duration }{
		{settings.Default().Timeouts.Connect, settings.Default().Timeouts.Try, 250 * time.Millisecond},
		{3 * time.Second, 0, time.Second},
		{3 * time.Second, 5 * time.Second, time.Second},
		{100 * time.Millisecond, 250 * time.Millisecond, 100 * time.Millisecond},
	} {
		s := settings.Default()
		s.Timeouts.Connect, s.Timeouts.Try = c.connect, c.try
		if o := optionsOf(s); o.connectAgain != c.want || o.connect != c.connect {
			t.Errorf("connect %v, try %v: %v where another endpoint can be tried, want %v", c.connect, c.try, o.connectAgain, c.want)
		}
	}
}
