//go:build unix

package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/seed-ed332417/jq/contract"
	"github.com/seed-ed332417/jq/etcd"
	"github.com/seed-ed332417/jq/etcd/internal/etcdtest"
	"github.com/seed-ed332417/jq/kv"
)

func TestAddressesThatAreRefused(t *testing.T) {
	for address, want := range map[string]string{
		"":                                             "must begin with etcd://",
		"http://a:2379/jobs":                           "must begin with etcd://",
		"etcd:a:2379/jobs":                             "must begin with etcd://",
		"etcd://a:2379":                                "must end with a prefix",
		"etcd://a:2379/":                               "must end with a prefix",
		"etcd://a:2379,,b:2379/jobs":                   "a host is empty",
		"etcd:///jobs":                                 "a host is empty",
		"etcd://a/jobs":                                "HOST:PORT",
		"etcd://a:0/jobs":                              "HOST:PORT",
		"etcd://a:65536/jobs":                          "HOST:PORT",
		"etcd://:2379/jobs":                            "HOST:PORT",
		"etcd://a:b:2379/jobs":                         "HOST:PORT",
		"etcd://http://a:2379/jobs":                    "HOST:PORT",
		"etcd://me@a:2379/jobs":                        "USER:PASSWORD",
		"etcd://:secret@a:2379/jobs":                   "USER:PASSWORD",
		"etcd://me:secret%zz@a:2379/jobs":              "USER:PASSWORD",
		"etcd://me:a/secret@a:2379/jobs":               "HOST:PORT",
		"etcd://me:1/secret@a:2379/jobs":               "no @",
		"etcd://me:1?secret@a:2379/jobs":               "must end with a prefix",
		"etcd://me:1#secret@a:2379/jobs":               "no #",
		"etcd://a:2379/jobs?tls=secret":                "the parameters ca, cert and key",
		"etcds://a:2379/jobs?secret":                   "the parameters ca, cert and key",
		"etcds://a:2379/jobs?ca=secret%zz":             "NAME=FILE",
		"etcds://a:2379/jobs?ca=a&ca=b":                "ca must name one file",
		"etcds://a:2379/jobs?ca=":                      "ca must name one file",
		"etcds://a:2379/jobs?cert=a":                   "both the parameters cert and key",
		"etcds://a:2379/jobs?key=a":                    "both the parameters cert and key",
		"etcd://a:2379/jobs?ca=a":                      "begin it with etcds://",
		"etcd://a:2379/a%zz":                           "invalid URL escape",
		"etcd://a:2379/a%00b":                          "none of them zero or one",
		"etcd://a:2379/%41" + strings.Repeat("a", 100): "1 to 100 bytes",
	} {
		_, err := etcd.Open(t.Context(), address, nil)
		require.ErrorContains(t, err, want, address)
		assert.NotContains(t, err.Error(), "secret", address)
		checked := etcd.CheckURL(address)
		require.ErrorContains(t, checked, want, address)
		assert.NotContains(t, checked.Error(), "secret", address)
	}
}

func TestAddressesThatAreTaken(t *testing.T) {
	for _, address := range []string{
		"etcd://a:2379/jobs", "ETCD://a:2379,b:2379/a/b", "etcd://[::1]:2379/jobs", "etcd://me:a%2Fb%40c@a:2379/jobs", "etcd://me:a@b@a:2379/jobs",
		"etcds://a:2379/jobs", "etcds://a:2379/jobs?ca=ca.pem", "etcds://a:2379/jobs?ca=ca.pem&cert=c.pem&key=k.pem", "etcd://a:2379/a%40b",
	} {
		assert.NoError(t, etcd.CheckURL(address), address)
	}
}

// The files of a URL are read before anybody is asked, and the one that cannot be used is named.
func TestFilesThatAreRefused(t *testing.T) {
	folder := t.TempDir()
	empty := filepath.Join(folder, "empty.pem")
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	for query, want := range map[string]string{
		"ca=" + folder + "/none.pem":            "the parameter ca: open ",
		"ca=" + empty:                           "contains no certificate",
		"cert=" + empty + "&key=" + empty:       "the parameters cert and key: ",
		"cert=" + folder + "/none&key=" + empty: "the parameters cert and key: open ",
	} {
		_, err := etcd.Open(t.Context(), "etcds://127.0.0.1:1/jobs?"+query, nil)
		assert.ErrorContains(t, err, want, query)
	}
}

// Two programs open a store by its URL.
func TestOpen(t *testing.T) {
	p, err := newPlace()
	require.NoError(t, err)
	address := address("/a%2Fb/" + p.prefix)
	p.prefix = "a/b/" + p.prefix
	s, err := etcd.Open(t.Context(), address, nil)
	require.NoError(t, err)
	defer func() { assert.NoError(t, s.Close()) }()
	added, err := s.Enqueue(t.Context(), contract.EnqueueRequest{Jobs: []contract.NewJob{{Queue: "q", Kind: "k", Payload: []byte(`1`)}}})
	require.NoError(t, err)
	other, err := etcd.Open(t.Context(), address, nil)
	require.NoError(t, err)
	defer func() { assert.NoError(t, other.Close()) }()
	detail, err := other.Get(t.Context(), added[0].ID)
	require.NoError(t, err)
	assert.JSONEq(t, `1`, string(detail.Payload))
	require.NoError(t, p.remove(t.Context()))
}

// Where nobody listens, New says so when its context ends.
func TestOpenWithoutACluster(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err := etcd.New(ctx, clientv3.Config{Endpoints: []string{"http://127.0.0.1:1"}}, "jobs")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	assert.ErrorContains(t, err, "connecting to etcd at http://127.0.0.1:1")
}

// A cluster with the limits of etcd's defaults is refused, with the flags to set.
func TestDefaultLimitsAreRefused(t *testing.T) {
	for _, flags := range [][]string{{}, {etcdtest.Flags[0]}, {etcdtest.Flags[1]}} {
		c := start(t, etcdtest.Options{Members: 1, NoSync: true, Flags: flags})
		_, err := etcd.New(t.Context(), clientv3.Config{Endpoints: c.Endpoints()}, "jobs")
		require.ErrorContains(t, err, "start each member of etcd with --max-txn-ops 50000 --max-request-bytes 33554432", "with the flags %q", flags)
		e := etcd.Connect(clientv3.Config{Endpoints: c.Endpoints()}, "jobs")
		found, err := e.Examine(t.Context())
		require.NoError(t, errors.Join(err, e.Close()))
		require.Len(t, found, 2)
		assert.Equal(t, contract.Finding{
			Name: "small_limits", Detail: "members of etcd refuse commits as large as a store makes: m0", Count: 1, Examples: []string{"m0"},
			Advice: "start each member of etcd with --max-txn-ops 50000 --max-request-bytes 33554432",
		}, found[1])
	}
}

// A user with a password needs no more than the keys of the store. Calls go on when rights are changed, which makes all tokens old.
func TestUserWithAPassword(t *testing.T) {
	c := start(t, etcdtest.Options{Members: 1, NoSync: true})
	ctx, admin := t.Context(), c.Client()
	for _, user := range []string{"root", "jobs"} {
		_, err := admin.RoleAdd(ctx, user)
		require.NoError(t, err)
		_, err = admin.UserAdd(ctx, user, "secret of "+user)
		require.NoError(t, err)
		_, err = admin.UserGrantRole(ctx, user, user)
		require.NoError(t, err)
	}
	_, err := admin.RoleGrantPermission(ctx, "jobs", "jobs\x00", "jobs\x02", clientv3.PermissionType(clientv3.PermReadWrite))
	require.NoError(t, err)
	_, err = admin.AuthEnable(ctx)
	require.NoError(t, err)

	config := func(user, password string) clientv3.Config {
		return clientv3.Config{Endpoints: c.Endpoints(), Username: user, Password: password}
	}
	_, err = etcd.New(ctx, config("jobs", "wrong"), "jobs")
	require.ErrorIs(t, err, rpctypes.ErrAuthFailed)
	_, err = etcd.New(ctx, clientv3.Config{Endpoints: c.Endpoints()}, "jobs")
	require.Error(t, err, "without a user")
	_, err = etcd.New(ctx, config("jobs", "secret of jobs"), "other")
	require.ErrorIs(t, err, rpctypes.ErrPermissionDenied)

	e, err := etcd.New(ctx, config("jobs", "secret of jobs"), "jobs")
	require.NoError(t, err)
	s, err := kv.Open(ctx, e, nil)
	require.NoError(t, err)
	defer func() { assert.NoError(t, s.Close()) }()
	root, err := clientv3.New(config("root", "secret of root"))
	require.NoError(t, err)
	defer func() { assert.NoError(t, root.Close()) }()
	for i := range 3 {
		_, err := s.Enqueue(ctx, contract.EnqueueRequest{Jobs: []contract.NewJob{{Queue: "q", Kind: "k", Payload: []byte(`1`)}}})
		require.NoError(t, err)
		_, err = root.RoleAdd(ctx, fmt.Sprint("another ", i))
		require.NoError(t, err)
		counts, err := s.Count(ctx, contract.Filter{})
		require.NoError(t, err)
		assert.EqualValues(t, i+1, counts.Queues[0].Jobs[contract.Ready])
		_, err = root.RoleAdd(ctx, fmt.Sprint("one more ", i))
		require.NoError(t, err)
	}
}

// A URL with the files for TLS opens a store on members that take nobody without a certificate.
func TestTLS(t *testing.T) {
	c := start(t, etcdtest.Options{Members: 1, NoSync: true, TLS: true})
	files, ctx := c.Files(), t.Context()
	host := strings.TrimPrefix(c.Endpoint(0), "https://")
	place := "etcds://" + host + "/jobs"
	login := "cert=" + files.Cert + "&key=" + files.Key
	s, err := etcd.Open(ctx, place+"?ca="+files.CA+"&"+login, nil)
	require.NoError(t, err)
	defer func() { assert.NoError(t, s.Close()) }()
	_, err = s.Enqueue(ctx, contract.EnqueueRequest{Jobs: []contract.NewJob{{Queue: "q", Kind: "k", Payload: []byte(`1`)}}})
	require.NoError(t, err)

	for name, address := range map[string]string{
		"without the authority":   place + "?" + login,
		"without a certificate":   place + "?ca=" + files.CA,
		"without TLS":             "etcd://" + host + "/jobs",
		"by another name of host": "etcds://localhost:" + host[strings.LastIndexByte(host, ':')+1:] + "/jobs?ca=" + files.CA + "&" + login,
	} {
		limited, cancel := context.WithTimeout(ctx, time.Second)
		_, err := etcd.Open(limited, address, nil)
		cancel()
		assert.Error(t, err, name)
	}
}
