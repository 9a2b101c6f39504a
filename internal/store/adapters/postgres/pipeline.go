package postgres

import (
	"fmt"
	"strings"
	"time"

	"github.com/lib/pq"

	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

// What travels together.
//
// A message to the server and its answer take longer than most statements. So the first look of a claim goes with the opening
// of its transaction, and the leases that it gives with the COMMIT. Where nothing is expected, all is one message. Whatever fails
// in such a message ends it: what comes behind is not run.
//
// A message of several statements has no parameters. What it executes was prepared by a name, and its arguments are written
// out, as literals of which the server makes what a parameter would be. Payloads never are: texts of statements are shown to
// whoever looks after the server, and written to its log.
//
// What is executed by a name sees the tables as they were before it waited for their locks. If another session was changing a
// table just then, it may see no row of it, and say nothing. So the transaction must have the locks already.

// A pipelinedCall is a statement that can go with others, or none.
type pipelinedCall struct {
	scan  sqlkit.Scan
	query string
	args  []any
}

// compose is the message that begins a transaction, and what reads the rows of its answer.
func (t *txn) compose(with opening, times sqlkit.Scan) (message string, scans []sqlkit.Scan, err error) {
	message, err = t.text(pipelinedCall{query: with.ask})
	if err != nil {
		return "", nil, err
	}
	if message == "" {
		message = with.ask
	}
	message, scans = with.begin+message, []sqlkit.Scan{times}
	if with.ahead == nil {
		return message, scans, nil
	}
	first, only := with.ahead()
	text, err := t.text(first)
	if text == "" || err != nil {
		return message, scans, err
	}
	t.ahead, t.whole = true, only
	message += t.s.sql(`; LOCK TABLE {schema}.jobs IN ACCESS SHARE MODE; `) + text
	if only {
		message += `; COMMIT`
	}
	return message, append(scans, first.scan), nil
}

// last runs a statement after which nothing but the COMMIT comes, and with it, where it can. The transaction has the locks.
func (t *txn) last(query string, args ...any) (err error) {
	t.final, err = t.text(pipelinedCall{query: query, args: args})
	if t.final == "" && err == nil {
		_, err = t.exec(query, args...)
	}
	return err
}

// text is the call as a part of a message. It is empty where it has to go by itself: in a caller's transaction, where
// nothing is prepared, and when it comes for the first time.
func (t *txn) text(e pipelinedCall) (string, error) {
	if e.query == "" || t.session == nil {
		return "", nil
	}
	name, err := t.session.name(t.ctx, t.s.sql(e.query))
	if name == "" || err != nil {
		return "", err
	}
	if len(e.args) == 0 {
		return `EXECUTE ` + name, nil
	}
	args := make([]string, len(e.args))
	for i, arg := range e.args {
		args[i] = literal(arg)
	}
	return `EXECUTE ` + name + ` (` + strings.Join(args, `, `) + `)`, nil
}

// literal is the argument as it is written out. None has a zero byte, which the server would take for the end of the message:
// the contract refuses it.
func literal(arg any) string {
	switch v := arg.(type) {
	case nil:
		return `NULL`
	case time.Time:
		arg = string(pq.FormatTimestamp(v))
	}
	return pq.QuoteLiteral(fmt.Sprint(arg))
}
