package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"

	"snapfs/cmd/internal/cli"
	"snapfs/sandbox"
	"snapfs/sandbox/daemon"
	"snapfs/sandbox/httpapi"
	"snapfs/sandbox/statehttp"
)

// services are the handlers of the daemon beside its own calls.
func (s *service) services() []daemon.Service {
	all := append(s.rest.Services(), s.mcpService())
	state := statehttp.New(s.home)
	for _, pattern := range statehttp.Patterns() {
		all = append(all, daemon.Service{Pattern: pattern, Handler: state, Refuse: statehttp.Refuse, Lane: laneOf(statehttp.Large)})
	}
	return append(all, s.pluginServices()...)
}

// laneOf tells the kind of requests of which some last.
func laneOf(lasts func(*http.Request) bool) func(*http.Request) daemon.Lane {
	return func(r *http.Request) daemon.Lane {
		if lasts(r) {
			return daemon.LongLane
		}
		return daemon.ShortLane
	}
}

// startREST makes the adapter for REST, and begins its work in the background, which end ends.
func (s *service) startREST(ctx context.Context) (end func()) {
	s.rest = httpapi.New(s.home, httpapi.Options{Log: s.log})
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { s.rest.Run(ctx) })
	return func() { cancel(); running.Wait() }
}

// listenNetwork begins to listen at the addresses of the settings, or goes on with what the program before has handed on.
// It gives nil if there are none.
func (s *service) listenNetwork(ctx context.Context) (*daemon.Network, error) {
	handed, err := handedListeners(s.ListenFDs)
	if err != nil || len(s.Listen) == 0 && len(handed) == 0 {
		return nil, err
	}
	n, err := daemon.ListenNetwork(ctx, daemon.NetworkOptions{
		Addresses: s.Listen, Cert: s.TLSCert, Key: s.TLSKey, Insecure: s.Insecure, Hosts: s.AllowHosts, Handed: handed,
	})
	if err != nil {
		return nil, err
	}
	for _, url := range n.URLs() {
		s.log.Info("serving the network", "url", url)
	}
	return n, nil
}

// handedListeners are the listeners that the program before has handed on, by the addresses that it was given.
func handedListeners(fds []string) (map[string]*os.File, error) {
	handed := map[string]*os.File{}
	for _, text := range fds {
		at := strings.LastIndexByte(text, '=')
		fd, err := strconv.Atoi(text[at+1:])
		if at < 0 || err != nil || fd < 3 {
			return nil, fmt.Errorf("%w: listener %q", sandbox.ErrInvalid, text)
		}
		handed[text[:at]] = os.NewFile(uintptr(fd), "listener")
	}
	return handed, nil
}

// handedOn are the listeners for a program that goes on as the daemon.
func (s *service) handedOn() map[string]*os.File {
	files, err := s.network.HandOver()
	if err != nil {
		s.log.Warn("the next program listens anew", "error", err)
	}
	return files
}

// tokenLimits are the limits of tokens of the settings.
func tokenLimits(o *cli.ServeOptions) *daemon.Limits {
	return &daemon.Limits{Rate: o.TokenRate, Burst: o.TokenBurst, Calls: o.TokenCalls, Upload: o.MaxUpload}
}
