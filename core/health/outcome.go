package health

import (
	"context"
	"errors"
	"os"
	"strings"
	"syscall"
	"time"
	"unicode"
	"unicode/utf8"
)

// result sorts the outcomes of probes, for metrics.
type result uint8

const (
	resultPass    result = iota
	resultStatus         // an answer that says no
	resultRefused        // nobody listens
	resultTimeout
	resultError // anything else
	results     // how many there are
)

// outcome is that of one probe.
type outcome struct {
	result result
	output string // valid UTF-8, at most MaxOutputBytes
	took   time.Duration
}

func (o outcome) ok() bool { return o.result == resultPass }

func (r result) String() string {
	return [results]string{"pass", "status", "refused", "timeout", "error"}[r]
}

// failure makes an outcome of an error.
func failure(err error) outcome {
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return outcome{result: resultRefused, output: "connection refused: nothing listens there"}
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return outcome{result: resultTimeout, output: "no complete answer in time"}
	}
	return outcome{result: resultError, output: clip(err.Error())}
}

// clip makes a text fit for CheckStatus.Output, and for a terminal.
func clip(s string) string {
	if len(s) > MaxOutputBytes {
		s = s[:MaxOutputBytes]
	}
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || unicode.IsPrint(r) {
			return r
		}
		return -1 // also what controls a terminal in one character, or turns its line around
	}, strings.ToValidUTF8(s, ""))
}

// maxLineRunes bounds what the log says of an answer, which may be a whole page.
const maxLineRunes = 160

// line makes one short line of an output.
func line(output string) string {
	text := strings.Join(strings.Fields(output), " ")
	if utf8.RuneCountInString(text) <= maxLineRunes {
		return text
	}
	return string([]rune(text)[:maxLineRunes]) + "…"
}
