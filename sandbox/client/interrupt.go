package client

import (
	"context"
	"crypto/rand"
	"time"

	"snapfs/sandbox/api/wire"
)

const (
	// outcomeWait is how long a client waits to learn what became of a call that it has interrupted.
	outcomeWait = 10 * time.Second
	// cancelRetry is the wait before a cancellation is repeated, because the daemon has not received the call yet.
	cancelRetry = 20 * time.Millisecond
)

// lasting are the calls that change something: a caller that interrupts one must learn whether it took effect.
var lasting = map[string]bool{
	wire.CallCreate: true, wire.CallUp: true, wire.CallMount: true, wire.CallUnmount: true, wire.CallSnapshot: true,
	wire.CallRestore: true, wire.CallBranch: true, wire.CallFork: true, wire.CallDelete: true, wire.CallDestroy: true,
	wire.CallExport: true, wire.CallGC: true, wire.CallCheck: true, wire.CallPrune: true, wire.CallRollback: true,
	wire.CallApply: true, wire.CallBase: true, wire.CallPause: true, wire.CallResume: true, wire.CallExtract: true,
	wire.CallPutFile: true, wire.CallEditFile: true, wire.CallMakeDir: true, wire.CallMoveFile: true,
	wire.CallRemoveFile:   true,
	wire.CallSetPosition:  true,
	wire.CallLabel:        true,
	wire.CallSaveDocument: true, wire.CallDeleteDocument: true, wire.CallDeleteAgentSession: true,
}

// exchange is the client's side of one call: its request and the way to interrupt it.
type exchange struct {
	ctx     context.Context // of the connection: outlives the caller's by what the final answer may take
	id      string          // "" for a call that may simply be cut off
	cut     context.CancelFunc
	stop    func() bool   // of the caller's context: true if it has not asked for anything
	settled chan struct{} // closed when the daemon was asked and nothing more is awaited
}

// newExchange prepares a call. Its end must be called when the call returns.
func (c *Client) newExchange(ctx context.Context, name string) *exchange {
	x := &exchange{settled: make(chan struct{})}
	if !lasting[name] {
		x.ctx, x.cut = context.WithCancel(ctx)
		x.stop = func() bool { return true }
		return x
	}
	x.id = rand.Text()
	x.ctx, x.cut = context.WithCancel(context.WithoutCancel(ctx))
	x.stop = context.AfterFunc(ctx, func() {
		defer close(x.settled)
		c.interrupt(x)
	})
	return x
}

// end closes the exchange and waits for what interrupts it.
func (x *exchange) end() {
	x.cut()
	if !x.stop() {
		<-x.settled
	}
}

// interrupt asks the daemon to cancel a call, leaves it time for the final answer, and cuts the connection.
func (c *Client) interrupt(x *exchange) {
	defer x.cut()
	ctx, cancel := context.WithTimeout(x.ctx, outcomeWait)
	defer cancel()
	for ctx.Err() == nil {
		// A daemon that is ending refuses, but cancels its calls by itself: their final answer comes all the same.
		res, err := call[wire.CancelResult](ctx, c, wire.CallCancel, wire.CancelRequest{Call: x.id}, sink{})
		if err != nil || res.Found {
			break
		}
		wait(ctx, cancelRetry)
	}
	<-ctx.Done()
}

// cutOff is the error of a call whose connection was given up.
func (x *exchange) cutOff(dir string) error {
	if x.id == "" {
		return x.ctx.Err()
	}
	return wire.Unavailable("the daemon of %s does not tell within %s what became of the interrupted call",
		dir, outcomeWait)
}

// wait waits for a time or for ctx.
func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
