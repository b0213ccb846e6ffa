package main

import (
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"time"
)

// serveProxy passes everything on to one backend, as the standard library does
// it, with the settings that a busy proxy needs: buffers that are used again,
// and enough connections that are kept.
func serveProxy(address, backend string) error {
	to := &url.URL{Scheme: "http", Host: backend}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			r.Out.Host = r.In.Host
			r.SetXForwarded()
		},
		Transport: &http.Transport{
			DialContext:  (&net.Dialer{Timeout: 3 * time.Second}).DialContext,
			MaxIdleConns: 0, MaxIdleConnsPerHost: 512, IdleConnTimeout: 55 * time.Second, DisableCompression: true,
		},
		BufferPool: &buffers{},
	}
	server := &http.Server{Addr: address, Handler: proxy, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 3 * time.Minute}
	return server.ListenAndServe()
}

// buffers is a BufferPool of 32 KiB each, as ReverseProxy would allocate them.
type buffers struct{ pool sync.Pool }

// Get implements httputil.BufferPool.
func (b *buffers) Get() []byte {
	if p, ok := b.pool.Get().(*[]byte); ok {
		return *p
	}
	return make([]byte, 32<<10)
}

// Put implements httputil.BufferPool.
func (b *buffers) Put(p []byte) { b.pool.Put(&p) }
