package pluginhost

// Refusal is why something is not used, and what to do about it.
type Refusal struct {
	Reason string `json:"reason"`
	Remedy string `json:"remedy,omitempty"`
}

// Error is the reason and the remedy in one line.
func (r *Refusal) Error() string {
	if r.Remedy == "" {
		return r.Reason
	}
	return r.Reason + ": " + r.Remedy
}

func refuse(reason, remedy string) *Refusal { return &Refusal{Reason: reason, Remedy: remedy} }
