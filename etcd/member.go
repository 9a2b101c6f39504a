package etcd

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// An engine asks one member until that one fails, then the next one. So if a member stops without closing its connections, few calls wait for it, and
// the reads of a view meet no member that is behind the one before. Engines begin at random members.
type members struct {
	config clientv3.Config // for all members

	mu      sync.Mutex         // guards what follows
	clients []*clientv3.Client // for one member each; nil if it was not asked yet
	current int
	left    chan struct{} // closed when another member becomes the current one
}

func newMembers(config clientv3.Config) *members {
	n := len(config.Endpoints)
	return &members{config: config, clients: make([]*clientv3.Client, n), current: rand.IntN(n), left: make(chan struct{})}
}

// A member is one that is asked.
type member struct {
	*clientv3.Client
	left <-chan struct{} // closed when another one is asked instead
}

// ask returns the current member.
func (m *members) ask() (member, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	client, err := m.client(m.current)
	if err != nil { // of a user who cannot log in
		m.next()
		return member{}, err
	}
	return member{client, m.left}, nil
}

// client returns the client for the member at a position of the endpoints. The caller has locked mu.
func (m *members) client(at int) (*clientv3.Client, error) {
	if m.clients[at] == nil {
		config := m.config
		config.Endpoints = m.config.Endpoints[at:][:1]
		client, err := clientv3.New(config)
		if err != nil {
			return nil, err
		}
		m.clients[at] = client
	}
	return m.clients[at], nil
}

// clientAt is client for a caller who has not locked mu.
func (m *members) clientAt(at int) (*clientv3.Client, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.client(at)
}

func (m *members) next() {
	m.current = (m.current + 1) % len(m.clients)
	close(m.left)
	m.left = make(chan struct{})
}

// leave goes on to the next member, unless somebody has done so.
func (m *members) leave(of member) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.left == of.left {
		m.next()
	}
}

// failed looks at an error of a member, and leaves it if it may be the reason. A caller who gave up soon is no reason.
func (m *members) failed(ctx context.Context, of member, err error, began time.Time) {
	if !refused(err) && (!errors.Is(ctx.Err(), context.Canceled) || time.Since(began) > firstPatience) {
		m.leave(of)
	}
}

func (m *members) close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var errs []error
	for _, c := range m.clients {
		if c != nil {
			errs = append(errs, c.Close())
		}
	}
	return errors.Join(errs...)
}

// A request that changes nothing, or may be made twice, is made again if it fails. The first two members to get it have firstPatience to answer,
// the next two twice as long, and so on. Two, because a member that does not know yet that its leader is dead loses what it is asked.
const (
	firstPatience = time.Second
	patience      = 15 * time.Second // after so long, it is not made again
	shortestPause = 10 * time.Millisecond
	longestPause  = 200 * time.Millisecond
)

// errSilent says that a member had not answered when its time was over.
var errSilent = errors.New("did not answer")

// repeat makes such a request until it is answered.
func (m *members) repeat(ctx context.Context, request func(context.Context, member) error) error {
	began, pause := time.Now(), shortestPause
	for silent := 0; ; {
		err := m.once(ctx, firstPatience<<(silent/2), request)
		if errors.Is(err, errSilent) {
			silent++
		}
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case refused(err) || time.Since(began) > patience:
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
		pause = min(2*pause, longestPause)
	}
}

// once makes a request to the current member.
func (m *members) once(ctx context.Context, wait time.Duration, request func(context.Context, member) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	of, err := m.ask()
	if err != nil {
		return nothing(err)
	}
	began := time.Now()
	limited, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	err = request(limited, of)
	if errors.Is(err, rpctypes.ErrInvalidAuthToken) || errors.Is(err, rpctypes.ErrAuthOldRevision) {
		err = request(limited, of) // nothing was applied, and the client has got a new token since
	}
	if err == nil {
		return nil
	}
	m.failed(ctx, of, err, began)
	if ctx.Err() == nil && limited.Err() != nil {
		return fmt.Errorf("%s %w for %v", of.Endpoints()[0], errSilent, wait)
	}
	return err
}
