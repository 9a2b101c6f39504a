package postgres

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/pgtest"
	"github.com/seed-ed332417/jq/internal/store"
)

// A server dies while it sends an answer, before one of the last bytes of a row, and a proxy in front of XX
func TestAnswersThatBreakOff(t *testing.T) {
	t.Parallel()
	for what, of := range map[string]struct {
		breaks func(answer []byte) bool
		call   func(ctx context.Context, s *Store, held store.Job) error
		errors []error
	}{
		"transaction": {
			func(answer []byte) bool { return bytes.Contains(answer, []byte("hello there")) },
			func(ctx context.Context, s *Store, _ store.Job) error {
				_, err := s.List(ctx, store.Filter{Queue: "q"}, store.Page{Limit: 1})
				return err
			},
			[]error{store.ErrUnavailable, store.ErrInDoubt}, // in doubt if the commit is not answered any more
		},
		"single statement": {
			func(answer []byte) bool { return answer[0] == '2' }, // it was bound
			func(ctx context.Context, s *Store, held store.Job) error {
				_, err := s.Ack(ctx, acksOf([]store.Job{held}))
				return err
			},
			[]error{store.ErrInDoubt},
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			dsn := pgtest.DSN(t)
			name := newName(t, dsn)
			s, err := Open(t.Context(), name.dsn, &Options{Schema: spares.Take(t, dsn)})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, s.Close()) })
			narrow(s)
			panics := 0
			for missing := 1; missing <= 70; missing += 2 {
				enqueue(t, s, 3)
				held := claimN(t, s, 3)
				for _, j := range held[:2] { // the statement is prepared then
					lively(s)
					require.NoError(t, of.call(t.Context(), s, j), "the call before")
				}
				s.running.Wait()
				lively(s)
				var broken atomic.Bool
				name.breakOff(func(sent []byte) (int, []byte) {
					if !of.breaks(sent) || !broken.CompareAndSwap(false, true) {
						return len(sent), nil
					}
					return cutRow(sent, missing), crashed(missing)
				})
				ended := make(chan error, 1)
				go func() { ended <- of.call(context.WithoutCancel(t.Context()), s, held[2]) }()
				select {
				case err = <-ended:
				case <-time.After(time.Minute):
					require.FailNow(t, "the call hangs", "%d bytes before the end of its row", missing)
				}
				name.breakOff(nil)
				require.True(t, broken.Load())
				require.Error(t, err)
				assert.Condition(t, func() bool { return isAny(err, of.errors) }, "%d bytes before the end: %v", missing, err)
				if strings.Contains(err.Error(), "the server's answer is damaged") {
					panics++
				}
			}
			assert.Greater(t, panics, 10, "the driver panicked")
		})
	}
}

func isAny(err error, wants []error) bool {
	return slices.ContainsFunc(wants, func(want error) bool { return errors.Is(err, want) })
}

// cutRow returns how much of the answer comes through if its first row lacks some bytes at its end.
func cutRow(answer []byte, missing int) int {
	at := 0
	for answer[at] != 'D' {
		at += 1 + int(binary.BigEndian.Uint32(answer[at+1:]))
	}
	return at + 1 + int(binary.BigEndian.Uint32(answer[at+1:])) - missing
}

// crashed is how PgBouncer says that its server is gone, in so many bytes.
func crashed(size int) []byte {
	text := "SFATAL\x00C08P01\x00Mserver conn crashed?"
	text += strings.Repeat("?", max(0, size-5-2-len(text))) + "\x00\x00"
	return append(binary.BigEndian.AppendUint32([]byte{'E'}, uint32(len(text)+4)), text...)[:size]
}
