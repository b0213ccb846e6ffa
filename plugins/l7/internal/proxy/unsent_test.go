package proxy

import (
	"net/http"
	"testing"
	"time"
)

// A refused connect is tried elsewhere also when nothing is left of the budget:
// no backend got anything. On a busy host that is when a node dies.
func TestUnsentCostsNoBudget(t *testing.T) {
	for range 10 { // in two of three the first choice is one that refuses
		w := newWorld(t, nil, refusing(t), refusing(t), server(t, ok))
		for _, target := range w.proxy.targets {
			budget := target.endpoints.Load().pool.Budget()
			for budget.Retry(time.Now()) {
			}
		}
		answer, _ := w.get("/", "")
		expect(t, answer, http.StatusOK, ReasonNone)
		if n := w.metric("fairlead_l7_retries_refused_total"); n != 0 {
			t.Errorf("the budget refused %v tries", n)
		}
	}
}
