package peers

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"sync"

	"github.com/lib/pq"

	"github.com/seed-ed332417/jq/bench/internal/peer"
)

func nodePeers() []peer.Peer {
	return []peer.Peer{
		{
			Name: "graphile-worker", Store: peer.Postgres, Version: "0.17.2", Node: true, Handlers: 100,
			Settings: "node, 20 connections; a local queue of 500, completions in batches; bulk by addJobs",
			Open: openNode("graphile-worker", `
				SELECT count(*), 0
				FROM graphile_worker._private_jobs`),
		},
		{
			Name: "pg-boss", Store: peer.Postgres, Version: "10.4.2", Node: true, Handlers: 4000, Keeps: true,
			Settings: "node, 20 connections; 4 workers that take 1,000 jobs at a time, and the next ones at once after a full batch; " +
				"bulk by insert",
			Skips: map[string]string{
				"latency": "it looks for jobs every 0.5 s at most", "failing": "a job that fails takes the other 999 of its batch along",
			},
			Open: openNode("pg-boss", `
				SELECT count(*) FILTER (WHERE state <> 'completed'), count(*) FILTER (WHERE state = 'completed')
				FROM pgboss.job
				WHERE name = 'bench'`),
		},
	}
}

// nodeQueue is a peer in a separate process, controlled by lines of JSON. The process does the handlers' work.
type nodeQueue struct {
	db      *sql.DB
	count   string // the query
	process *exec.Cmd
	started func(int64)
	read    sync.WaitGroup
	over    chan struct{} // closed when no more answers will come

	mu      sync.Mutex // guards the fields below
	to      io.WriteCloser
	next    int
	waiting map[int]chan error
}

// A nodeLine is a message in either direction.
type nodeLine struct {
	ID       int         `json:"id"`
	Op       string      `json:"op,omitempty"`
	First    int64       `json:"first"`
	Jobs     int         `json:"jobs,omitempty"`
	Callers  int         `json:"callers,omitempty"`
	Batch    int         `json:"batch,omitempty"`
	Tx       bool        `json:"tx,omitempty"`
	Shape    *peer.Shape `json:"shape,omitempty"`
	Handlers int         `json:"handlers,omitempty"`
	Started  []int64     `json:"started,omitempty"`
	Error    string      `json:"error,omitempty"`
}

func openNode(name, count string) func(ctx context.Context, p peer.Place, handle peer.Handler) (peer.Queue, error) {
	return func(ctx context.Context, p peer.Place, handle peer.Handler) (peer.Queue, error) {
		config, err := pq.NewConfig(p.DSN)
		if err != nil {
			return nil, err
		}
		settings, err := json.Marshal(map[string]any{"connection": map[string]any{
			"host": config.Host, "port": config.Port, "user": config.User, "database": config.Database,
		}})
		if err != nil {
			return nil, err
		}
		db, err := sql.Open("postgres", p.DSN)
		if err != nil {
			return nil, err
		}
		q := &nodeQueue{db: db, count: count, started: handle.Started, over: make(chan struct{}), waiting: map[int]chan error{}}
		q.process = exec.Command("node", "peer.mjs", name, string(settings))
		q.process.Dir = p.Node
		if err := q.start(ctx); err != nil {
			return nil, errors.Join(err, db.Close())
		}
		return q, nil
	}
}

// start waits until the process is ready.
func (q *nodeQueue) start(ctx context.Context) (err error) {
	if q.to, err = q.process.StdinPipe(); err != nil {
		return err
	}
	from, err := q.process.StdoutPipe()
	if err != nil {
		return err
	}
	ready := make(chan error, 1)
	q.waiting[q.next] = ready
	if err := q.process.Start(); err != nil {
		return err
	}
	q.read.Go(func() { q.listen(from) })
	if err := q.answer(ctx, ready); err != nil {
		return errors.Join(err, q.end())
	}
	return nil
}

func (q *nodeQueue) listen(from io.Reader) {
	defer close(q.over)
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var line nodeLine
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			continue // output of a package
		}
		if line.Started != nil {
			for _, number := range line.Started {
				q.started(number)
			}
			continue
		}
		q.mu.Lock()
		asked := q.waiting[line.ID]
		delete(q.waiting, line.ID)
		q.mu.Unlock()
		if asked == nil {
			continue
		}
		if line.Error != "" {
			asked <- errors.New(line.Error)
		} else {
			asked <- nil
		}
	}
}

// ask sends the command and waits for its answer.
func (q *nodeQueue) ask(ctx context.Context, command nodeLine) error {
	asked := make(chan error, 1)
	q.mu.Lock()
	q.next++
	command.ID = q.next
	q.waiting[command.ID] = asked
	line, err := json.Marshal(command)
	if err == nil {
		_, err = q.to.Write(append(line, '\n'))
	}
	q.mu.Unlock()
	if err != nil {
		return err
	}
	return q.answer(ctx, asked)
}

func (q *nodeQueue) answer(ctx context.Context, asked <-chan error) error {
	select {
	case err := <-asked:
		return err
	case <-q.over:
		return errors.New("the process of node has ended")
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (q *nodeQueue) Enqueue(ctx context.Context, load peer.Load) error {
	return q.ask(ctx, nodeLine{
		Op: "enqueue", First: load.First, Jobs: load.Jobs, Callers: load.Callers, Batch: load.Batch, Tx: load.Tx, Shape: &load.Shape,
	})
}

func (q *nodeQueue) Work(ctx context.Context, handlers int) error {
	return q.ask(ctx, nodeLine{Op: "work", Handlers: handlers})
}

func (q *nodeQueue) Count(ctx context.Context) (c peer.Counts, err error) {
	err = q.db.QueryRowContext(ctx, q.count).Scan(&c.Unfinished, &c.Finished)
	return c, err
}

func (q *nodeQueue) Close(ctx context.Context) error {
	err := q.ask(ctx, nodeLine{Op: "stop"})
	return errors.Join(err, q.end(), q.db.Close())
}

// end ends the process by closing its input, or kills it if that does not help.
func (q *nodeQueue) end() error {
	if err := q.to.Close(); err != nil {
		return fmt.Errorf("ending node: %w", err)
	}
	if q.process.ProcessState == nil {
		_ = q.process.Process.Kill() // it has already stopped its queue, or never will
	}
	q.read.Wait()
	_ = q.process.Wait() // returns that it was killed
	return nil
}
