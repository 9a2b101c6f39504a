package sqlkit

import (
	"database/sql"
	"database/sql/driver"
	"fmt"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// Group is the column of the group that a job is in. NULL is none.
type Group struct{ Of **store.Extras }

// Scan reads the column.
func (g Group) Scan(src any) error {
	name, err := nameFrom(src)
	*g.Of = (*g.Of).WithGroup(name)
	return err
}

// Value writes the column.
func (g Group) Value() (driver.Value, error) {
	return nameOrNull(store.Job{Extras: *g.Of}.Group()), nil
}

// LimitKey is the column of the limit key of a job. NULL is none.
type LimitKey struct{ Of **store.Extras }

// Scan reads the column.
func (k LimitKey) Scan(src any) error {
	key, err := nameFrom(src)
	*k.Of = (*k.Of).WithLimitKey(key)
	return err
}

// Value writes the column.
func (k LimitKey) Value() (driver.Value, error) {
	return nameOrNull(store.Job{Extras: *k.Of}.LimitKey()), nil
}

// nameFrom reads a name from a column in which NULL is none.
func nameFrom(src any) (string, error) {
	switch v := src.(type) {
	case nil:
		return "", nil
	case string:
		return v, nil
	case []byte:
		return string(v), nil
	default:
		return "", fmt.Errorf("a name can not be read from %T", src)
	}
}

func nameOrNull(name string) driver.Value {
	if name == "" {
		return nil
	}
	return name
}

// Groups returns the rows of a query for groups, with the name, when it was opened, and whether it is spoiled, has live and has dead jobs.
func Groups(each Query, query string, args ...any) ([]store.Group, error) {
	var found []store.Group
	err := each(func(rows *sql.Rows) error {
		var g store.Group
		var opened Time
		err := rows.Scan(&g.Name, &opened, &g.Spoiled, &g.Live, &g.Dead)
		g.OpenedAt = time.Time(opened)
		g.Open = !g.OpenedAt.IsZero()
		found = append(found, g)
		return err
	}, query, args...)
	return found, err
}

// GroupPageOf returns the page. The query asked for one group more than the page may hold: if it found that, there is a next page.
func GroupPageOf(found []store.Group, filter store.GroupFilter, page store.Page) store.GroupPage {
	if len(found) <= page.Limit {
		return store.GroupPage{Groups: found}
	}
	found = found[:page.Limit]
	return store.GroupPage{Groups: found, Next: filter.Cursor(found[page.Limit-1].Name)}
}

// Expected returns the groups in which the jobs of a call are, and whether some of the jobs wait for one of these.
func Expected(jobs []store.NewJob) (groups map[string]bool, awaited []string) {
	for _, n := range jobs {
		if n.Group == "" {
			continue
		}
		if groups == nil {
			groups = map[string]bool{}
		}
		groups[n.Group] = true
	}
	for _, n := range jobs {
		for _, w := range n.After {
			if w.Group != "" && groups[w.Group] {
				awaited = append(awaited, w.Group)
			}
		}
	}
	return groups, awaited
}
