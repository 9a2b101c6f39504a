package postgres

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/lib/pq"

	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

// Pipelining.
//
// A round trip to the server takes longer than most statements. So the look of a claim goes with the opening of its transaction, and the
// leases that it gives with the COMMIT. Where nothing is expected, all goes in one message. If a statement in a message fails, the server
// skips those behind it.
//
// A message of several statements has no parameters. What it executes was prepared under a name, and its arguments are written out as
// literals, from which the server makes what a parameter would be. Payloads are never written out: the texts of statements are shown to
// whoever looks after the server, and stand in its log.
//
// A statement that is executed by its name sees the tables as they were before it waited for their locks. If another session was just
// changing a table, it may see no row of it, and say nothing. So the transaction must have the locks already.

// A pipelinedCall is a statement that can go with others in one message. The zero value is none.
type pipelinedCall struct {
	scan  sqlkit.Scan
	query string
	args  []any
}

// A looker is a call that begins with a look. Its transaction may be over by the time that it runs: see [txn.over].
type looker[T any] interface {
	look() (first pipelinedCall, expectsNothing bool) // the look, asked for when the transaction begins
	run(t *txn) (T, error)
	missed() bool // the look has found something, but its transaction was over
}

// lookFirst runs a call whose look goes with the opening of its transaction. If nothing is expected, so does the COMMIT, and the call costs
// one round trip. If the look finds something all the same, the call runs again, in a transaction that stays open.
func lookFirst[T any](ctx context.Context, s *Store, invalid error, l looker[T]) (answer T, err error) {
	for again := false; ; again = true {
		with := s.with.write
		with.first = func() (pipelinedCall, bool) {
			first, expectsNothing := l.look()
			return first, expectsNothing && !again
		}
		if answer, err = call(ctx, s, invalid, with, l.run); err != nil || !l.missed() {
			return answer, err
		}
	}
}

// single runs a statement in a transaction of its own: in one message, once its session has prepared it.
func (s *Store) single(ctx context.Context, with opening, only pipelinedCall) error {
	with.first = func() (pipelinedCall, bool) { return only, true }
	_, err := call(ctx, s, nil, with, func(t *txn) (struct{}, error) { return struct{}{}, t.first(only) })
	return err
}

// first runs the statement, unless it went with the opening.
func (t *txn) first(c pipelinedCall) error {
	if t.ahead {
		return nil
	}
	return t.each(c.scan, c.query, c.args...)
}

// compose is the message that begins a transaction, what reads the rows of its answers, and whether the transaction is over with it.
func (t *txn) compose(with opening, row sqlkit.Scan) (message string, scans []sqlkit.Scan, over bool, err error) {
	ask, err := t.text(pipelinedCall{query: with.ask})
	if err != nil {
		return "", nil, false, err
	}
	message, scans = with.begin+cmp.Or(ask, with.ask), []sqlkit.Scan{row}
	if with.first == nil {
		return message, scans, false, nil
	}
	first, only := with.first()
	text, err := t.text(first)
	if t.ahead = text != ""; !t.ahead {
		return message, scans, false, err
	}
	message += t.s.sql(`; LOCK TABLE {schema}.jobs IN ACCESS SHARE MODE; `) + text
	if only {
		message += `; COMMIT`
	}
	return message, append(scans, first.scan), only, nil
}

// last runs the statement after which nothing but the COMMIT comes, together with that if it can. The transaction has the locks.
func (t *txn) last(query string, args ...any) (err error) {
	t.final, err = t.text(pipelinedCall{query: query, args: args})
	if t.final == "" && err == nil {
		_, err = t.exec(query, args...)
	}
	return err
}

// text is the statement as a part of a message. It is empty where the statement has to go by itself: in a caller's transaction, where
// nothing is prepared, and when it comes for the first time.
func (t *txn) text(c pipelinedCall) (string, error) {
	if c.query == "" || t.session == nil {
		return "", nil
	}
	name, err := t.session.name(t.ctx, t.s.sql(c.query))
	if name == "" || err != nil {
		return "", err
	}
	if len(c.args) == 0 {
		return `EXECUTE ` + name, nil
	}
	args := make([]string, len(c.args))
	for i, arg := range c.args {
		args[i] = literal(arg)
	}
	return `EXECUTE ` + name + ` (` + strings.Join(args, `, `) + `)`, nil
}

// literal is the argument as it is written out. None has a zero byte, which the server would take for the end of the message: the contract
// refuses it.
func literal(arg any) string {
	switch v := arg.(type) {
	case nil:
		return `NULL`
	case time.Time:
		arg = string(pq.FormatTimestamp(v))
	}
	return pq.QuoteLiteral(fmt.Sprint(arg))
}
