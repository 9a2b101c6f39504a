package random

import (
	"fmt"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/seed-ed332417/jq/internal/store"
)

// An acking is an Ack on a picked lease.
type acking struct {
	lease
	result []byte
}

func (a acking) String() string { return fmt.Sprintf("%v result %q", a.lease, a.result) }

func drawAcking(t *rapid.T) acking { return acking{drawForgeable(t), drawDoc(t)} }

func ack(t *rapid.T) op {
	ackings := several(t, drawAcking, func(a *acking, before acking) { a.lease = before.lease })
	return op{"ack " + texts(ackings), func(r *run) error {
		var acks []store.Ack
		var leases []store.Lease
		for _, a := range ackings {
			acks = append(acks, store.Ack{Lease: a.of(r), Result: a.result})
			leases = append(leases, acks[len(acks)-1].Lease)
		}
		return r.onLeases([]store.Op{store.OpAck}, leases, func(s store.Store) ([]store.Outcome, error) {
			return s.Ack(r.ctx, acks)
		})
	}}
}

// A nacking is a NAck on a picked lease.
type nacking struct {
	lease
	nack store.NAck
}

func (n nacking) String() string {
	text := fmt.Sprintf("%s %v", n.nack.Form, n.lease)
	if n.nack.Delay != 0 {
		text += fmt.Sprintf(" for %v", n.nack.Delay)
	}
	return text
}

func drawNacking(t *rapid.T) nacking {
	n := nacking{drawForgeable(t), store.NAck{Form: among(t, store.Fail, store.Never, store.After, store.Snooze, store.Release)}}
	switch n.nack.Form {
	case store.After, store.Snooze:
		n.nack.Delay = among(t, 0, time.Second, 1999*time.Nanosecond, time.Hour)
	}
	if rarely(t, 2) {
		n.nack.Error = among(t, "boom", "bad \xff and \x00")
	}
	if rarely(t, 100) {
		n.nack.Error = strings.Repeat("é", store.MaxErrorBytes)
	}
	if rarely(t, 40) {
		n.nack.Delay = -time.Second
	}
	return n
}

func nack(t *rapid.T) op {
	nackings := several(t, drawNacking, func(n *nacking, before nacking) { n.lease = before.lease })
	return op{"nack " + texts(nackings), func(r *run) error {
		var nacks []store.NAck
		var leases []store.Lease
		var ops []store.Op
		for _, n := range nackings {
			n.nack.Lease = n.of(r)
			nacks, leases, ops = append(nacks, n.nack), append(leases, n.nack.Lease), append(ops, store.Op(n.nack.Form))
		}
		return r.onLeases(ops, leases, func(s store.Store) ([]store.Outcome, error) { return s.NAck(r.ctx, nacks) })
	}}
}
