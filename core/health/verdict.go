package health

// verdict is what the outcomes of a check's probes amount to. The zero value is
// critical, unprobed.
//
// Invariant: at most one of successes and failures is above zero.
type verdict struct {
	passing   bool
	successes int // in a row, up to the last
	failures  int
}

// observe takes one outcome in and reports whether the verdict changed.
func (v *verdict) observe(ok bool, c Check) bool {
	if ok {
		v.successes, v.failures = v.successes+1, 0
		if !v.passing && v.successes >= c.SuccessBeforePassing {
			v.passing = true
			return true
		}
		return false
	}
	v.successes, v.failures = 0, v.failures+1
	if v.passing && v.failures >= c.FailuresBeforeCritical {
		v.passing = false
		return true
	}
	return false
}
