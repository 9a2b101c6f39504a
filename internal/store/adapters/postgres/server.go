package postgres

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// Which server it is.
//
// A store may reach another server than before, without a connection breaking: after a failover or a restore behind a pooler, by a
// name that leads elsewhere, by a DSN with several hosts. Each transaction's opening says since when its server runs. A server that
// was not met yet is asked who it is, by its system identifier and its timeline, before the transaction does anything else. Both
// stand in the row of the epoch, too. Where they differ, the data came from another server or another history: a standby was
// promoted, a backup restored up to some moment, a dump put into another database. What was given after the copy was made is
// unknown there, so the transaction raises the epoch, as Fence does, and writes down who the server is now.
//
// A server that others have replaced is not written to again: one of the same system with an older timeline, which is an old primary
// that somebody has started again, or one that this store has left for another. A process that has never met the new one can not
// know. There the tool that promotes has to see that the old primary stays down.

// errReplaced is the end of a transaction on a server that another one has replaced. Its connection is not used again.
var errReplaced = errors.New("this server was replaced by another one, and must not be written to: " +
	"stop it, or lead the DSN to its successor alone; if it is meant after all, start this process anew")

// An identity says of which history a server's data are.
type identity struct{ system, timeline int64 }

// replaces says that the other identity is the same system's at an earlier time.
func (i identity) replaces(other identity) bool {
	return i.system == other.system && i.timeline > other.timeline
}

// after is how many epochs the server's data are to be after those that came from the other: one for each timeline. A branch that
// was lost has raised its own epochs. A copy from before it is restored to a later timeline, and must not raise to one of those.
func (i identity) after(other identity) int64 {
	if i.system != other.system {
		return 1
	}
	return max(1, i.timeline-other.timeline)
}

// A server is what a store knows of the one that it writes to.
type server struct {
	unasked bool // servers of this kind do not say who they are; set before the store is open

	mu     sync.Mutex  // guards what follows
	since  time.Time   // it runs; zero as long as none was met
	who    identity    // zero where it can not be known
	left   []time.Time // since when those ran that were replaced
	number int64       // the greatest of a transaction
	told   time.Time   // when it was, by the process's own monotonic clock
}

// mostLeft is how many servers are remembered that were replaced.
const mostLeft = 16

// A sight is what an opening shows of the server.
type sight int

const (
	known    sight = iota
	goneBack       // it is the same, but has forgotten transactions
	stranger       // it was not met yet
	replaced       // and must not be met again
)

// note learns from a transaction that was begun at the time sent by the process's own clock, with a number unless it only reads.
func (s *server) note(since time.Time, number int64, sent time.Time) sight {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case slices.ContainsFunc(s.left, since.Equal):
		return replaced
	case !since.Equal(s.since):
		return stranger
	}
	back := number != 0 && number <= s.number && sent.After(s.told)
	if back || number > s.number {
		s.number, s.told = number, time.Now()
	}
	if back {
		return goneBack
	}
	return known
}

// see learns who a server is that was not met yet. If it is another one than before, that is not written to again, whatever becomes
// of the transaction that has seen this; unless the one before has replaced it.
func (s *server) see(who identity, since time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.who.replaces(who):
		s.leave(since)
		return errReplaced
	case s.who != who && !s.since.IsZero():
		s.leave(s.since)
		s.since = time.Time{}
	}
	s.who = who
	return nil
}

// meet takes the server for the one to write to.
func (s *server) meet(since time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.since.IsZero() && !s.since.Equal(since) {
		s.leave(s.since)
	}
	s.since, s.number = since, 0
}

func (s *server) leave(since time.Time) {
	s.left = append(s.left, since)
	if len(s.left) > mostLeft {
		s.left = s.left[1:]
	}
}

// recognise acts upon what the opening shows, before the transaction does anything else. One that writes nothing more, or nothing
// at all, changes nothing.
func (t *txn) recognise() error {
	number := t.shown.number
	if t.shown.numbered { // it is older than the question
		number = 0
	}
	sight := t.s.server.note(t.shown.since, number, t.shown.sent)
	if sight == replaced {
		return errReplaced
	}
	if t.shown.number == 0 {
		return nil
	}
	if sight != known {
		t.s.cursors.Forget()
	}
	if t.conn != nil { // before any other message: what answers later than another opening proves nothing any more
		t.horizon = t.s.cursors.Learn(t.shown.asOf, t.shown.xmin, t.shown.number, t.shown.sent)
	}
	switch {
	case sight != stranger, t.over():
		return nil
	case t.s.server.unasked:
		t.s.server.meet(t.shown.since)
		return nil
	}
	who, noted, _, err := t.identities()
	if err == nil {
		err = t.s.server.see(who, t.shown.since)
	}
	switch {
	case err != nil:
		return err
	case noted == who:
		t.s.server.meet(t.shown.since)
		return nil
	case noted == identity{}:
		return t.introduce(who)
	}
	if t.conn == nil { // a caller's transaction may last, and others would have to wait for it
		_, _ = write(t.ctx, t.s, nil, func(*txn) (struct{}, error) { return struct{}{}, nil })
		if _, noted, _, err = t.identities(); err != nil {
			return err
		}
		if noted == who {
			t.s.server.meet(t.shown.since)
			return nil
		}
	}
	if err := t.adopt(who); err != nil || t.conn == nil {
		return err
	}
	if err := t.commit(); err != nil { // whatever becomes of the call, and so that nobody waits for it
		return err
	}
	return errAdopted // the next transaction sees it committed, and meets the server
}

// errAdopted is the end of a transaction that has raised the epoch. The call goes on in another one.
var errAdopted = errors.New("the epoch was raised, since the database is another one now: try again")

// askable finds out whether servers of this kind say who they are. Some that are offered as a service do not, and have a code of their
// own for that perhaps. Only what may pass keeps the store from being opened.
func (s *Store) askable(ctx context.Context) error {
	_, err := s.db.ExecContext(ctx, `
		SELECT `+whoItIs+`
		FROM pg_control_system() AS control`)
	switch code := codeOf(err); {
	case err == nil, code == codeNotNow, code == codeWrongState: // the last two are of a standby, which may be promoted
		return nil
	case code == "", slices.Contains([]string{classConnection, classRollback, classResources, classIntervention, classSystem}, code[:2]):
		return err
	}
	s.server.unasked = true
	s.options.Logger.WarnContext(ctx, "jq: the server does not say who it is, so that the store does not notice a failover or a restore: run jobq fence after each",
		"schema", s.options.Schema, "error", err)
	return nil
}

const whoItIs = `control.system_identifier, ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::bigint`

// identities are that of the server, and the one that stands beside the epoch, which is zero if none does.
func (t *txn) identities() (who, noted identity, epoch int64, err error) {
	err = t.each(func(rows *sql.Rows) error {
		return rows.Scan(&who.system, &who.timeline, &noted.system, &noted.timeline, &epoch)
	}, `
		SELECT `+whoItIs+`, coalesce(fence.system, 0), coalesce(fence.timeline, 0), fence.epoch
		FROM {schema}.fence CROSS JOIN pg_control_system() AS control
		WHERE fence.one`)
	return who, noted, epoch, err
}

// introduce notes who the server is, where nobody has: the data may be just new. Nobody waits for another who does the same.
func (t *txn) introduce(who identity) error {
	if t.conn == nil {
		return nil
	}
	_, err := t.exec(`
		WITH free AS (
			SELECT one
			FROM {schema}.fence
			WHERE one AND system IS NULL
			FOR UPDATE SKIP LOCKED
		)
		UPDATE {schema}.fence
		SET system = $1,
			timeline = $2
		FROM free
		WHERE fence.one`,
		who.system, who.timeline)
	return err
}

// adopt raises the epoch, since the data came from elsewhere, and notes who the server is. Nobody has given a token or an id here so
// far: who was about to has noticed the same, and waits for the row until this transaction ends. So the table of jobs is not locked,
// as Fence has to, and a VACUUM or CREATE INDEX CONCURRENTLY keeps no store from its work on a new server.
func (t *txn) adopt(who identity) error {
	if _, err := t.exec(`SELECT FROM {schema}.fence WHERE one FOR UPDATE`); err != nil {
		return err
	}
	_, noted, epoch, err := t.identities()
	if err != nil || noted == who {
		return err
	}
	epoch, err = t.raise(store.FenceRequest{Epoch: epoch + who.after(noted)})
	if err != nil {
		return err
	}
	t.s.options.Logger.WarnContext(t.ctx, "the database is another one now: the epoch was raised, so that no lease is given twice; "+
		"see whether it has lost anything",
		"schema", t.s.options.Schema, "epoch", epoch,
		"system_before", noted.system, "timeline_before", noted.timeline, "system", who.system, "timeline", who.timeline)
	_, err = t.exec(`
		UPDATE {schema}.fence
		SET system = $1,
			timeline = $2,
			adopted_from = system || '/' || timeline,
			adopted_at = clock_timestamp()
		WHERE one`,
		who.system, who.timeline)
	return err
}
