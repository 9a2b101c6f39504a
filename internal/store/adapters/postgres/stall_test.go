package postgres

import (
	"context"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/figures"
	"github.com/seed-ed332417/jq/internal/pgtest"
	"github.com/seed-ed332417/jq/internal/store"
)

// The store of the tests gives a transaction little time, and so do callers. Beyond that the server is told to cancel, and
// listened to for as long as patience lasts.
const (
	shortTimeout = 3 * time.Second
	shortContext = 300 * time.Millisecond
	silenceBound = lingering + patience + time.Second // the last of it for a busy machine
)

// A silentServer is a store whose server falls silent: its processes are stopped without being ended. So does a server whose
// machine is frozen, or to which no message comes through any more.
type silentServer struct {
	*testing.T
	server  *pgtest.Cluster
	s       *Store
	other   *Store // whose sessions are not stopped
	slowest time.Duration
}

func newSilentServer(t *testing.T) *silentServer {
	t.Helper()
	noLeaks(t)
	c := ownServer(t, lasting)
	other := openOn(t, c.DSN, "other")
	s, err := Open(t.Context(), c.TCP+" application_name=store", &Options{
		Timeout: shortTimeout, LockTimeout: shortTimeout,
		NotifyEvery: time.Hour, // or the store's own message takes the connection that a call would get
	})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	s.sweeper.pace(never)
	enqueue(t, s, 1)
	return &silentServer{T: t, server: c, s: s, other: other}
}

// freeze stops the processes of a server that a query finds, until thaw.
func freeze(t *testing.T, s *Store, query string) (pids []int, thaw func()) {
	t.Helper()
	require.NoError(t, s.db.Select(&pids, query))
	thaw = func() {
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGCONT) // it may have ended
		}
	}
	t.Cleanup(thaw)
	pids = slices.DeleteFunc(pids, func(pid int) bool {
		err := syscall.Kill(pid, syscall.SIGSTOP)
		if err != nil {
			require.ErrorIs(t, err, syscall.ESRCH) // a session that was given up may end just now
		}
		return err != nil
	})
	require.NotEmpty(t, pids)
	return pids, thaw
}

const (
	itsSessions = `SELECT pid FROM pg_stat_activity WHERE application_name = 'store'`
	postmaster  = `SELECT split_part(pg_read_file('postmaster.pid'), chr(10), 1)::integer`
)

// fails makes a call that must fail in time, with each of the errors.
func (f *silentServer) fails(within time.Duration, call func() error, wants ...error) {
	f.Helper()
	answer := make(chan error, 1)
	began := time.Now()
	go func() { answer <- call() }()
	select {
	case err := <-answer:
		f.slowest = max(f.slowest, time.Since(began))
		wellSaid(f.T, err)
		for _, want := range wants {
			assert.ErrorIs(f, err, want)
		}
	case <-time.After(within + silenceBound):
		require.Fail(f, "the call waits for the server in vain")
	}
}

// forgets is fails, after which claims begin at the heads: it may be another server that speaks next.
func (f *silentServer) forgets(within time.Duration, call func() error, wants ...error) {
	f.Helper()
	before := f.s.cursors.Get("q").Age
	f.fails(within, call, wants...)
	assert.Greater(f, f.s.cursors.Get("q").Age, before)
}

func (f *silentServer) enqueue(ctx context.Context) error {
	_, err := f.s.Enqueue(ctx, store.EnqueueRequest{Jobs: benchJobs(1)})
	return err
}

// soon is a context that ends soon.
func (f *silentServer) soon() context.Context {
	ctx, cancel := context.WithTimeout(f.Context(), shortContext)
	f.Cleanup(cancel)
	return ctx
}

// onceSent is a context that ends soon after the store has begun to send a message.
func (f *silentServer) onceSent() context.Context {
	ctx, cancel := context.WithCancel(f.Context())
	before := f.s.roundTrips.messages.Load()
	go func() {
		defer cancel()
		for f.s.roundTrips.messages.Load() == before {
			select {
			case <-ctx.Done():
				return
			case <-time.After(time.Millisecond):
			}
		}
		<-time.After(shortContext)
	}()
	return ctx
}

// cool makes the store send nothing on its connections that could be applied without a COMMIT.
func (f *silentServer) cool() {
	f.s.pool.mu.Lock()
	defer f.s.pool.mu.Unlock()
	require.NotEmpty(f, f.s.pool.idle)
	for _, idle := range f.s.pool.idle {
		idle.worked = idle.worked.Add(-warmFor - time.Second)
	}
}

func TestSilentServer(t *testing.T) {
	f := newSilentServer(t)

	f.cool()
	_, thaw := freeze(t, f.other, itsSessions)
	f.forgets(shortContext, func() error { return f.enqueue(f.soon()) }, store.ErrUnavailable, context.DeadlineExceeded)
	thaw()
	enqueue(t, f.s, 1)

	f.cool()
	_, thaw = freeze(t, f.other, itsSessions)
	f.forgets(shortTimeout, func() error { return f.enqueue(t.Context()) }, store.ErrUnavailable, errSilent)
	thaw()
	enqueue(t, f.s, 1)

	// Nobody lets new sessions in either.
	f.cool()
	_, thaw = freeze(t, f.other, itsSessions+` UNION `+postmaster)
	f.fails(shortContext, func() error { return f.enqueue(f.soon()) }, store.ErrUnavailable, context.DeadlineExceeded)
	f.fails(shortTimeout, func() error { return f.enqueue(t.Context()) }, store.ErrUnavailable)
	f.fails(shortContext, func() error {
		_, err := Open(f.soon(), f.server.TCP, nil)
		return err
	}, store.ErrUnavailable, context.DeadlineExceeded)
	thaw()
	enqueue(t, f.s, 1)
	assert.Equal(t, int64(4), countIn(t, f.s, store.Ready), "what was unavailable was not applied, not even later")
	figures.Print(t, "calls of a server that is silent ended within %v: with contexts of %v, or a time-out of %v and %v to cancel",
		f.slowest.Round(time.Millisecond), shortContext, shortTimeout, lingering+patience)
}

// TestSilenceInASingleStatementIsInDoubt: it was sent, so it may be applied when the server speaks again. Later calls know better.
func TestSilenceInASingleStatementIsInDoubt(t *testing.T) {
	f := newSilentServer(t)
	enqueue(t, f.s, 1) // on the connection that it keeps
	_, thaw := freeze(t, f.other, itsSessions+` UNION `+postmaster)
	lively(f.s)
	f.forgets(shortContext, func() error { return f.enqueue(f.onceSent()) }, store.ErrInDoubt, context.Canceled)
	f.fails(shortContext, func() error { return f.enqueue(f.soon()) }, store.ErrUnavailable, context.DeadlineExceeded)
	thaw()
	enqueue(t, f.s, 1)
	_, thaw = freeze(t, f.other, itsSessions)
	f.fails(shortTimeout, func() error {
		_, err := f.s.Settle(t.Context(), 1)
		return err
	}, store.ErrUnavailable, errSilent)
	thaw()
	assert.Contains(t, []int64{3, 4}, countIn(t, f.s, store.Ready), "only what is in doubt may have been applied")
}

// TestSilenceInCommitIsInDoubt: the commit was sent, so it may be applied when the server speaks again.
func TestSilenceInCommitIsInDoubt(t *testing.T) {
	f := newSilentServer(t)
	inCommits(t, f.other, "INSERT", `pg_advisory_xact_lock(1)`)
	lock, err := f.other.DB().BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = lock.Exec(`SELECT pg_advisory_xact_lock(1)`)
	require.NoError(t, err)

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	answer := make(chan error, 1)
	go func() { answer <- f.enqueue(ctx) }()
	waiting := func() bool {
		var n int
		err := f.other.db.Get(&n, `SELECT count(*) FROM pg_stat_activity WHERE application_name = 'store' AND wait_event = 'advisory'`)
		return err == nil && n == 1
	}
	require.Eventually(t, waiting, shortTimeout, time.Millisecond, "the commit waits")
	_, thaw := freeze(t, f.other, itsSessions)
	f.fails(0, func() error {
		cancel()
		return <-answer
	}, store.ErrInDoubt, context.Canceled)
	require.NoError(t, lock.Rollback())
	thaw()
	n := countIn(t, f.other, store.Ready)
	assert.Contains(t, []int64{1, 2}, n, "as a whole or not at all")
}

// TestCloseWhileAListenerWaits: the listener has reached a server that takes connections and says nothing, or no more once it is told to listen.
func TestCloseWhileAListenerWaits(t *testing.T) {
	t.Parallel()
	for when, said := range map[string]string{
		"at the start":      "",
		"when it has begun": "R\x00\x00\x00\x08\x00\x00\x00\x00Z\x00\x00\x00\x05I", // authenticated, and ready
	} {
		silent, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, silent.Close()) })
		s := openStore(t, Options{ListenDSN: "postgres://postgres@" + silent.Addr().String() + "/postgres?sslmode=disable"})
		subscribed := behind(t, func(ctx context.Context) (<-chan store.Wakeup, error) { return s.Subscribe(ctx, nil) })
		there, err := silent.Accept()
		require.NoError(t, err)
		t.Cleanup(func() { _ = there.Close() })
		_, err = there.Write([]byte(said))
		require.NoError(t, err)
		asked := make([]byte, 1024)
		for said := ""; !strings.Contains(said, "LISTEN") && (when != "at the start" || said == ""); {
			n, err := there.Read(asked)
			require.NoError(t, err)
			said += string(asked[:n])
		}
		closed := behind(t, func(context.Context) (struct{}, error) { return struct{}{}, s.Close() })
		select {
		case <-closed:
		case <-time.After(silenceBound):
			_ = there.Close() // or the store would never be closed
			assert.Fail(t, "Close waits for the listener", "%s", when)
			<-closed
		}
		<-subscribed
	}
}
