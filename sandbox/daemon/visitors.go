package daemon

import (
	"crypto/tls"
	"net"
	"net/netip"
	"sync"

	"snapfs/internal/lockorder"
)

// visitors count the connections from the network. An address may have as many as it leaves free, and one in any case
// while one is free.
type visitors struct {
	most int // immutable

	mu   lockorder.Mutex[lockorder.DaemonVisitors]
	used int            // guarded by mu
	of   map[string]int // guarded by mu: by address, none that is 0
}

func newVisitors(most int) *visitors { return &visitors{most: most, of: map[string]int{}} }

// enter counts a connection, or refuses it.
func (v *visitors) enter(address string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	own, free := v.of[address], v.most-v.used
	if free <= 0 || own > 0 && own >= free {
		return false
	}
	v.used++
	v.of[address]++
	return true
}

func (v *visitors) leave(address string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.used--
	if v.of[address]--; v.of[address] == 0 {
		delete(v.of, address)
	}
}

// visited is a listener whose connections are counted. Those for which there is no room are closed.
type visited struct {
	*net.TCPListener
	room *visitors
}

// Accept implements net.Listener.
func (l *visited) Accept() (net.Conn, error) {
	for {
		c, err := l.AcceptTCP()
		if err != nil {
			return nil, err
		}
		from := addressOf(c.RemoteAddr())
		if l.room.enter(from) {
			return &visit{TCPConn: c, from: from, room: l.room}, nil
		}
		_ = c.Close() // nothing was read or written
	}
}

// visit is a connection from the network.
type visit struct {
	*net.TCPConn
	from string
	room *visitors
	once sync.Once
}

// Close implements net.Conn.
func (c *visit) Close() error {
	err := c.TCPConn.Close()
	c.once.Do(func() { c.room.leave(c.from) })
	return err
}

// addressOf is by what visitors are told apart: an address, or the network of which one may have any address.
func addressOf(a net.Addr) string {
	ap, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return a.String()
	}
	ip := ap.Addr().Unmap().WithZone("")
	if ip.Is6() && !ip.IsLoopback() {
		if p, err := ip.Prefix(64); err == nil {
			return p.String()
		}
	}
	return ip.String()
}

// visitOf is the connection from the network under a connection; nil if it is another one.
func visitOf(c net.Conn) *visit {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	v, _ := c.(*visit)
	return v
}
