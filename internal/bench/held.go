package bench

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed-ed332417/jq/internal/store"
)

// holding measures the whole life of a job, without and with a snapshot that another session holds open.
func holding(ctx context.Context, r *run) (parts []Part, err error) {
	holder, ok := r.store.(store.SnapshotHolder)
	if !ok {
		return nil, fmt.Errorf("this kind of store has no snapshots that could be held open: %w", errors.ErrUnsupported)
	}
	free, err := r.apart(ctx, "free")
	if err != nil {
		return nil, err
	}
	release, err := holder.HoldSnapshot(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, release()) }()
	held, err := r.apart(ctx, "held")
	return []Part{free, versus(held, free)}, err
}

// apart measures a part on its own queue and deletes the jobs before the next part.
func (r *run) apart(ctx context.Context, name string) (part Part, err error) {
	other := r.beside(name)
	defer func() { err = errors.Join(err, other.remove(ctx)) }()
	return other.continuous(ctx, name)
}

// versus adds the part's rate as a share of the other's.
func versus(part, other Part) Part {
	mine, _ := part.Figure(Rate)
	others, _ := other.Figure(Rate)
	if others.Value > 0 {
		part.Figures = append(part.Figures, Figure{"rate to " + other.Name, "%", 100 * mine.Value / others.Value})
	}
	return part
}
