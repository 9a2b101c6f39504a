package etcd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/seed-ed332417/jq/contract"
)

// alarming holds the thresholds for findings.
type alarming struct {
	answer     time.Duration // how long a member may take to say how it is
	large      time.Duration // how long it may take to answer the largest request
	full       float64       // the share of the quota that is used
	fragmented int64         // how many bytes of a file are unused, if these are more than the used ones
	history    int64         // how many revisions are kept
}

var usual = alarming{answer: 2 * time.Second, large: 10 * time.Second, full: 0.8, fragmented: 256 << 20, history: 1_000_000}

// A condition is what is known of a member of the cluster.
type condition struct {
	*etcdserverpb.Member
	answer
}

// An answer is what a member has said of itself.
type answer struct {
	status *clientv3.StatusResponse // nil if it did not answer
	at     int                      // the endpoint of the configuration at which it has answered, or unnamed
}

// unnamed is not the position of an endpoint.
const unnamed = -1

// Examine looks for what puts the cluster at risk: members that are silent or not as many as needed, a file that is full or nearly so, alarms, and history
// that nobody compacts. It asks each member whether it takes the largest commits.
func (e *Engine) Examine(ctx context.Context) ([]contract.Finding, error) {
	conditions, others, err := e.conditions(ctx)
	if err != nil {
		return nil, err
	}
	found := slices.Concat(strangers(others), absent(conditions), versions(conditions), e.alarm.files(conditions))
	for _, look := range []func(context.Context, []condition) ([]contract.Finding, error){e.alarms, e.limits, e.history} {
		more, err := look(ctx, conditions)
		if err != nil {
			return nil, err
		}
		found = append(found, more...)
	}
	return found, ctx.Err()
}

// conditions asks all members that vote how they are: at the endpoints of the configuration, and those that have not answered there at the URLs that they
// advertise. It also returns the endpoints that lead to another cluster.
func (e *Engine) conditions(ctx context.Context) (all []condition, others []string, err error) {
	var list *clientv3.MemberListResponse
	var client *clientv3.Client // has the configuration that all share
	err = e.members.repeat(ctx, func(ctx context.Context, m member) (err error) {
		client = m.Client
		list, err = m.MemberList(ctx)
		return err
	})
	if err != nil {
		return nil, nil, advised(err)
	}
	answers := e.statuses(ctx, client, e.members.config.Endpoints)
	for _, said := range answers {
		if said.status.Header.ClusterId != list.Header.ClusterId {
			others = append(others, e.members.config.Endpoints[said.at])
		}
	}
	slices.Sort(others)
	for _, m := range list.Members {
		if m.IsLearner {
			continue
		}
		said, named := answers[m.ID]
		if !named {
			said = e.statuses(ctx, client, e.safe(m.ClientURLs))[m.ID]
			said.at = unnamed
		}
		all = append(all, condition{Member: m, answer: said})
	}
	return all, others, nil
}

// safe returns the URLs at which a member may be asked: with TLS, no other ones, because they would get the user's token in the clear.
func (e *Engine) safe(urls []string) []string {
	if e.members.config.TLS == nil {
		return urls
	}
	return slices.DeleteFunc(slices.Clone(urls), func(url string) bool { return !strings.HasPrefix(url, "https:") })
}

// strangers reports endpoints that lead to another cluster.
func strangers(others []string) []contract.Finding {
	if len(others) == 0 {
		return nil
	}
	return []contract.Finding{{
		Name: "other_cluster", Detail: "the URL leads to more than one cluster of etcd, each of which has other jobs: " + strings.Join(others, ", "),
		Advice: "name members of one cluster only, and look for jobs in the others", Count: len(others), Examples: others,
	}}
}

// statuses asks at several endpoints at once, and returns the answers by member.
func (e *Engine) statuses(ctx context.Context, client *clientv3.Client, endpoints []string) map[uint64]answer {
	var mu sync.Mutex // guards answers
	var all sync.WaitGroup
	answers := map[uint64]answer{}
	for at, endpoint := range endpoints {
		all.Go(func() {
			limited, cancel := context.WithTimeout(ctx, e.alarm.answer)
			defer cancel()
			status, err := client.Status(limited, endpoint)
			if errors.Is(err, rpctypes.ErrInvalidAuthToken) || errors.Is(err, rpctypes.ErrAuthOldRevision) {
				status, err = client.Status(limited, endpoint) // the client has got a new token since
			}
			if err == nil {
				mu.Lock()
				defer mu.Unlock()
				answers[status.Header.MemberId] = answer{status, at}
			}
		})
	}
	all.Wait()
	return answers
}

// called is the name of a member, for people.
func (c condition) called() string {
	if c.Name == "" { // it has never started
		return fmt.Sprintf("%x", c.ID)
	}
	return c.Name
}

// absent looks for members that do not answer, that are too few, or that the configuration does not name.
func absent(all []condition) (found []contract.Finding) {
	var silent, lost, strange []string
	for _, c := range all {
		switch {
		case c.status == nil:
			silent = append(silent, c.called())
		case c.status.Leader == 0:
			lost = append(lost, c.called())
		case c.at == unnamed:
			strange = append(strange, c.called())
		}
	}
	alive, needed := len(all)-len(silent)-len(lost), len(all)/2+1
	if len(silent) > 0 {
		found = append(found, contract.Finding{
			Name: "silent_member", Detail: fmt.Sprintf("%d of %d members of etcd did not answer: %s", len(silent), len(all), strings.Join(silent, ", ")),
			Advice: "start it, or replace it if its data are lost (etcdctl member remove, then member add)", Count: len(silent), Examples: silent,
		})
	}
	if len(lost) > 0 {
		found = append(found, contract.Finding{
			Name: "lost_member", Detail: fmt.Sprintf("%d of %d members of etcd know no leader: %s", len(lost), len(all), strings.Join(lost, ", ")),
			Advice: "look at the network between the members", Count: len(lost), Examples: lost,
		})
	}
	if alive <= needed {
		f := contract.Finding{
			Name: "no_spare_member", Detail: fmt.Sprintf("%d of %d members of etcd are well, and commits need %d: if one fails, every call fails", alive, len(all), needed),
			Advice: "bring back the others",
		}
		if len(all) < 3 {
			f.Advice = "add members until there are three"
		}
		found = append(found, f)
	}
	if len(strange) > 0 {
		found = append(found, contract.Finding{
			Name: "unnamed_member", Detail: fmt.Sprintf("the store does not know %d of %d members of etcd: %s", len(strange), len(all), strings.Join(strange, ", ")),
			Advice: "name all members in the URL: a store asks only those", Count: len(strange), Examples: strange,
		})
	}
	return found
}

// versions looks for members of different versions.
func versions(all []condition) []contract.Finding {
	running := map[string][]string{}
	for _, c := range all {
		if c.status != nil {
			running[c.status.Version] = append(running[c.status.Version], c.called())
		}
	}
	if len(running) < 2 {
		return nil
	}
	var parts []string
	for version, names := range running {
		parts = append(parts, version+" ("+strings.Join(names, ", ")+")")
	}
	slices.Sort(parts)
	return []contract.Finding{{
		Name: "other_versions", Detail: "the members of etcd run different versions: " + strings.Join(parts, ", "),
		Advice: "update all to the newest of these",
	}}
}

// files looks at the sizes of the members' files.
func (a alarming) files(all []condition) (found []contract.Finding) {
	for _, c := range all {
		if c.status == nil {
			continue
		}
		size, used, quota := c.status.DbSize, c.status.DbSizeInUse, c.status.DbSizeQuota
		if quota > 0 && float64(size) >= a.full*float64(quota) { // earlier versions of etcd do not tell their quota
			found = append(found, contract.Finding{
				Name:   "nearly_full",
				Detail: fmt.Sprintf("the file of %s has %d MiB of a quota of %d MiB, and uses %d MiB of it", c.called(), size>>20, quota>>20, used>>20),
				Advice: "set retention for every queue, let etcd compact, run etcdctl defrag on one member after the other, or raise --quota-backend-bytes",
			})
		}
		if size-used >= a.fragmented && size-used > used {
			found = append(found, contract.Finding{
				Name:   "fragmented_file",
				Detail: fmt.Sprintf("the file of %s has %d MiB and uses %d MiB of it", c.called(), size>>20, used>>20),
				Advice: "run etcdctl defrag on one member after the other",
			})
		}
	}
	return found
}

// alarms looks for alarms that the cluster has raised.
func (e *Engine) alarms(ctx context.Context, all []condition) ([]contract.Finding, error) {
	var raised *clientv3.AlarmResponse
	err := e.members.repeat(ctx, func(ctx context.Context, m member) (err error) {
		raised, err = m.AlarmList(ctx)
		return err
	})
	if err != nil {
		return nil, advised(err)
	}
	return alarmed(raised.Alarms, all), nil
}

func alarmed(raised []*etcdserverpb.AlarmMember, all []condition) (found []contract.Finding) {
	for _, a := range raised {
		name := fmt.Sprintf("%x", a.MemberID)
		if i := slices.IndexFunc(all, func(c condition) bool { return c.ID == a.MemberID }); i >= 0 {
			name = all[i].called()
		}
		switch a.Alarm {
		case etcdserverpb.AlarmType_NOSPACE:
			found = append(found, contract.Finding{
				Name: "no_space", Detail: fmt.Sprintf("the file of %s has reached its quota: calls that need room fail, until somebody disarms the alarm", name),
				Advice: "delete jobs, then run etcdctl compact, etcdctl defrag and etcdctl alarm disarm, or raise --quota-backend-bytes",
			})
		case etcdserverpb.AlarmType_CORRUPT:
			if a.MemberID == 0 {
				found = append(found, contract.Finding{
					Name: "corrupt_member", Detail: "the data of the members differ, and etcd cannot tell whose are right: every call that changes something fails",
					Advice: "stop all programs, compare the members (etcdctl endpoint hashkv) before you replace any, or restore a snapshot",
				})
				continue
			}
			found = append(found, contract.Finding{
				Name: "corrupt_member", Detail: fmt.Sprintf("the data of %s differ from those of other members: every call that changes something fails", name),
				Advice: "replace it by an empty member (etcdctl member remove, then member add), then run etcdctl alarm disarm",
			})
		}
	}
	return found
}

// limits asks each member that has answered whether it takes the largest commits. Opening the store has asked one of them.
func (e *Engine) limits(ctx context.Context, all []condition) ([]contract.Finding, error) {
	request := e.largest()
	var small []string
	for _, c := range all {
		if c.status == nil || c.at == unnamed {
			continue
		}
		client, err := e.members.clientAt(c.at)
		if err == nil {
			limited, cancel := context.WithTimeout(ctx, e.alarm.large)
			err = request(limited, client)
			cancel()
		}
		if errors.Is(err, rpctypes.ErrTooManyOps) || errors.Is(err, rpctypes.ErrRequestTooLarge) || overlong(err) {
			small = append(small, c.called())
		}
	}
	if len(small) == 0 {
		return nil, nil
	}
	return []contract.Finding{{
		Name: "small_limits", Detail: "members of etcd refuse commits as large as a store makes: " + strings.Join(small, ", "), Advice: flags,
		Count: len(small), Examples: small,
	}}, nil
}

// history looks whether old values of keys are kept that a compaction should have removed: a read in the past fails if it has.
func (e *Engine) history(ctx context.Context, _ []condition) ([]contract.Finding, error) {
	kept := false
	err := e.members.repeat(ctx, func(ctx context.Context, m member) error {
		now, err := m.Get(ctx, e.prefix+tickets)
		if err != nil || now.Header.Revision <= e.alarm.history {
			return err
		}
		_, err = m.Get(ctx, e.prefix+tickets, clientv3.WithRev(now.Header.Revision-e.alarm.history))
		if kept = err == nil; errors.Is(err, rpctypes.ErrCompacted) {
			return nil
		}
		return err
	})
	if err != nil {
		return nil, advised(err)
	}
	if !kept {
		return nil, nil
	}
	return []contract.Finding{{
		Name: "no_compaction", Detail: fmt.Sprintf("etcd keeps what was changed %d commits ago: its file grows with every commit", e.alarm.history),
		Advice: "start each member with --auto-compaction-mode periodic --auto-compaction-retention 5m",
	}}, nil
}
