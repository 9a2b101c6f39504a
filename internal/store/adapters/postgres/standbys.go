package postgres

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/seed-ed332417/jq/internal/store"
)

// replication is what the server says of its standbys.
type replication struct {
	Names  string // synchronous_standby_names
	Commit string // synchronous_commit of this session
	Wanted int    // how many standbys a commit waits for; synchronous_standby_names may begin with the number, the default is one

	standbys []standby
}

// A standby is a server that streams from this one. A user who may not read the statistics sees no state and no positions: such a standby
// counts, and does not lag.
type standby struct {
	Name    string
	State   string // sync, quorum and potential can confirm a commit, async cannot
	Lacks   int64  // bytes of the log that it has not on its disk
	Replays int64  // bytes of the log that it has on its disk, and has not replayed
}

// lookAtStandbys looks for commits that wait for no standby, for one that is not there, or for one that has no substitute, and for
// standbys that lag.
func (s *Store) lookAtStandbys(ctx context.Context, a alarming) ([]store.Finding, error) {
	var r replication
	if err := s.db.GetContext(ctx, &r, `
		SELECT names, current_setting('synchronous_commit') AS commit,
			coalesce(substring(names FROM '(?i)^\s*(?:first\s|any\s)?\s*(\d+)\s*\(')::integer, 1) AS wanted
		FROM current_setting('synchronous_standby_names') AS names`); err != nil {
		return nil, err
	}
	if err := s.db.SelectContext(ctx, &r.standbys, `
		SELECT coalesce(application_name, '') AS name, coalesce(sync_state, 'sync') AS state,
			coalesce(pg_wal_lsn_diff(
				CASE WHEN pg_is_in_recovery() THEN pg_last_wal_receive_lsn() ELSE pg_current_wal_flush_lsn() END, flush_lsn), 0)::bigint AS lacks,
			coalesce(pg_wal_lsn_diff(flush_lsn, replay_lsn), 0)::bigint AS replays
		FROM pg_stat_replication
		ORDER BY application_name, pid`); err != nil {
		return nil, err
	}
	var all []store.Finding
	if r.Names != "" {
		all = append(all, r.synchronous()...)
	}
	return append(all, r.lagging(a.behind)...), nil
}

// synchronous looks at the commits of a server that has a list of synchronous standbys.
func (r *replication) synchronous() []store.Finding {
	if r.Commit == "off" || r.Commit == "local" {
		return []store.Finding{{
			Name: "standbys_not_awaited",
			Detail: fmt.Sprintf("synchronous_standby_names is %s, but synchronous_commit is %s: commits wait for no standby, and a failover "+
				"loses jobs that were answered", r.Names, r.Commit),
			Advice: "set synchronous_commit to on for the role and the database; or, if commits need not outlive this server, empty synchronous_standby_names and reload",
		}}
	}
	confirming := 0 // as many can confirm a commit now
	for _, b := range r.standbys {
		if b.State != "async" {
			confirming++
		}
	}
	switch {
	case confirming < r.Wanted:
		return []store.Finding{{
			Name: "no_standby",
			Detail: fmt.Sprintf("synchronous_standby_names is %s, and %d of the %d standbys that commits wait for are connected: every call that writes "+
				"waits until it is cancelled, and is then in doubt", r.Names, confirming, r.Wanted),
			Advice: "connect a standby; or, if commits need not outlive this server, empty synchronous_standby_names and reload",
		}}
	case confirming == r.Wanted:
		return []store.Finding{{
			Name: "no_spare_standby",
			Detail: fmt.Sprintf("synchronous_standby_names is %s, commits wait for %d of the standbys that it names, and no more are connected: "+
				"when one dies, every call that writes waits", r.Names, r.Wanted),
			Advice: "connect another one, which synchronous_standby_names must name too: ANY 1 (b, c) waits for one of two",
		}}
	}
	return nil
}

// lagging looks for standbys that are many bytes behind.
func (r *replication) lagging(most int64) []store.Finding {
	behind := slices.DeleteFunc(slices.Clone(r.standbys), func(b standby) bool { return max(b.Lacks, b.Replays) <= most })
	slices.SortStableFunc(behind, func(a, b standby) int { return cmp.Compare(max(b.Lacks, b.Replays), max(a.Lacks, a.Replays)) })
	var all []store.Finding
	for _, b := range behind {
		f := store.Finding{
			Name: "lagging_standby",
			Detail: fmt.Sprintf("the standby %s lacks %d MiB of the log: a failover to it loses what these changed, if commits do not wait for it",
				b.Name, b.Lacks>>20),
			Advice: "look at its network and its disk, and whether its process that receives the log is stopped",
		}
		if b.Lacks <= most {
			f.Detail = fmt.Sprintf("the standby %s has %d MiB of the log to replay: a failover to it takes longer", b.Name, b.Replays>>20)
			f.Advice = "look whether replay is paused on it, or waits for long queries there"
		}
		all = append(all, f)
	}
	return all
}
