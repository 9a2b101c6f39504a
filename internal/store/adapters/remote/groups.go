package remote

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"

	"github.com/seed-ed332417/jq/internal/graph"
	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/wire"
)

// SealGroup is part of the contract.
func (s *Store) SealGroup(ctx context.Context, name string) error {
	return tell(ctx, s, post(fmt.Sprintf(wire.PathSeal, segment(name)), store.CheckGroup(name), struct{}{}, mostNothing))
}

// Groups is part of the contract.
func (s *Store) Groups(ctx context.Context, filter store.GroupFilter, page store.Page) (store.GroupPage, error) {
	query := url.Values{"limit": {strconv.Itoa(page.Limit)}}
	for name, value := range map[string]string{"name": filter.Name, "cursor": page.Cursor} {
		if value != "" {
			query.Set(name, value)
		}
	}
	if filter.OpenFor != 0 {
		query.Set("open_for", filter.OpenFor.String())
	}
	_, invalid := filter.Position(page)
	c := fetch(wire.PathGroups, invalid, mostGroups(page.Limit))
	c.query = query.Encode()
	answer, err := ask(ctx, s, c, func(p wire.Groups) error {
		for _, g := range p.Groups {
			if g.Name == "" {
				return errors.New("a group without a name")
			}
		}
		return listed(p.Groups, page.Limit, "groups")
	})
	for i := range answer.Groups {
		answer.Groups[i].OpenedAt = store.Truncate(answer.Groups[i].OpenedAt)
	}
	return store.GroupPage{Groups: answer.Groups, Next: answer.Next}, err
}

// GraphOfGroup returns the graph around a group, which the server reads.
func (s *Store) GraphOfGroup(ctx context.Context, name string) (graph.Graph, error) {
	c := fetch(fmt.Sprintf(wire.PathGroup, segment(name)), store.CheckGroup(name), mostGraph)
	answer, err := ask(ctx, s, c, func(d wire.GroupDetail) error { return checkGraph(d.Graph) })
	return answer.Graph, err
}

// GraphOfJob returns the graph around a job, which the server reads.
func (s *Store) GraphOfJob(ctx context.Context, id int64) (graph.Graph, error) {
	return ask(ctx, s, fetch(fmt.Sprintf(wire.PathGraph, id), nil, mostGraph), checkGraph)
}

// checkGraph refuses an answer whose indices lead nowhere.
func checkGraph(g graph.Graph) error {
	lost := func(i int) bool { return i < 0 || i >= len(g.Nodes) }
	if len(g.Nodes) == 0 || len(g.Nodes) > graph.MaxNodes ||
		slices.ContainsFunc(g.Edges, func(e graph.Edge) bool { return lost(e.Waiter) || lost(e.On) }) ||
		slices.ContainsFunc(slices.Concat(g.Circles...), lost) {
		return errors.New("not a graph")
	}
	return nil
}
