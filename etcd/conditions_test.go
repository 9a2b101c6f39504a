package etcd

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/seed-ed332417/jq/contract"
)

// Members of different versions are named, and one that does not answer has none. The test clusters have one version.
func TestVersionsOfMembers(t *testing.T) {
	member := func(name, version string) condition {
		c := condition{Member: &etcdserverpb.Member{Name: name, ID: 0xabc}}
		if version != "" {
			c.status = &clientv3.StatusResponse{Version: version}
		}
		return c
	}
	assert.Empty(t, versions([]condition{member("a", "3.7.3"), member("b", "3.7.3"), member("c", "")}))
	assert.Equal(t, []contract.Finding{{
		Name: "other_versions", Detail: "the members of etcd run different versions: 3.6.1 (b), 3.7.3 (a, abc)", Advice: "update all to the newest of these",
	}}, versions([]condition{member("a", "3.7.3"), member("b", "3.6.1"), member("", "3.7.3")}))
}

// Files are judged by their quota and by what they do not use, at the limit and just below it.
func TestSizesOfFiles(t *testing.T) {
	const mib = 1 << 20
	a := alarming{full: 0.5, fragmented: 10 * mib}
	for _, k := range []struct {
		name              string
		size, used, quota int64
		want              []string
	}{
		{"half full", 50 * mib, 50 * mib, 100 * mib, []string{"nearly_full"}},
		{"less", 50*mib - 1, 50*mib - 1, 100 * mib, nil},
		{"without a quota", 50 * mib, 50 * mib, 0, nil},
		{"much unused", 20 * mib, 10*mib - 1, 100 * mib, []string{"fragmented_file"}},
		{"as much as used", 20 * mib, 10 * mib, 100 * mib, nil},
		{"little unused", 10*mib - 1, 0, 100 * mib, nil},
		{"both", 60 * mib, 5 * mib, 100 * mib, []string{"nearly_full", "fragmented_file"}},
	} {
		var names []string
		answered := answer{status: &clientv3.StatusResponse{DbSize: k.size, DbSizeInUse: k.used, DbSizeQuota: k.quota}}
		for _, f := range a.files([]condition{{Member: &etcdserverpb.Member{Name: "a"}, answer: answered}, {Member: &etcdserverpb.Member{Name: "b"}}}) {
			names = append(names, f.Name)
		}
		assert.Equal(t, k.want, names, k.name)
	}
}
