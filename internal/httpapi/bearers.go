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

// bearers holds the tokens that the API accepts now.
type bearers struct {
	clock clock.Clock
	room  func() *share

	now    atomic.Pointer[[]*bearer] // nil if no token is needed
	mu     sync.Mutex                // guards shares, and serializes set
	shares map[string]*share         // by the name of the tokens; never removed, so that a name that returns has the share that its old calls still use
}

// A bearer is the holder of one token. It is immutable: set makes new ones.
type bearer struct {
	known
	share *share          // shared by all tokens of the same name
	life  context.Context // the context of claims that wait, streams and sessions
	end   context.CancelCauseFunc
}

// SetTokens replaces the tokens that the API accepts. From then on every request needs one of them. Waiting claims and
// streams end if their token is not in the list, or has other rights now; all others continue. With an empty list every
// request is refused.
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

// endExpired ends the waiting claims, streams and sessions of tokens that have expired.
func (b *bearers) endExpired() {
	now := b.clock.Now()
	for _, one := range b.all() {
		if one.Expired(now) {
			one.end(expired(one.Token))
		}
	}
}

// needed reports whether requests need a token. An empty list of tokens counts as well.
func (b *bearers) needed() bool { return b.now.Load() != nil }

func (b *bearers) all() []*bearer {
	if all := b.now.Load(); all != nil {
		return *all
	}
	return nil
}

// find returns the bearer with this secret, or nil. The time it takes does not depend on the position of the token, nor on
// how much of the secret is right.
func (b *bearers) find(secret string) (found *bearer) {
	sum := sha256.Sum256([]byte(secret))
	for _, one := range b.all() {
		if subtle.ConstantTimeCompare(sum[:], one.sum[:]) == 1 {
			found = one
		}
	}
	return found
}

// refusal returns why the token is no longer valid, or nil. An expired token stays expired even if the clock goes back.
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

// revoked returns a channel that is closed when the token is no longer valid. Waiting claims and streams must end then.
func (x *exchange) revoked() <-chan struct{} {
	if x.bearer == nil {
		return nil
	}
	return x.bearer.life.Done()
}

// refusal returns why the token is no longer valid, or nil.
func (x *exchange) refusal() error {
	if x.bearer == nil {
		return nil
	}
	return context.Cause(x.bearer.life)
}
