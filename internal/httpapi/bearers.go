package httpapi

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"sync"
	"sync/atomic"
	"time"

	"github.com/benbjohnson/clock"
)

// Bearers are those who have the tokens that an API knows now.
type bearers struct {
	clock clock.Clock
	room  func() *share

	now    atomic.Pointer[[]*bearer] // nil where no tokens are needed
	mu     sync.Mutex                // lets one list at a time take the place of another, and guards shares
	shares map[string]*share         // by name. They stay: whoever comes back finds what is in use still
}

// A bearer has one token. It does not change: another one takes its place.
type bearer struct {
	known
	share *share          // of all tokens of the name
	life  context.Context // of what lasts longer than a call
	end   context.CancelCauseFunc
}

// SetTokens lets other tokens take the place of those that the API knows: from then on each request needs one of them. Claims that
// wait and streams of tokens that are not among them, or may do other things now, end. Those of all others go on. An empty list
// lets nobody in.
func (a *API) SetTokens(tokens *Tokens) { a.bearers.set(tokens) }

func (b *bearers) set(tokens *Tokens) {
	b.mu.Lock()
	defer b.mu.Unlock()
	before := map[string]*bearer{}
	for _, one := range b.all() {
		before[one.Hash] = one
	}
	after := []*bearer{}
	for _, k := range tokens.known {
		one := &bearer{known: k, share: b.shares[k.Name]}
		if one.share == nil {
			one.share = b.room()
			b.shares[k.Name] = one.share
		}
		if old := before[k.Hash]; old != nil && old.life.Err() == nil && old.SameRights(k.Token) {
			one.life, one.end = old.life, old.end
			delete(before, k.Hash)
		} else {
			one.life, one.end = context.WithCancelCause(context.Background())
		}
		after = append(after, one)
	}
	b.now.Store(&after)
	for _, gone := range before {
		gone.end(noToken)
	}
	b.endExpired()
}

// endExpired ends what lasts of tokens that have expired meanwhile.
func (b *bearers) endExpired() {
	now := b.clock.Now()
	for _, one := range b.all() {
		if one.Expired(now) {
			one.end(expired(one.Token))
		}
	}
}

// needed says whether there are tokens, and be it an empty list of them.
func (b *bearers) needed() bool { return b.now.Load() != nil }

func (b *bearers) all() []*bearer {
	if all := b.now.Load(); all != nil {
		return *all
	}
	return nil
}

// find is who has the secret, or nil. It takes equally long wherever the token stands, and however much of it is right.
func (b *bearers) find(secret string) (found *bearer) {
	sum := sha256.Sum256([]byte(secret))
	for _, one := range b.all() {
		if subtle.ConstantTimeCompare(sum[:], one.sum[:]) == 1 {
			found = one
		}
	}
	return found
}

// refusal says why the token is not taken any more. One that has expired stays so, also where the clock goes back.
func (b *bearers) refusal(one *bearer) error {
	if one.Expired(b.clock.Now()) {
		return expired(one.Token)
	}
	return context.Cause(one.life)
}

func expired(t Token) error {
	f := tokenExpired
	f.Detail = "it has ended at " + t.Expires.Format(time.RFC3339) + ", get another one"
	return f
}

// revoked is closed when what lasts has to end, because the token is not taken any more.
func (x *exchange) revoked() <-chan struct{} {
	if x.bearer == nil {
		return nil
	}
	return x.bearer.life.Done()
}

// refusal says why what lasts has to end, if it has to.
func (x *exchange) refusal() error {
	if x.bearer == nil {
		return nil
	}
	return context.Cause(x.bearer.life)
}
