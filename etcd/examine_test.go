//go:build unix

package etcd_test

import (
	"errors"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/seed-ed332417/jq/contract"
	"github.com/seed-ed332417/jq/etcd"
	"github.com/seed-ed332417/jq/etcd/internal/etcdtest"
	"github.com/seed-ed332417/jq/kv"
)

// findings returns the names of what a store finds.
func findings(t *testing.T, s *kv.Store) (names []string) {
	t.Helper()
	found, err := s.Examine(t.Context())
	require.NoError(t, err)
	for _, f := range found {
		names = append(names, f.Name)
		assert.NotEmpty(t, f.Detail, f.Name)
		assert.NotEmpty(t, f.Advice, f.Name)
	}
	return names
}

// storeAt opens a store at some endpoints.
func storeAt(t *testing.T, endpoints ...string) *kv.Store {
	t.Helper()
	e, err := etcd.New(t.Context(), clientv3.Config{Endpoints: endpoints}, "jobs")
	require.NoError(t, err)
	s, err := kv.Open(t.Context(), e, &kv.Options{Logger: slog.New(slog.DiscardHandler)}) // of lost watches
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	return s
}

// A cluster that is well has no findings. A member that is dead is named, and so is one that the URL does not name. A cluster whose data differ says what to do.
func TestExamine(t *testing.T) {
	c := start(t, etcdtest.Options{NoSync: true})
	s := storeAt(t, c.Endpoints()...)
	assert.Empty(t, findings(t, s))
	two := storeAt(t, c.Endpoint(0), c.Endpoint(1))
	found, err := two.Examine(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []contract.Finding{{
		Name: "unnamed_member", Detail: "the store does not know 1 of 3 members of etcd: m2",
		Advice: "name all members in the URL: a store asks only those", Count: 1, Examples: []string{"m2"},
	}}, found)

	other := start(t, etcdtest.Options{Members: 1, NoSync: true})
	mixed := etcd.Connect(clientv3.Config{Endpoints: []string{c.Endpoint(0), other.Endpoint(0)}}, "jobs")
	found, err = mixed.Examine(t.Context())
	require.NoError(t, errors.Join(err, mixed.Close()))
	assert.Equal(t, "other_cluster", found[0].Name)
	assert.Subset(t, []string{c.Endpoint(0), other.Endpoint(0)}, found[0].Examples)
	assert.Len(t, found[0].Examples, 1)

	require.NoError(t, c.Kill(2))
	for _, s := range []*kv.Store{s, two} {
		found, err = s.Examine(t.Context())
		require.NoError(t, err)
		assert.Equal(t, []contract.Finding{
			{
				Name: "silent_member", Detail: "1 of 3 members of etcd did not answer: m2",
				Advice: "start it, or replace it if its data are lost (etcdctl member remove, then member add)", Count: 1, Examples: []string{"m2"},
			},
			{
				Name: "no_spare_member", Detail: "2 of 3 members of etcd are well, and commits need 2: if one fails, every call fails",
				Advice: "bring back the others",
			},
		}, found)
	}
	require.NoError(t, c.Revive(2))
	require.NoError(t, c.Ready(t.Context()))
	assert.Empty(t, findings(t, s))

	raw, id := etcdserverpb.NewMaintenanceClient(c.Client().ActiveConnection()), uint64(0)
	status, err := c.Client().Status(t.Context(), c.Endpoint(0))
	require.NoError(t, err)
	id = status.Header.MemberId
	_, err = raw.Alarm(t.Context(), &etcdserverpb.AlarmRequest{Action: etcdserverpb.AlarmRequest_ACTIVATE, MemberID: id, Alarm: etcdserverpb.AlarmType_CORRUPT})
	require.NoError(t, err)
	assert.Equal(t, []string{"corrupt_member"}, findings(t, s))
	_, err = s.Enqueue(t.Context(), contract.EnqueueRequest{Jobs: []contract.NewJob{{Queue: "q", Kind: "k", Payload: []byte(`1`)}}})
	require.ErrorIs(t, err, contract.ErrUnavailable)
	require.ErrorContains(t, err, "the data of the members differ, see jobq doctor")
	_, err = c.Client().AlarmDisarm(t.Context(), &clientv3.AlarmMember{MemberID: id, Alarm: etcdserverpb.AlarmType_CORRUPT})
	require.NoError(t, err)
	assert.Empty(t, findings(t, s))
	require.NoError(t, s.Close())
	_, err = s.Examine(t.Context())
	assert.ErrorIs(t, err, contract.ErrClosed)
}
