package postgres

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

// Recognizing the server.
//
// A store may reach another server than before without a broken connection: after a failover or a restore behind a pooler,
// through a host name that now leads elsewhere, or through a DSN with several hosts. The opening of each transaction asks for
// the start time of the server. If the store does not know that server yet, it asks for its system identifier and its timeline
// before the transaction does anything else. The row of the epoch contains both as well. If they differ, the data came from
// another server or another history: a standby was promoted, a backup was restored up to some moment, or a dump was loaded into
// another database. That server does not know what the old one gave after the copy was made. So the transaction raises the
// epoch, as Fence does, and records the identity of the new server.
//
// The store does not write again to a server that was replaced: one of the same system with an older timeline, which is an old
// primary that somebody has started again, or one that this store has left for another. A process that has never met the new
// primary cannot know this. In that case the failover tool must make sure that the old primary stays down.

// errReplaced is the error of a transaction on a server that was replaced. Its connection is not used again.
var errReplaced = errors.New("this server was replaced by another one and must not be written to: " +
	"stop it, or change the DSN to name only its successor; if it is the right server after all, restart this process")

// An identity says which history a server's data belong to.
type identity struct{ system, timeline int64 }

// replaces reports whether other is the same system on an earlier timeline.
func (i identity) replaces(other identity) bool {
	return i.system == other.system && i.timeline > other.timeline
}

// after returns by how much to raise the epoch of data that came from other: by one for each timeline. A lost branch has raised
// its own epochs. A copy from before that branch is restored to a later timeline, and must not be given one of those epochs.
func (i identity) after(other identity) int64 {
	if i.system != other.system {
		return 1
	}
	return max(1, i.timeline-other.timeline)
}

// A server is what a store knows about the server that it writes to.
type server struct {
	unasked  bool         // servers of this kind do not say who they are; set before the store is open
	replaced atomic.Int64 // how often a server was met or left that was replaced

	mu     sync.Mutex  // guards the fields below
	since  time.Time   // its start time; zero if no server was met yet
	who    identity    // zero if unknown
	left   []time.Time // the start times of replaced servers
	number int64       // the greatest transaction number seen
	told   time.Time   // when it was seen, by the process's monotonic clock
}

// mostLeft is how many replaced servers a store remembers.
const mostLeft = 16

// A sight is what an opening shows about the server.
type sight int

const (
	known    sight = iota
	goneBack       // the same server, but it has lost transactions
	stranger       // not met yet
	replaced       // must not be used again
)

// started returns since when the server has run that the store writes to, or zero if it has met none.
func (s *server) started() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.since
}

// note learns from the opening of a transaction, which was sent at that time by the process's clock. number is 0 if it has none.
// next says that it is the number that the server will give next.
func (s *server) note(since time.Time, number int64, next bool, sent time.Time) sight {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case slices.ContainsFunc(s.left, since.Equal):
		s.replaced.Add(1)
		return replaced
	case !since.Equal(s.since):
		return stranger
	}
	back := number != 0 && number <= s.number && sent.After(s.told)
	if next {
		number--
	}
	if back || number > s.number {
		s.number, s.told = number, time.Now()
	}
	if back {
		return goneBack
	}
	return known
}

// see learns the identity of a server that was not met yet. If it is another one than before, the store will not write to the
// old one again, whatever happens to this transaction. If it is the one that the present server has replaced, see refuses it.
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

// mayBe reports whether a server with that identity may be the one that the store writes to.
func (s *server) mayBe(who identity) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.since.IsZero() || s.who == who
}

// meet makes this the server to write to.
func (s *server) meet(since time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.since.IsZero() && !s.since.Equal(since) {
		s.leave(s.since)
	}
	s.since, s.number = since, 0
}

func (s *server) leave(since time.Time) {
	s.replaced.Add(1)
	s.left = append(s.left, since)
	if len(s.left) > mostLeft {
		s.left = s.left[1:]
	}
}

// recognise acts on what the opening shows, before the transaction does anything else. A transaction that only reads, or that
// is already over, raises no epoch.
func (t *txn) recognise() error {
	number := t.shown.number
	if t.shown.numbered { // its number is from before the opening
		number = 0
	}
	sight := t.s.server.note(t.shown.since, number, t.shown.next, t.shown.sent)
	if sight == replaced {
		return errReplaced
	}
	if t.shown.number == 0 {
		return nil
	}
	if sight != known {
		t.s.cursors.Forget()
	}
	if t.conn != nil { // before any other message: a later answer proves nothing
		t.horizon = t.s.cursors.Learn(t.shown.asOf, t.shown.xmin, t.shown.number, t.shown.sent)
	}
	switch {
	case sight != stranger, t.over():
		return nil
	case t.conn == nil:
		return t.compare()
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
	if err := t.adopt(who); err != nil {
		return err
	}
	if err := t.commit(); err != nil { // even if the call fails, and so that nobody waits for it
		return err
	}
	return errAdopted // the next transaction sees the commit and meets the server
}

// compare makes sure that a caller's transaction on a server that the store has not met is where the store's own ones are. It may be on
// another server by mistake, so the store learns nothing from it: an own transaction meets the server, and raises the epoch if need be. On
// shared sessions, of which callers may hold all, compare does without if nothing seems to have changed.
func (t *txn) compare() (err error) {
	var who, noted identity
	if !t.s.server.unasked {
		if who, noted, _, err = t.identities(); err != nil {
			return err
		}
	}
	fits := noted == who || noted == identity{}
	if t.s.shared && fits && t.s.server.mayBe(who) {
		return nil
	}
	err = errElsewhere
	for tries := 0; errors.Is(err, errElsewhere) && tries <= t.s.options.MaxConns; tries++ { // the last one has a new connection
		_, err = write(t.ctx, t.s, nil, func(own *txn) (struct{}, error) {
			if !own.shown.since.Equal(t.shown.since) {
				return struct{}{}, errElsewhere
			}
			return struct{}{}, nil
		})
	}
	switch {
	case errors.Is(err, errElsewhere):
		return sqlkit.OtherTx(t.s.database, t.shown.database+" of another server")
	case err != nil || fits:
		return err
	}
	if _, noted, _, err = t.identities(); err != nil || noted == who {
		return err
	}
	return t.adopt(who) // its snapshot is from before: the server refuses this
}

// errElsewhere is the error of an own transaction on another server than a caller's. Its connection is not used again: if the way leads to
// another server now, the next one follows it.
var errElsewhere = errors.New("the caller's transaction is on another server")

// errAdopted is the error of a transaction that has raised the epoch. The call continues in another one.
var errAdopted = errors.New("the epoch was raised because the data are on another server now: try again")

// askable finds out whether servers of this kind reveal their identity. Some managed services do not, and may use their own
// error codes. Only errors that may pass prevent the store from opening.
func (s *Store) askable(ctx context.Context) error {
	_, err := s.db.ExecContext(ctx, `
		SELECT `+whoItIs+`
		FROM pg_control_system() AS control`)
	switch code := codeOf(err); {
	case err == nil, code == codeNotNow, code == codeWrongState: // the last two are from a standby, which may be promoted
		return nil
	case mayPass(err):
		return err
	}
	s.server.unasked = true
	s.options.Logger.WarnContext(ctx, "jq: the server does not reveal its identity, so the store cannot notice a failover or a restore: run jobq fence after each",
		"schema", s.options.Schema, "error", err)
	return nil
}

const whoItIs = `control.system_identifier, ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::bigint`

// identities returns the server's identity, and the one recorded with the epoch, or zero.
func (t *txn) identities() (who, noted identity, epoch int64, err error) {
	err = t.each(func(rows *sql.Rows) error {
		return rows.Scan(&who.system, &who.timeline, &noted.system, &noted.timeline, &epoch)
	}, `
		SELECT `+whoItIs+`, coalesce(fence.system, 0), coalesce(fence.timeline, 0), fence.epoch
		FROM {schema}.fence CROSS JOIN pg_control_system() AS control
		WHERE fence.one`)
	return who, noted, epoch, err
}

// introduce records the server's identity if none is recorded, as in new data. It skips the row if another transaction has
// locked it.
func (t *txn) introduce(who identity) error {
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

// adopt raises the epoch, because the data came from elsewhere, and records the server's identity. No transaction has given a
// token or an id on this server yet: each has noticed the same, and waits for the row until this transaction ends. So adopt,
// unlike Fence, need not lock the table of jobs, and a running VACUUM or CREATE INDEX CONCURRENTLY does not hold up stores on a
// new server.
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
	t.s.options.Logger.WarnContext(t.ctx, "the data are on another server now: the epoch was raised, so that no lease is given twice; "+
		"check whether changes were lost",
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
