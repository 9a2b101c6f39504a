package bbolt_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/benbjohnson/clock"

	"github.com/seed-ed332417/jq/contract"
	"github.com/seed-ed332417/jq/examples/bbolt"
	"github.com/seed-ed332417/jq/jqtest"
	"github.com/seed-ed332417/jq/kv"
)

func TestConformance(t *testing.T) {
	const noTx = "a caller's transaction is one of SQL, and bbolt has none"
	const noKeys = "the kit keeps limit keys for people and filters, and has no index that a limit for each of them needs"
	const noWaits = "the kit keeps no waits"
	a := jqtest.Adapter{
		New: func(ctx context.Context, clk clock.Clock) (*jqtest.Instance, error) {
			return newInstance(ctx, t.TempDir(), clk)
		},
		Exclude: map[string]string{"Tx/": noTx, "Notify/FollowsTheCommitOfACallersTransaction": noTx,
			"Waits/": noWaits, "Groups/": noWaits, "Matrix/Unblock": noWaits, "Notify/FollowsACallThatLeavesSomething": noWaits,
			"Limits/Keys/": noKeys, "Notify/FollowsRoomOfAKey": noKeys, "Notify/FollowsRoomOfAKeyInOrder": noKeys},
	}
	jqtest.Run(t, a)
}

// newInstance creates an empty store in the folder. The cases do not test loss of power, so commits need no sync.
func newInstance(ctx context.Context, folder string, clk clock.Clock) (*jqtest.Instance, error) {
	path := filepath.Join(folder, "jobs.bolt")
	open := func(ctx context.Context) (*kv.Store, error) {
		return bbolt.Open(ctx, path, &bbolt.Options{Clock: clk, NoSync: true})
	}
	s, err := open(ctx)
	if err != nil {
		return nil, err
	}
	return &jqtest.Instance{
		Store: s,
		Reopen: func(ctx context.Context) (contract.Store, error) {
			if err := s.Close(); err != nil {
				return nil, err
			}
			s, err = open(ctx)
			return s, err
		},
		Remove: func() error {
			if err := s.Close(); err != nil {
				return err
			}
			return os.RemoveAll(folder)
		},
	}, nil
}
