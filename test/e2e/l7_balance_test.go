package e2e

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/fairlead/fairlead/test/scale"
)

// TestL7Distribution: requests reach the instances in proportion to their
// weights, by chi-square, in each way of balancing.
func TestL7Distribution(t *testing.T) {
	t.Parallel()
	cluster := newWebs(t, 1)
	one := cluster.hosts[0]
	// Who answers late on a busy machine is not left out for it: shares would shift.
	one.settings["try_timeout"] = patience.String()
	// chi-square above these has a chance of 1 in 10,000, with so many instances
	// but one as degrees of freedom.
	bounds := map[int]float64{3: 18.42, 4: 21.11, 5: 23.51}
	const instances = 5
	names := map[int]string{}
	for i := range instances {
		names[i] = fmt.Sprint("d", i)
		// Long beside what a busy machine adds: who looks at latencies sees all alike.
		one.runs(instancePort+1+i, names[i], "--after", "20ms")
	}
	cases := []struct {
		balance string
		weights []int
	}{
		{"round-robin", []int{1, 1, 1}},
		{"round-robin", []int{1, 2, 3, 4}},
		{"least-load", []int{1, 1, 1, 1, 1}},
		{"least-load", []int{1, 2, 5}},
		{"random", []int{3, 1, 1}},
		{"default", []int{2, 1, 1}},
	}
	name := func(i int) string { return fmt.Sprint("way-", i) }
	for i, c := range cases {
		var list []object
		for k, w := range c.weights {
			list = append(list, object{"id": names[k], "address": one.url(instancePort + 1 + k), "weight": w})
		}
		one.services = append(one.services, object{"name": name(i), "port": 80, "balance": c.balance, "instances": list})
	}
	cluster.start()
	n := scale.N(3000)
	for i, c := range cases {
		t.Run(fmt.Sprintf("%s %v", c.balance, c.weights), func(t *testing.T) {
			t.Parallel()
			// An instance that a busy machine made slow gets less of those that look
			// at the load, and should; and chance has its own. Such a time passes;
			// what is wrong stays so.
			for attempt := 1; ; attempt++ {
				count, err := one.counts(name(i), n)
				if err != nil {
					t.Fatal(err)
				}
				x := chiSquare(count, c.weights, names)
				t.Logf("%d requests: %v, chi-square %.2f, at most %.2f", n, count, x, bounds[len(c.weights)])
				if x <= bounds[len(c.weights)] {
					return
				}
				if attempt == 3 || c.balance == "round-robin" {
					t.Fatalf("%v for weights %v is no such distribution", count, c.weights)
				}
			}
		})
	}
}

// counts makes n requests and returns who answered how many.
func (w *web) counts(service string, n int) (map[string]int, error) {
	c := newHTTPConn(w.node, w.url(proxyPort))
	defer c.close()
	request := "GET / HTTP/1.1\r\nHost: " + service + "\r\n\r\n"
	count := map[string]int{}
	for range n {
		code, body, err := c.do(request, patience)
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("%s: status %d: %s", service, code, body)
		}
		if err != nil {
			return nil, err
		}
		count[body]++
	}
	return count, nil
}

// chiSquare is how far counts are from the weights' shares.
func chiSquare(count map[string]int, weights []int, names map[int]string) float64 {
	total, all := 0, 0
	for i, w := range weights {
		total += w
		all += count[names[i]]
	}
	var x float64
	for i, w := range weights {
		want := float64(all) * float64(w) / float64(total)
		d := float64(count[names[i]]) - want
		x += d * d / want
	}
	return x
}
