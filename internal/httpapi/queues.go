package httpapi

import (
	"context"
	"errors"
	"net/http"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/wire"
)

func (a *API) queues(w *exchange, r *http.Request) error {
	keeper, err := able[store.QueueKeeper](r.Context(), a)
	if err != nil {
		return err
	}
	return a.showBrief(w, r, func(ctx context.Context) (any, error) {
		queues, err := keeper.Queues(ctx)
		return wire.Queues{Queues: wire.Listed(queues)}, err
	})
}

func paused(pause bool) handler {
	return forName("queue", func(keeper store.QueueKeeper, ctx context.Context, name string) error {
		return keeper.SetPaused(ctx, name, pause)
	})
}

func (a *API) policy(w *exchange, r *http.Request) error {
	keeper, err := able[store.PolicyKeeper](r.Context(), a)
	if err != nil {
		return err
	}
	ctx, cancel := a.within(r.Context())
	defer cancel()
	p, err := keeper.Policy(ctx, r.PathValue("name"))
	if err != nil {
		return named(err, "queue", "name")
	}
	return a.answer(w, http.StatusOK, p)
}

func (a *API) setPolicy(w *exchange, r *http.Request) error {
	keeper, err := able[store.PolicyKeeper](r.Context(), a)
	if err != nil {
		return err
	}
	req, err := decode[wire.Policy](w, r)
	if err != nil {
		return err
	}
	w.noteRequest(req)
	ctx, cancel := a.within(r.Context())
	defer cancel()
	name, p := r.PathValue("name"), req.Store()
	if req.Owner == nil { // whoever does not declare the policy does not take it from the program that does
		if req.Declared != 0 {
			return &store.InvalidError{Item: -1, Field: "declared", Rule: "needs the owner, who declares the policy"}
		}
		current, err := keeper.Policy(ctx, name)
		if err != nil {
			return named(err, "queue", "name")
		}
		p.Owner, p.Declared = current.Owner, current.Declared
	}
	if p, err = keeper.SetPolicy(ctx, name, p); err != nil {
		return named(err, "queue", "name")
	}
	return a.answer(w, http.StatusOK, p)
}

// fence takes an optional body. Without one it ends no leases.
func (a *API) fence(w *exchange, r *http.Request) error {
	fencer, err := able[store.Fencer](r.Context(), a)
	if err != nil {
		return err
	}
	req, err := decodeAny[wire.Fence](w, r)
	if err != nil {
		return err
	}
	w.noteRequest(req)
	ctx, cancel := a.within(r.Context())
	defer cancel()
	epoch, err := fencer.Fence(ctx, store.FenceRequest{EndLeases: req.EndLeases, Epoch: int64(req.Epoch)})
	if err != nil {
		return err
	}
	return a.answer(w, http.StatusOK, wire.Fenced{Epoch: wire.ID(epoch)})
}

// able returns the store's optional ability. If the store lacks it, the error is errors.ErrUnsupported.
func able[Ability any](ctx context.Context, a *API) (Ability, error) {
	_, has := a.store.(Ability)
	ability, ok := a.as(ctx).(Ability)
	if !has || !ok {
		return ability, errors.ErrUnsupported
	}
	return ability, nil
}
