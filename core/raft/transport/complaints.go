package transport

import (
	"sync"
	"time"
)

// complaints decide what is logged: the same again only after a while.
type complaints struct {
	mu   sync.Mutex
	said map[string]complaint // by whom it is about
}

type complaint struct {
	text string
	at   time.Time
}

const (
	repeatComplaint = time.Minute
	// maxComplaints bounds what is remembered: some are of strangers.
	maxComplaints = 1024
)

func newComplaints() *complaints { return &complaints{said: map[string]complaint{}} }

// isNew reports whether something is to be said of somebody.
func (c *complaints) isNew(about, text string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if old, ok := c.said[about]; ok && old.text == text && now.Sub(old.at) < repeatComplaint {
		return false
	}
	if len(c.said) >= maxComplaints {
		clear(c.said)
	}
	c.said[about] = complaint{text, now}
	return true
}
