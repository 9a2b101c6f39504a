package random

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/seed-ed332417/jq/internal/store"
)

// both makes a call on the store and on the model, compares the answers, and returns the store's. An error that both
// answer is no difference and is returned as no error: the answer is empty then.
func both[T any](r *run, what string, call func(s store.Store) (T, error)) (T, error) {
	got, gotErr := call(r.store)
	want, wantErr := call(r.model)
	return got, compare(what, got, gotErr, want, wantErr)
}

// compare says how an answer of the store differs from the model's.
func compare(what string, got any, gotErr error, want any, wantErr error) error {
	if g, w := kind(gotErr), kind(wantErr); g != w {
		return fmt.Errorf("%s: got error %q, want %q: %w", what, g, w, errors.Join(gotErr, wantErr))
	}
	if wantErr != nil {
		return nil
	}
	if reflect.DeepEqual(got, want) { // by far the most frequent case, and much faster than cmp
		return nil
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		return fmt.Errorf("%s: the store's answer differs from the model's (-want +got):\n%s", what, diff)
	}
	return nil
}

// kind is what the contract says of an error: which one it is, and of what is invalid the words.
func kind(err error) string {
	if err == nil {
		return "none"
	}
	if invalid, ok := errors.AsType[*store.InvalidError](err); ok {
		return fmt.Sprintf("item %d: %s", invalid.Item, invalid.Error())
	}
	for _, known := range []error{
		store.ErrInvalid, store.ErrNotFound, store.ErrState, store.ErrDuplicate, store.ErrConflict,
		store.ErrStaleLease, store.ErrAlreadyFinished, store.ErrUnavailable, store.ErrInDoubt, store.ErrClosed,
	} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	return "unknown to the contract"
}

// tidy is the job with nothing in place of empty slices, between which the contract makes no difference.
func tidy(j store.Job) store.Job {
	for _, doc := range []*[]byte{&j.Payload, &j.Checkpoint, &j.Progress, &j.Result} {
		if len(*doc) == 0 {
			*doc = nil
		}
	}
	if len(j.Tags) == 0 {
		j.Tags = nil
	}
	return j
}
