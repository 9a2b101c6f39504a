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

// A member that answers but knows no leader is no member to count on.
func TestMembersWithoutALeader(t *testing.T) {
	member := func(name string, leader uint64) condition {
		return condition{&etcdserverpb.Member{Name: name}, answer{status: &clientv3.StatusResponse{Leader: leader}}}
	}
	assert.Empty(t, absent([]condition{member("a", 1), member("b", 1), member("c", 1)}))
	assert.Equal(t, []contract.Finding{
		{
			Name: "lost_member", Detail: "1 of 3 members of etcd know no leader: c",
			Advice: "look at the network between the members", Count: 1, Examples: []string{"c"},
		},
		{
			Name: "no_spare_member", Detail: "2 of 3 members of etcd are well, and commits need 2: if one fails, every call fails",
			Advice: "bring back the others",
		},
	}, absent([]condition{member("a", 1), member("b", 1), member("c", 0)}))
}

// Only if etcd knows which member has wrong data, the advice is to replace it.
func TestDataThatDiffer(t *testing.T) {
	members := []condition{{Member: &etcdserverpb.Member{Name: "a", ID: 7}}}
	known := alarmed([]*etcdserverpb.AlarmMember{{MemberID: 7, Alarm: etcdserverpb.AlarmType_CORRUPT}}, members)
	assert.Equal(t, "the data of a differ from those of other members: every call that changes something fails", known[0].Detail)
	assert.Contains(t, known[0].Advice, "replace it by an empty member")
	unknown := alarmed([]*etcdserverpb.AlarmMember{{Alarm: etcdserverpb.AlarmType_CORRUPT}}, members)
	assert.Equal(t, "the data of the members differ, and etcd cannot tell whose are right: every call that changes something fails", unknown[0].Detail)
	assert.NotContains(t, unknown[0].Advice, "replace it")
}
