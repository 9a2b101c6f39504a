package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// Why a handler's context was cancelled, by context.Cause.
var (
	ErrLeaseLost    = errors.New("jq: lease lost, the job may run elsewhere")
	ErrLeaseUnknown = errors.New("jq: lease unknown, the store was not heard of for as long as it lasted")
	ErrCancelled    = errors.New("jq: job cancelled")
	ErrTimeout      = errors.New("jq: timed out")
	ErrDrained      = errors.New("jq: server stopping, drain time over")
)

var errStuck = errors.New("its handler did not return")

// A Wish is an error of a handler that says what is to happen next.
type Wish struct {
	Form  store.Form // Never, After or Snooze
	Delay time.Duration
	Err   error // nil with Snooze
}

func (w *Wish) Error() string {
	if w.Err == nil {
		return fmt.Sprintf("jq: %s for %v", w.Form, w.Delay)
	}
	return w.Err.Error()
}

func (w *Wish) Unwrap() error { return w.Err }

// A verdict is what is to be written of a run that has ended.
type verdict struct {
	op         writeOp
	result     []byte     // with ack
	form       store.Form // with nack
	delay      time.Duration
	reason     string
	otherwise  *verdict // with confirm: what is written if it was not committed
	substitute bool     // for another verdict that could not be written
	panicked   bool     // the reason is a line, and the stack below it
}

// A writeOp is the call by which a verdict reaches the store, in the words of the log.
type writeOp string

const (
	nothing writeOp = "" // the lease is gone, or is left to run out
	ack     writeOp = "ack"
	nack    writeOp = "nack"
	confirm writeOp = "confirm" // the handler has finished the job in a transaction of its own: see whether it was committed
)

func fail(reason string) verdict {
	return verdict{op: nack, form: store.Fail, reason: store.CleanError(reason)} // cut here: no need to hold the rest
}

func release() verdict { return verdict{op: nack, form: store.Release} }

// unlessFinished is the verdict, for the case that the handler has not finished the job in a transaction of its own.
func unlessFinished(r *Run, v verdict) verdict {
	if !r.inTx.Load() || v.op == nothing {
		return v
	}
	otherwise := v // a copy of its own: only this way pays for it
	if v.op == ack {
		otherwise = fail("its handler finished it in a transaction that was not committed")
	}
	return verdict{op: confirm, otherwise: &otherwise}
}

// judge makes of a handler's return what is to be written. The cause is why its context was cancelled, or nil.
func judge(r *Run, err, cause error) verdict {
	interrupted := err != nil && (errors.Is(err, context.Canceled) || errors.Is(err, cause))
	switch {
	case errors.Is(cause, ErrLeaseLost), errors.Is(cause, ErrCancelled):
		return verdict{} // refused anyway
	case errors.Is(cause, ErrTimeout):
		return fail(timedOut(r, err))
	case (errors.Is(cause, ErrDrained) || errors.Is(cause, ErrLeaseUnknown)) && interrupted:
		return release() // it is not the job's fault
	case err == nil:
		return verdict{op: ack, result: r.finalResult()}
	}
	if wish, ok := errors.AsType[*Wish](err); ok {
		return verdict{op: nack, form: wish.Form, delay: wish.Delay, reason: wishReason(wish, err)}
	}
	return fail(err.Error())
}

// panicked is the verdict on a panic. Its stack is worth more than all of a long message.
func panicked(p any, stack []byte) verdict {
	message := fmt.Sprintf("panic: %v", p)
	if len(message) > longestPanic {
		message = message[:longestPanic] + "… (cut)"
	}
	v := fail(message + "\n" + string(stack))
	v.panicked = true
	return v
}

const longestPanic = store.MaxErrorBytes / 4

// wishReason is the text that is kept of the error. A snooze is no failure and has none.
func wishReason(wish *Wish, err error) string {
	if wish.Form == store.Snooze {
		return ""
	}
	return store.CleanError(err.Error())
}

func timedOut(r *Run, err error) string {
	reason := fmt.Sprintf("timed out after %v", r.timeout)
	if err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, ErrTimeout) {
		reason += ": " + err.Error()
	}
	return reason
}

// ending is how the attempt ends when the store accepts the verdict.
func (v verdict) ending() store.Ending {
	switch {
	case v.op == ack, v.op == confirm:
		return store.EndSucceeded
	case v.form == store.Snooze:
		return store.EndSnoozed
	case v.form == store.Release:
		return store.EndReleased
	default:
		return store.EndFailed
	}
}
