package remote

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-ed332417/jq/internal/httpapi"
	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/wire"
)

// A served store is one behind the HTTP API, on a socket of its own.
type served struct {
	url     string
	address string
	api     *httpapi.API
	server  *http.Server
	running sync.WaitGroup
	back    store.Store
	met     atomic.Int64 // connections that were accepted
	left    atomic.Int64 // those of them that were closed
}

// serve lets the API answer for the store.
func serve(back store.Store, o httpapi.Options) (*served, error) {
	quiet := slog.New(slog.DiscardHandler)
	o.Logger = quiet
	api, err := httpapi.New(back, &o)
	if err != nil {
		return nil, err
	}
	limits := httpapi.Limits{Logger: quiet}
	server, err := httpapi.NewServer(api, &limits, nil)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	limited, err := httpapi.Limit(l, &limits)
	if err != nil {
		return nil, err
	}
	v := &served{url: "http://" + l.Addr().String(), address: l.Addr().String(), api: api, server: server, back: back}
	server.ConnState = v.note
	v.running.Go(func() { _ = server.Serve(limited) })
	return v, nil
}

// stop ends the server and closes the store behind it.
func (v *served) stop() error {
	err := errors.Join(v.api.Close(), v.server.Shutdown(context.Background()))
	v.running.Wait()
	return errors.Join(err, v.back.Close())
}

func (v *served) note(_ net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		v.met.Add(1)
	case http.StateClosed, http.StateHijacked:
		v.left.Add(1)
	}
}

// A settling transport lets reads wait for what calls in doubt may still do: a call that its caller has left may be applied in a
// moment, as the contract allows, but the cases look at once. Writes and claims wait for nothing.
type settling struct {
	*http.Transport
	server *served
	store  *Store
	met    atomic.Int64 // connections that were opened
	left   atomic.Int64 // those of them that were closed
}

func newSettling(server *served) *settling {
	s := &settling{Transport: newTransport("", nil), server: server}
	dial := s.DialContext
	s.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		s.met.Add(1)
		return &leaving{Conn: conn, leave: sync.OnceFunc(func() { s.left.Add(1) })}, nil
	}
	return s
}

type leaving struct {
	net.Conn
	leave func()
}

func (l *leaving) Close() error {
	err := l.Conn.Close()
	l.leave()
	return err
}

// RoundTrip sends a read when nothing goes on that nobody waits for.
func (s *settling) RoundTrip(r *http.Request) (*http.Response, error) {
	read := r.Method == http.MethodGet || r.URL.Path == wire.PathList || r.URL.Path == wire.PathCount
	for read && !s.settled() {
		select {
		case <-r.Context().Done():
			return nil, r.Context().Err()
		case <-time.After(time.Millisecond):
		}
	}
	return s.Transport.RoundTrip(r)
}

func (s *settling) settled() bool {
	if s.store != nil && s.store.undelivered.Load() > 0 {
		return false
	}
	left := s.left.Load()
	return s.server.met.Load() >= s.met.Load() && s.server.left.Load() >= left
}
