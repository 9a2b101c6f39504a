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
// A round trip to the server takes longer than most statements. So a claim sends its look with the opening of its transaction,
// and its UPDATE with the COMMIT. If it expects to find nothing, it sends everything in one message. If a statement in a
// message fails, the server skips the rest.
//
// A message of several statements has no parameters. It executes prepared statements by name, with arguments written as
// literals, from which the server makes the same values. Payloads are never written as literals, because the server shows the
// texts of statements to its administrators and writes them to its log.
//
// A statement that is executed by name sees the tables as they were before it waited for their locks. If another session was
// just changing a table, the statement may silently see no row of it. So the transaction must already have the locks.

// A pipelinedCall is a statement that can share a message with others. The zero value is none.
type pipelinedCall struct {
	scan  sqlkit.Scan
	query string
	args  []any
}

// A looker is a call that begins with a look. Its transaction may already be over when it runs: see [txn.over].
type looker[T any] interface {
	look() (first pipelinedCall, expectsNothing bool) // called when the transaction begins
	run(t *txn) (T, error)
	missed() bool // the look has found something, but its transaction was over
}

// lookFirst runs a call that sends its look with the opening of its transaction. If the look is expected to find nothing, the
// COMMIT goes with it too, and the call costs one round trip. If it finds something after all, the call runs again in a
// transaction that stays open.
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

// single runs one statement in its own transaction. Once the session has prepared the statement, this takes one message.
func (s *Store) single(ctx context.Context, with opening, only pipelinedCall) error {
	with.first = func() (pipelinedCall, bool) { return only, true }
	_, err := call(ctx, s, nil, with, func(t *txn) (struct{}, error) { return struct{}{}, t.first(only) })
	return err
}

// first runs the statement, unless it was sent with the opening.
func (t *txn) first(c pipelinedCall) error {
	if t.ahead {
		return nil
	}
	return t.each(c.scan, c.query, c.args...)
}

// compose returns the message that begins a transaction, the scans of its answers, and whether it also ends the transaction.
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
	message += t.s.sql(`; LOCK TABLE {schema}.jobs, {schema}.leases IN ACCESS SHARE MODE; `) + text
	if only {
		message += `; COMMIT`
	}
	return message, append(scans, first.scan), only, nil
}

// last runs the last statement before the COMMIT, in one message with it if possible. The transaction must have the locks.
func (t *txn) last(query string, args ...any) (err error) {
	t.final, err = t.text(pipelinedCall{query: query, args: args})
	if t.final == "" && err == nil {
		_, err = t.exec(query, args...)
	}
	return err
}

// text returns the statement as a part of a message. It is empty if the statement must be sent by itself: in a caller's
// transaction, where nothing is prepared, and on its first use.
func (t *txn) text(c pipelinedCall) (string, error) {
	if c.query == "" || t.session == nil {
		return "", nil
	}
	name, err := t.session.name(t.wire, t.s.sql(c.query))
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

// literal returns the argument as a literal. A zero byte would end the message, but the contract refuses texts with one.
func literal(arg any) string {
	switch v := arg.(type) {
	case nil:
		return `NULL`
	case time.Time:
		arg = string(pq.FormatTimestamp(v))
	}
	return pq.QuoteLiteral(fmt.Sprint(arg))
}
