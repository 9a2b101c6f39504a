package remote

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"

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
