// Package producer enqueues jobs from another process, like an application whose workers run elsewhere.
package producer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"time"

	"github.com/seed-ed332417/jq/bench/internal/peer"
)

// variable tells a process that it is a producer, and for which store.
const variable = "JQ_BENCH_PRODUCER"

// An opening is the variable's value.
type opening struct {
	Peer  string
	Place peer.Place
}

// A request is a line to the producer.
type request struct {
	Load peer.Load
	Pace int
}

// An answer is a line from the producer: the first when it is ready, then one for each request.
type answer struct {
	Called []time.Time
	Error  string
}

// A Producer is the other process.
type Producer struct {
	process *exec.Cmd
	to      io.WriteCloser
	lines   *json.Decoder
}

// Start runs this program again as a producer for the peer, and returns when the producer has opened the store.
func Start(ctx context.Context, id string, place peer.Place) (*Producer, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	o, err := json.Marshal(opening{Peer: id, Place: place})
	if err != nil {
		return nil, err
	}
	p := &Producer{process: exec.Command(program)}
	p.process.Env, p.process.Stderr = append(os.Environ(), variable+"="+string(o)), os.Stderr
	if p.to, err = p.process.StdinPipe(); err != nil {
		return nil, err
	}
	from, err := p.process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.lines = json.NewDecoder(from)
	if err := p.process.Start(); err != nil {
		return nil, err
	}
	if _, err := p.answer(ctx); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// PID returns the id of the process.
func (p *Producer) PID() int { return p.process.Process.Pid }

// Enqueue enqueues the load at so many jobs a second, one a call, and returns when each call began.
func (p *Producer) Enqueue(ctx context.Context, load peer.Load, pace int) (called []time.Time, err error) {
	if err := json.NewEncoder(p.to).Encode(request{Load: load, Pace: pace}); err != nil {
		return nil, err
	}
	return p.answer(ctx)
}

// answer waits for the next answer. If the context ends, it kills the process.
func (p *Producer) answer(ctx context.Context) ([]time.Time, error) {
	stop := context.AfterFunc(ctx, func() { _ = p.process.Process.Kill() })
	defer stop()
	var a answer
	err := p.lines.Decode(&a)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		return nil, fmt.Errorf("the producer has ended: %w", err)
	case a.Error != "":
		return nil, errors.New("the producer: " + a.Error)
	}
	return a.Called, nil
}

// Close ends the process and waits for it. The process closes its store first.
func (p *Producer) Close() error {
	return errors.Join(p.to.Close(), p.process.Wait())
}

// Main is the whole program in a process that Start has started. In others it returns at once.
func Main(peers []peer.Peer) {
	text, is := os.LookupEnv(variable)
	if !is {
		return
	}
	var o opening
	err := json.Unmarshal([]byte(text), &o)
	if err == nil {
		err = serve(context.Background(), peers, o, os.Stdin, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "producer:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// serve opens the store and answers requests until there are no more.
func serve(ctx context.Context, peers []peer.Peer, o opening, in io.Reader, out io.Writer) (err error) {
	i := slices.IndexFunc(peers, func(p peer.Peer) bool { return p.ID() == o.Peer })
	if i < 0 {
		return fmt.Errorf("there is no peer %q", o.Peer)
	}
	requests, answers := json.NewDecoder(in), json.NewEncoder(out)
	q, err := peers[i].Open(ctx, o.Place, func(context.Context, peer.Job) error { return errors.New("a producer does not work") })
	if err != nil {
		return errors.Join(err, answers.Encode(answer{Error: err.Error()}))
	}
	defer func() { err = errors.Join(err, q.Close(ctx)) }()
	if err := answers.Encode(answer{}); err != nil {
		return err
	}
	for {
		var r request
		if err := requests.Decode(&r); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		var a answer
		if a.Called, err = peer.Steadily(ctx, q, r.Load, r.Pace); err != nil {
			a.Error = err.Error()
		}
		if err := answers.Encode(a); err != nil {
			return err
		}
	}
}
