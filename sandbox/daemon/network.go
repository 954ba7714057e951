package daemon

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync/atomic"

	"snapfs/sandbox"
	"snapfs/sandbox/api"
	"snapfs/sandbox/api/wire"
)

// NetworkOptions say at which addresses a daemon serves besides its socket.
type NetworkOptions struct {
	// Addresses are HOST:PORT, or a port alone, which is one of 127.0.0.1. Port 0 is any that is free.
	Addresses []string
	// Cert and Key are PEM files of a certificate with its chain and of its key; both or neither.
	Cert, Key string
	// Insecure allows addresses that other machines reach without a certificate.
	Insecure bool
	// Hosts are names by which clients may call an address of this machine alone, besides localhost and its numbers: a
	// proxy's, as a rule.
	Hosts []string
	// Handed are listeners that the program before has handed on, by their Addresses as they were asked for.
	Handed map[string]*os.File
}

// Network are the addresses at which a daemon serves. Safe for concurrent use.
type Network struct {
	hosts     []string
	cert, key string
	pair      atomic.Pointer[tls.Certificate] // nil: plain HTTP
	addresses []string                        // as they were asked for
	listeners []*net.TCPListener              // by addresses
}

// ListenNetwork begins to listen. ErrInvalid for addresses and files that are of no use, ErrUnavailable for what cannot be
// had now.
func ListenNetwork(ctx context.Context, o NetworkOptions) (_ *Network, err error) {
	n := &Network{hosts: o.Hosts, cert: o.Cert, key: o.Key}
	defer func() {
		for _, f := range o.Handed { // a listener has a descriptor of its own
			_ = f.Close()
		}
		if err != nil {
			_ = n.Close()
		}
	}()
	if (o.Cert == "") != (o.Key == "") {
		return nil, fmt.Errorf("%w: a certificate needs its key, and a key its certificate", sandbox.ErrInvalid)
	}
	if err := n.Reload(); err != nil {
		return nil, err
	}
	for _, address := range o.Addresses {
		at, err := o.check(address)
		if err != nil {
			return nil, err
		}
		l, err := listenAt(ctx, at, o.Handed[address])
		if err != nil {
			return nil, wire.Unavailable("listening at %s: %w", address, err)
		}
		n.addresses, n.listeners = append(n.addresses, address), append(n.listeners, l)
	}
	return n, nil
}

// listenAt listens at an address, or goes on with a listener that was handed on.
func listenAt(ctx context.Context, at string, handed *os.File) (*net.TCPListener, error) {
	var l net.Listener
	var err error
	if handed != nil {
		l, err = net.FileListener(handed)
	} else {
		kind := "tcp"
		if ap, e := netip.ParseAddrPort(at); e == nil && ap.Addr().Is4() {
			kind = "tcp4" // else 0.0.0.0 is all addresses of IPv6, too
		}
		l, err = (&net.ListenConfig{}).Listen(ctx, kind, at)
	}
	if err != nil {
		return nil, err
	}
	t, ok := l.(*net.TCPListener)
	if !ok {
		return nil, errors.Join(fmt.Errorf("it is a %T", l), l.Close())
	}
	return t, nil
}

// check gives an address as net.Listen takes it, and refuses one that other machines reach without encryption.
func (o *NetworkOptions) check(address string) (string, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil && !strings.ContainsAny(address, ":[]") {
		host, port, err = "", address, nil
	}
	number, numberErr := strconv.ParseUint(port, 10, 16)
	if err != nil || numberErr != nil {
		return "", fmt.Errorf("%w: address %s to listen at: it is HOST:PORT, or a port of this machine alone",
			sandbox.ErrInvalid, api.Quoted(address))
	}
	if host == "" {
		host = "127.0.0.1"
	}
	if o.Cert == "" && !o.Insecure && !loopback(host) {
		return "", fmt.Errorf("%w: other machines reach address %s: tokens would travel in the clear: give a certificate "+
			"(--tls-cert, --tls-key), or say --insecure if something else encrypts", sandbox.ErrInvalid, api.Quoted(address))
	}
	return net.JoinHostPort(host, strconv.FormatUint(number, 10)), nil
}

// loopback reports whether a host of an address is this machine alone.
func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Reload reads the certificate anew. After an error the one before counts.
func (n *Network) Reload() error {
	if n == nil || n.cert == "" {
		return nil
	}
	pair, err := tls.LoadX509KeyPair(n.cert, n.key)
	if err != nil {
		return fmt.Errorf("%w: certificate: %w", sandbox.ErrInvalid, err)
	}
	n.pair.Store(&pair)
	return nil
}

// URLs are the addresses as clients call them.
func (n *Network) URLs() []string {
	if n == nil {
		return nil
	}
	urls := make([]string, len(n.listeners))
	for i, l := range n.listeners {
		scheme := "http"
		if n.pair.Load() != nil {
			scheme = "https"
		}
		urls[i] = scheme + "://" + l.Addr().String()
	}
	return urls
}

// HandOver gives copies of the listeners for a program that goes on as the daemon in this process, by their addresses as
// they were asked for. Those who connect meanwhile wait in them.
func (n *Network) HandOver() (map[string]*os.File, error) {
	if n == nil {
		return nil, nil
	}
	files := map[string]*os.File{}
	for i, l := range n.listeners {
		f, err := l.File()
		if err != nil {
			return files, err
		}
		files[n.addresses[i]] = f
	}
	return files, nil
}

// Close ends listening; connections go on.
func (n *Network) Close() error {
	if n == nil {
		return nil
	}
	var errs []error
	for _, l := range n.listeners {
		if err := l.Close(); !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// accepting gives listeners for a server: their connections are bounded, and encrypted if there is a certificate.
func (n *Network) accepting(most int) []net.Listener {
	if n == nil {
		return nil
	}
	room := newVisitors(most)
	var all []net.Listener
	for _, l := range n.listeners {
		var from net.Listener = &visited{TCPListener: l, room: room}
		if n.pair.Load() != nil {
			from = tls.NewListener(from, &tls.Config{
				MinVersion:     tls.VersionTLS12,
				NextProtos:     []string{"http/1.1"}, // one request at a time of a connection: connections are bounded
				GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return n.pair.Load(), nil },
			})
		}
		all = append(all, from)
	}
	return all
}
