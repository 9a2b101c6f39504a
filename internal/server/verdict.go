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
	ErrLeaseLost    = errors.New("jq: lease lost: the job may be running elsewhere")
	ErrLeaseUnknown = errors.New("jq: lease unknown: the store did not answer for the length of the lease")
	ErrCancelled    = errors.New("jq: job cancelled")
	ErrTimeout      = errors.New("jq: timed out")
	ErrDrained      = errors.New("jq: server stopping: the drain timeout is over")
)

var errStuck = errors.New("the handler did not return")

// A Wish is an error of a handler that decides what happens next.
type Wish struct {
	Form  store.Form // Never, After or Snooze
	Delay time.Duration
	Err   error // why; with Snooze it may be nil
}

func (w *Wish) Error() string {
	if w.Err == nil {
		return fmt.Sprintf("jq: %s for %v", w.Form, w.Delay)
	}
	return w.Err.Error()
}

func (w *Wish) Unwrap() error { return w.Err }

// A verdict is what to write about a run that has ended.
type verdict struct {
	op         writeOp
	result     []byte     // with ack
	form       store.Form // with nack
	delay      time.Duration
	reason     string
	otherwise  *verdict // with confirm: what to write if the transaction was not committed
	substitute bool     // it replaces a verdict that could not be written
	panicked   bool     // the reason is one line, then the stack
}

// A writeOp is the operation that writes a verdict. The log uses these words.
type writeOp string

const (
	nothing writeOp = "" // the lease is lost, or is left to expire
	ack     writeOp = "ack"
	nack    writeOp = "nack"
	confirm writeOp = "confirm" // the handler has finished the job in a transaction: check whether it was committed
)

func fail(reason string) verdict {
	return verdict{op: nack, form: store.Fail, reason: store.CleanError(reason)} // cut here, so that the rest is not held in memory
}

func release() verdict { return verdict{op: nack, form: store.Release} }

// success is the verdict of most runs, which share it.
var success = &verdict{op: ack}

// kept returns the verdict for its run to keep.
func (v verdict) kept() *verdict {
	if v.op == ack && len(v.result) == 0 {
		return success
	}
	kept := v // copied here, so that the others do not pay for the allocation
	return &kept
}

// confirmIfFinished returns the verdict, or a confirmation if the handler has finished the job in a transaction of its own: then the
// verdict is written only if that transaction was not committed.
func confirmIfFinished(r *Run, v verdict) verdict {
	if !r.inTx.Load() || v.op == nothing {
		return v
	}
	otherwise := v // copied here, so that other runs do not pay for the allocation
	if v.op == ack {
		otherwise = fail("the handler finished the job in a transaction that was not committed")
	}
	return verdict{op: confirm, otherwise: &otherwise}
}

// verdictOf turns the return value of a handler into a verdict. The cause says why the handler was cancelled; it is nil if it was not.
func verdictOf(r *Run, err, cause error) verdict {
	interrupted := err != nil && (errors.Is(err, context.Canceled) || errors.Is(err, cause))
	switch {
	case errors.Is(cause, ErrLeaseLost), errors.Is(cause, ErrCancelled):
		return verdict{} // the store would refuse any write
	case errors.Is(cause, ErrTimeout):
		return fail(timedOut(r, err))
	case (errors.Is(cause, ErrDrained) || errors.Is(cause, ErrLeaseUnknown)) && interrupted:
		return release() // the handler obeyed its cancellation, which was not the job's fault
	case err == nil:
		return verdict{op: ack, result: r.finalResult()}
	}
	if wish, ok := errors.AsType[*Wish](err); ok {
		return verdict{op: nack, form: wish.Form, delay: wish.Delay, reason: wishReason(wish, err)}
	}
	return fail(err.Error())
}

// panicked returns the verdict for a panic. Its message is cut, because the stack is worth more than the rest of a long message.
func panicked(p any, stack []byte) verdict {
	message := fmt.Sprintf("panic: %v", p)
	if len(message) > maxPanicBytes {
		message = message[:maxPanicBytes] + "… (cut)"
	}
	v := fail(message + "\n" + string(stack))
	v.panicked = true
	return v
}

const maxPanicBytes = store.MaxErrorBytes / 4

// wishReason returns the text to keep of the error. A snooze without a reason has none.
func wishReason(wish *Wish, err error) string {
	if wish.Err == nil {
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

// ending returns how the attempt ends if the store accepts the verdict.
func (v *verdict) ending() store.Ending {
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
