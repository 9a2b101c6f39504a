package store

import (
	"fmt"
	"slices"
	"time"
)

// A Group is a number of jobs for which others can wait as a whole. It exists while it is open, a job is in it, or a job waits for it or
// has waited for it.
type Group struct {
	Name     string    `json:"name"`               // chosen by whoever enqueues its jobs
	OpenedAt time.Time `json:"opened_at,omitzero"` // when it was opened, if it is still open
	GroupStatus
}

// A GroupStatus is how a group is at one moment. A group is over when it is neither open nor live.
type GroupStatus struct {
	Open    bool `json:"open,omitempty"`    // jobs are still to come
	Live    bool `json:"live,omitempty"`    // a job in it has not ended
	Dead    bool `json:"dead,omitempty"`    // a job in it is dead
	Spoiled bool `json:"spoiled,omitempty"` // a job in it was cancelled, or deleted when it was dead
}

// meets reports whether a wait for the group is met.
func (g GroupStatus) meets(whatever bool) bool {
	return !g.Open && !g.Live && (whatever || !g.Dead && !g.Spoiled)
}

// Phase returns the phase in which a job would be that stands for the group: in flight until the group is done, and cancelled as soon as
// it is spoiled.
func (g GroupStatus) Phase() State {
	switch {
	case g.Spoiled:
		return Cancelled
	case g.Open || g.Live:
		return InFlight
	case g.Dead:
		return Dead
	default:
		return Succeeded
	}
}

// spoiledReason is the error of a job that was cancelled because a group that it needs is spoiled.
func spoiledReason(group string) string {
	return fmt.Sprintf("group %q, which it needs, has a job that was cancelled or deleted", group)
}

// SpoilsOf returns the group that a job spoils which has ended, or is deleted. It returns "" if it spoils none.
func SpoilsOf(j *Job, deleted bool) string {
	phase := PhaseOf(j)
	if phase == Cancelled || phase == Dead && deleted {
		return j.Group()
	}
	return ""
}

// NotOpen returns the error for a group that is to be sealed and is not open.
func NotOpen(name string) error { return refuse("group", fmt.Sprintf("%q is not open", name)) }

// CheckGroup returns an [*InvalidError] if the name of a group breaks a limit.
func CheckGroup(name string) error { return asError(checkName("group", name, required)) }

// A GroupFilter selects groups.
type GroupFilter struct {
	Name    string        // selects the group with this name; empty selects every group
	OpenFor time.Duration // selects the groups that were opened at least this long ago and are still open
}

// Check returns an [*InvalidError] if the filter breaks a limit.
func (f GroupFilter) Check() error {
	return asError(firstError(checkName("name", f.Name, optional), checkDuration("open_for", f.OpenFor)))
}

// Matches reports whether the filter selects the group at now.
func (f GroupFilter) Matches(g Group, now time.Time) bool {
	return (f.Name == "" || f.Name == g.Name) &&
		(f.OpenFor == 0 || g.Open && !g.OpenedAt.After(now.Add(-f.OpenFor.Truncate(Resolution))))
}

// Cursor returns the cursor of the page that begins after the group with the name.
func (f GroupFilter) Cursor(name string) string { return f.listing().cursor(name) }

// Position checks the filter and the page, and returns the name after which the page begins: empty for the first page. A cursor
// from another filter or from another listing returns ErrInvalid.
func (f GroupFilter) Position(page Page) (string, error) {
	return f.listing().position(f.Check(), page)
}

func (f GroupFilter) listing() listing {
	return listing(fmt.Sprintf("groups %q %d", f.Name, f.OpenFor.Microseconds()))
}

// A GroupPage is a page of groups in bytewise order of name.
type GroupPage struct {
	Groups []Group `json:"groups"`         // those of the page
	Next   string  `json:"next,omitempty"` // the cursor of the next page; empty on the last page
}

// checkCircles refuses jobs of which one would wait for itself: for a group in which it is, or in which a job is that waits for it in turn.
func checkCircles(jobs []NewJob) *InvalidError {
	var members map[string][]int // the items of the groups that jobs of the call wait for
	for _, n := range jobs {
		for _, w := range n.After {
			if w.Group == "" {
				continue
			}
			if members == nil {
				members = map[string][]int{}
			}
			members[w.Group] = nil
		}
	}
	if len(members) == 0 {
		return nil
	}
	for i, n := range jobs {
		if _, awaited := members[n.Group]; awaited {
			members[n.Group] = append(members[n.Group], i)
		}
	}
	c := circles{jobs: jobs, members: members, left: map[any]bool{}, entered: map[any]bool{}}
	for i := range jobs {
		if item, found := c.from(i); found {
			err := refuse("after", "must not wait for a group that waits for the job itself")
			err.Item = item
			return err
		}
	}
	return nil
}

// circles searches items, which are ints, and groups, which are strings, for circles.
type circles struct {
	jobs          []NewJob
	members       map[string][]int
	entered, left map[any]bool
	path          []any
}

// from returns the first item of a circle that can be reached from the item or group, unless it was found before that there is none.
func (c *circles) from(node any) (item int, found bool) {
	if c.left[node] {
		return 0, false
	}
	if c.entered[node] {
		item = len(c.jobs)
		for _, on := range c.path[slices.Index(c.path, node):] {
			if i, ok := on.(int); ok {
				item = min(item, i)
			}
		}
		return item, true
	}
	c.entered[node] = true
	c.path = append(c.path, node)
	for _, next := range c.next(node) {
		if item, found := c.from(next); found {
			return item, true
		}
	}
	c.path = c.path[:len(c.path)-1]
	c.left[node] = true
	return 0, false
}

// next returns what the item or the jobs of the group wait for.
func (c *circles) next(node any) (next []any) {
	switch n := node.(type) {
	case string:
		for _, i := range c.members[n] {
			next = append(next, i)
		}
	case int:
		for _, w := range c.jobs[n].After {
			switch {
			case w.Group != "":
				next = append(next, w.Group)
			case w.ID == 0:
				next = append(next, w.Item)
			}
		}
	}
	return next
}
