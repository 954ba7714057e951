package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"snapfs/sandbox"
	"snapfs/sandbox/api/wire"
)

// Observe serves /metrics for Prometheus and /debug/pprof/ for Go's profiler on a TCP address of this machine, until
// ctx ends. stop ends it, too, and waits. Anybody on the machine can read them: they tell names of nothing, but a
// profile takes processor time.
func Observe(ctx context.Context, address string, home *sandbox.Home) (at net.Addr, stop func() error, err error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: metrics address %q: %w", sandbox.ErrInvalid, address, err)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return nil, nil, fmt.Errorf("%w: metrics address %q is not one of this machine alone: "+
			"127.0.0.1, ::1 or localhost", sandbox.ErrInvalid, address)
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, nil, wire.Unavailable("metrics: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(home.Metrics(), promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	srv := &http.Server{
		Handler: mux, ReadHeaderTimeout: 10 * time.Second,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }() // ends with Close; stop waits
	unhook := context.AfterFunc(ctx, func() { _ = srv.Close() })
	return l.Addr(), func() error {
		unhook()
		err := srv.Close()
		if e := <-served; !errors.Is(e, http.ErrServerClosed) {
			err = errors.Join(err, e)
		}
		return err
	}, nil
}
