package cli

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/contract"
	"github.com/seed-ed332417/jq/internal/wire"
)

// lineFlags are the flags that can be combined with --lines. The others apply to a single job.
var lineFlags = []string{"queue", "max-retries", "backoff", "backoff-cap", "request-key", "lines", "json", "no-migrate"}

func (a *app) enqueueLines(cmd *cobra.Command, o order, args []string) error {
	if len(args) > 0 {
		return misuse("unexpected argument %q: with --lines, put kind and payload in the lines", args[0])
	}
	if err := onlyFlags(cmd, lineFlags); err != nil {
		return err
	}
	from, size, err := a.openLines(o.lines)
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }()
	return a.using(cmd.Context(), toFill, func(s jq.Store) error {
		l := newLoad(a, s, o, size)
		defer l.bar.end()
		return l.run(cmd.Context(), from)
	})
}

// openLines opens a file, or standard input if the name is -. The size is zero if unknown.
func (a *app) openLines(name string) (from io.ReadCloser, size int64, err error) {
	if name == "-" {
		return io.NopCloser(a.in), 0, nil
	}
	file, err := os.Open(name)
	if err != nil {
		return nil, 0, err
	}
	if info, err := file.Stat(); err == nil && info.Mode().IsRegular() {
		size = info.Size()
	}
	return file, size, nil
}

// onlyFlags returns an error for a flag on the command line that would have no effect with --lines.
func onlyFlags(cmd *cobra.Command, heeded []string) error {
	for _, name := range changed(cmd) {
		ofEvery := cmd.InheritedFlags().Lookup(name) != nil // flags of all commands, such as --server
		if !ofEvery && !slices.Contains(heeded, name) {
			return misuse("--%s cannot be combined with --lines: set it in the lines", name)
		}
	}
	return nil
}

// A load reads jobs from lines and enqueues them in batches.
type load struct {
	app      *app
	store    jq.Store
	defaults jq.NewJob
	keyOf    func(call int) string                // returns the request key of a call
	again    string                               // the flag to add when repeating the command
	parse    func(line []byte) (jq.NewJob, error) // returns errLeftOut to skip the line
	longest  int                                  // maximum bytes of a line
	expired  *int64                               // counts jobs that have expired, which are left out; if nil, they are an error
	asJSON   bool
	bar      *progress

	size  int64 // bytes of the file, zero if unknown
	read  int64 // bytes read so far
	line  int   // number of the latest line
	calls int

	jobs  []jq.NewJob // the next batch
	lines []int       // their line numbers
	bytes int         // upper limit of their size
	waits int         // number of jobs that they wait for

	added, replaced, duplicates int64
	addedTo                     int // all lines up to and including this one are in the store
}

func newLoad(a *app, s jq.Store, o order, size int64) *load {
	key := cmp.Or(o.requestKey, rand.Text())
	l := &load{
		app: a, store: s, longest: maxLine, asJSON: o.asJSON, bar: a.progress(), size: size,
		keyOf:    func(call int) string { return fmt.Sprintf("%s/%d", key, call) },
		again:    " with --request-key " + key,
		defaults: jq.NewJob{Queue: o.job.Queue, Payload: []byte("null"), MaxRetries: o.job.MaxRetries, Backoff: o.job.Backoff},
	}
	l.parse = l.parseNew
	return l
}

// maxLine is the maximum length of a line: a payload, and as much again for the other fields.
const maxLine = 2 * contract.MaxDocBytes

func (l *load) run(ctx context.Context, from io.Reader) error {
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, l.longest)
	for lines.Scan() {
		l.line++
		l.read += int64(len(lines.Bytes())) + 1
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		if err := l.take(ctx, lines.Bytes()); err != nil {
			return l.soFar(err)
		}
	}
	switch err := lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return l.soFar(fmt.Errorf("line %d is longer than %d bytes", l.line+1, l.longest))
	case err != nil:
		return l.soFar(fmt.Errorf("reading line %d: %w", l.line+1, err))
	}
	if err := l.send(ctx); err != nil {
		return l.soFar(err)
	}
	if l.asJSON {
		return nil
	}
	text := "added " + plural(l.added)
	if l.replaced > 0 {
		text += "; replaced " + plural(l.replaced)
	}
	if l.duplicates > 0 {
		text += fmt.Sprintf("; skipped %d whose unique key another job holds", l.duplicates)
	}
	_, err := fmt.Fprintln(l.app.out, text)
	return err
}

// take adds a line to the batch. It first sends the batch if the line would make it too large, or if its job expires at another
// time: if jobs are left out, then all of a batch are, so that those of other batches stay the same.
func (l *load) take(ctx context.Context, line []byte) error {
	job, err := l.parse(line)
	switch {
	case errors.Is(err, errLeftOut):
		return nil
	case err != nil:
		return fmt.Errorf("line %d: %w", l.line, err)
	}
	if err := (jq.EnqueueRequest{Jobs: []jq.NewJob{job}}).Check(); err != nil {
		return fmt.Errorf("line %d: %w", l.line, fieldError(err))
	}
	weight := len(line) + len(job.Queue) // JSON is never shorter than the values it encodes
	full := len(l.jobs) == contract.MaxItems || l.bytes+weight > contract.MaxCallBytes || l.waits+len(job.After) > contract.MaxCallWaits
	apart := l.expired != nil && len(l.jobs) > 0 && !l.jobs[0].ExpiresAt.Equal(job.ExpiresAt)
	if apart || full {
		if err := l.send(ctx); err != nil {
			return err
		}
	}
	l.jobs, l.lines = append(l.jobs, job), append(l.lines, l.line)
	l.bytes, l.waits = l.bytes+weight, l.waits+len(job.After)
	return nil
}

// sent forgets the batch.
func (l *load) sent() { l.jobs, l.lines, l.bytes, l.waits = nil, nil, 0, 0 }

// parseNew parses a line for a new job.
func (l *load) parseNew(line []byte) (jq.NewJob, error) {
	var written wire.NewJob
	if err := wire.Decode(line, &written); err != nil {
		return jq.NewJob{}, errors.New(strings.TrimPrefix(fieldError(err).Error(), "body "))
	}
	for _, w := range written.After {
		if w.Item != nil || w.ID == 0 {
			return jq.NewJob{}, errors.New("after must name jobs by id: the command cuts the lines into batches, so lines have no item numbers")
		}
	}
	return written.Store(l.defaults), nil
}

// send enqueues the batch in one call. The request key makes it safe to repeat the call, and to repeat the command with the same
// lines.
func (l *load) send(ctx context.Context) error {
	if len(l.jobs) == 0 {
		return nil
	}
	l.calls++
	added, err := enqueueRetrying(ctx, l.store, jq.EnqueueRequest{Jobs: l.jobs, RequestKey: l.keyOf(l.calls)})
	if err != nil {
		first, last := l.lines[0], l.lines[len(l.lines)-1]
		invalid, ok := errors.AsType[*jq.InvalidError](err)
		if l.expired != nil && ok && invalid.Field == "expires_at" {
			*l.expired += int64(len(l.jobs))
			l.sent()
			return nil
		}
		if ok && invalid.Item >= 0 {
			first, last = l.lines[invalid.Item], l.lines[invalid.Item]
			err = fieldError(err)
		}
		if first == last {
			return fmt.Errorf("line %d: %w", first, err)
		}
		return fmt.Errorf("lines %d to %d: %w", first, last, err)
	}
	for _, e := range added {
		switch {
		case e.Replaced:
			l.replaced++
		case e.Duplicate:
			l.duplicates++
		default:
			l.added++
		}
	}
	l.addedTo = l.lines[len(l.lines)-1]
	l.sent()
	l.bar.show(l.read, l.size, "%s added", plural(l.added))
	if !l.asJSON {
		return nil
	}
	for _, e := range added {
		if err := wire.Encode(l.app.out, e); err != nil {
			return err
		}
	}
	return nil
}

// soFar adds to an error which lines were added before it, so that you know where to continue.
func (l *load) soFar(err error) error {
	switch inDoubt := errors.Is(err, jq.ErrInDoubt); {
	case inDoubt:
		return fmt.Errorf("%w; repeat the command%s: it adds nothing twice", err, l.again)
	case l.addedTo == 0:
		return fmt.Errorf("%w; nothing was added", err)
	}
	return fmt.Errorf("%w; the lines up to %d were added, and none after it", err, l.addedTo)
}
