//go:build unix

package chaos

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"sync"
	"time"
)

// What processes tell the ledger.
const (
	opStart  = "start"  // a handler has begun; refused: a later run has begun before
	opEffect = "effect" // what the job is for; refused: likewise
	opEnd    = "end"    // the handler returns
	opStale  = "stale"  // the store has refused a late write of this worker
	opNext   = "next"   // the producer asks what to enqueue; refused: nothing any more
	opFailed = "failed" // an enqueueing has failed, and is repeated
	opAdded  = "added"  // the store has acknowledged a call
	opCancel = "cancel" // the store has answered a cancellation
)

// A message is one line from a process to the ledger.
type message struct {
	Op      string
	Name    string // of the process
	Job     int64
	Token   int64
	N       int
	Call    int
	Doubt   bool // failed: in doubt, rather than surely not applied
	OK      bool // cancel: the job is cancelled
	Answers []answer

	Waited     time.Duration // start: how long the job was due, negative for a retry
	Goroutines int           // start: of the process
}

// An answer is what the store said of one enqueued job.
type answer struct {
	ID        int64
	Duplicate bool
}

// A reply is one line back.
type reply struct {
	OK   bool
	Call int
}

// A link is a process' way to the ledger. One question is asked at a time.
type link struct {
	name string

	mu  sync.Mutex // guards what follows
	in  *json.Decoder
	out *json.Encoder
}

func dialLedger(name, address string) (*link, error) {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	return &link{name: name, in: json.NewDecoder(conn), out: json.NewEncoder(conn)}, nil
}

// ask returns when the ledger has written down the message. Without a ledger nothing here makes sense.
func (l *link) ask(m message) reply {
	l.mu.Lock()
	defer l.mu.Unlock()
	m.Name = l.name
	var r reply
	err := l.out.Encode(m)
	if err == nil {
		err = l.in.Decode(&r)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "the ledger is gone:", err)
		os.Exit(exitOrphan)
	}
	return r
}
