package bench

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/internal/httpapi"
	"github.com/seed-ed332417/jq/remote"
)

// serving measures the whole life of a job on the store itself, and on the same store through a server on loopback. Producers
// and workers use HTTP, in this process.
func serving(ctx context.Context, r *run) (parts []Part, err error) {
	direct, err := r.apart(ctx, "direct")
	if err != nil {
		return nil, err
	}
	far, end, err := throughServer(ctx, r.store)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, end()) }()
	through, err := r.over(far).apart(ctx, HTTP)
	return []Part{direct, versus(through, direct)}, err
}

// throughServer starts a server on the store and opens a remote store on it.
func throughServer(ctx context.Context, s jq.Store) (far jq.Store, end func() error, err error) {
	quiet := slog.New(slog.DiscardHandler)
	api, err := httpapi.New(s, &httpapi.Options{Loopback: true, Logger: quiet})
	if err != nil {
		return nil, nil, err
	}
	server, err := httpapi.NewServer(api, &httpapi.Limits{Logger: quiet}, nil)
	if err != nil {
		return nil, nil, errors.Join(err, api.Close())
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, errors.Join(err, api.Close())
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	shut := func() error {
		err := errors.Join(api.Close(), server.Shutdown(context.WithoutCancel(ctx)))
		if ended := <-served; !errors.Is(ended, http.ErrServerClosed) {
			err = errors.Join(err, ended)
		}
		return err
	}
	opened, err := remote.Open(ctx, "http://"+listener.Addr().String(), nil)
	if err != nil {
		return nil, nil, errors.Join(err, shut())
	}
	return opened, func() error { return errors.Join(opened.Close(), shut()) }, nil
}
