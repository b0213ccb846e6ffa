package proxy

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

func TestPassesRequestAndAnswerOn(t *testing.T) {
	b := server(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("X-Seen", fmt.Sprintf("%s %s %s %d", r.Method, r.RequestURI, r.Host, r.ContentLength))
		w.WriteHeader(http.StatusTeapot)
		_, _ = w.Write(append([]byte("got "), body...))
	})
	w := newWorld(t, nil, b)
	for range 3 {
		answer, body := w.ask("POST", "POST /a%20b?x=1;y HTTP/1.1\r\nHost: WEB:80\r\nContent-Length: 5\r\n\r\nhello")
		if answer.StatusCode != http.StatusTeapot || body != "got hello" {
			t.Fatalf("%d %q", answer.StatusCode, body)
		}
		if seen := answer.Header.Get("X-Seen"); seen != "POST /a%20b?x=1;y WEB:80 5" {
			t.Errorf("the backend saw %q", seen)
		}
	}
	w.logged(`"method":"POST"`, `"path":"/a%20b"`, `"status":418`, `"bytes_in":5`, `"bytes_out":9`, `"service":"default/web"`, `"backend":"`+b, `"tries":1`, `"host":"web"`)
	if n := w.metric("fairlead_l7_requests_total", "service", "default/web", "code", "4xx"); n != 3 {
		t.Errorf("%v requests counted", n)
	}
	if n := w.metric("fairlead_l7_connects_total"); n != 1 {
		t.Errorf("%v connects for three requests in a row", n)
	}
}

func TestUnknownHostAndEmptyService(t *testing.T) {
	w := newWorld(t, nil)
	answer, body := w.ask("GET", "GET / HTTP/1.1\r\nHost: nobody.example\r\n\r\n")
	expect(t, answer, http.StatusNotFound, ReasonUnknownHost)
	if !strings.Contains(body, `"nobody.example"`) {
		t.Errorf("the answer does not name the host: %q", body)
	}
	answer, _ = w.get("/", "")
	expect(t, answer, http.StatusServiceUnavailable, ReasonNoEndpoint)
	if answer.Header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	if n := w.metric("fairlead_l7_requests_total", "service", noService, "code", "4xx"); n != 1 {
		t.Errorf("%v requests without a service counted", n)
	}
}

// While services may be missing, nobody is told that there is none.
func TestUnknownHostWhileStarting(t *testing.T) {
	w := newWorld(t, nil)
	for _, partial := range []bool{true, false} {
		w.proxy.SetPartial(partial)
		answer, _ := w.ask("GET", "GET / HTTP/1.1\r\nHost: nobody.example\r\n\r\n")
		if !partial {
			expect(t, answer, http.StatusNotFound, ReasonUnknownHost)
			continue
		}
		expect(t, answer, http.StatusServiceUnavailable, ReasonStarting)
		if answer.Header.Get("Retry-After") == "" {
			t.Error("no Retry-After")
		}
	}
}
