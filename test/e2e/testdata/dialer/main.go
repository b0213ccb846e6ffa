// Command dialer is what the tests of the L4 data planes run as an application: it
// connects to an address again and again, or once and for long. Its output has a
// line for each connect, with when it began and ended in nanoseconds of the wall
// clock:
//
//	BEGAN ENDED NAME        NAME answered
//	BEGAN ENDED error: …    or not
//
// With -tls it makes a TLS connection, and NAME is that in the certificate.
//
// With -hold it connects once, then waits until the connection ends, which is
// another such line. SIGUSR1 makes it ask once more over that connection.
package main

import (
	"bufio"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

func main() {
	to := flag.String("to", "", "address, IP:PORT")
	rate := flag.Int("rate", 100, "connects a second")
	secure := flag.Bool("tls", false, "ask who it is by TLS, whoever signed that")
	hold := flag.Bool("hold", false, "connect once and hold the connection")
	limit := flag.Duration("limit", 500*time.Millisecond, "what a connect with its answer may take")
	flag.Parse()
	if *hold {
		holdOne(*to, *limit)
		return
	}
	var running sync.WaitGroup
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	tick := time.NewTicker(time.Second / time.Duration(*rate))
	defer tick.Stop()
	for {
		select {
		case <-stop:
			running.Wait()
			return
		case <-tick.C:
			running.Go(func() { once(*to, *limit, *secure) })
		}
	}
}

// tell writes a line in one call.
func tell(began time.Time, what string, err error) {
	if err != nil {
		what = "error: " + err.Error()
	}
	fmt.Printf("%d %d %s\n", began.UnixNano(), time.Now().UnixNano(), what)
}

func once(to string, limit time.Duration, secure bool) {
	began := time.Now()
	conn, err := net.DialTimeout("tcp", to, limit)
	if err != nil {
		tell(began, "", err)
		return
	}
	defer conn.Close()
	if err = conn.SetDeadline(began.Add(limit)); err != nil {
		tell(began, "", err)
		return
	}
	var name string
	if secure {
		name, err = shake(conn)
	} else {
		name, err = ask(conn, bufio.NewReader(conn))
	}
	tell(began, name, err)
}

// shake makes the connection one by TLS and reads who is there.
func shake(conn net.Conn) (string, error) {
	c := tls.Client(conn, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	if err := c.Handshake(); err != nil {
		return "", err
	}
	return c.ConnectionState().PeerCertificates[0].Subject.CommonName, nil
}

// ask sends a GET and reads who answers.
func ask(conn net.Conn, answers *bufio.Reader) (string, error) {
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: test\r\n\r\n"); err != nil {
		return "", err
	}
	answer, err := http.ReadResponse(answers, nil)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	name, err := io.ReadAll(answer.Body)
	return string(name), err
}

func holdOne(to string, limit time.Duration) {
	again := make(chan os.Signal, 1)
	signal.Notify(again, syscall.SIGUSR1)
	began := time.Now()
	conn, err := net.DialTimeout("tcp", to, limit)
	if err != nil {
		tell(began, "", err)
		return
	}
	defer conn.Close()
	answers := bufio.NewReader(conn)
	name, err := ask(conn, answers)
	tell(began, name, err)
	for err == nil {
		select {
		case <-again:
			if err = conn.SetReadDeadline(time.Time{}); err == nil {
				name, err = ask(conn, answers)
				tell(began, name, err)
			}
			continue
		default:
		}
		// Short reads, so that the signal is seen in between.
		if err = conn.SetReadDeadline(time.Now().Add(10 * time.Millisecond)); err != nil {
			break
		}
		if _, err = answers.Peek(1); errors.Is(err, os.ErrDeadlineExceeded) {
			err = nil
		} else if err != nil {
			tell(began, "", err)
		}
	}
	select {} // the connection is not closed by the end of the process
}
