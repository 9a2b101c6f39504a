package httpapi

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/seed-ed332417/jq/internal/wire"
)

const pathSession = "/v1/session"

// A session stands for a token in a browser, which must not keep the token itself. Its cookie is sent by the browser alone, out of reach of
// scripts. So that no other page can use it, each call but GET and HEAD must repeat what only a page of this server can have read: the
// X-CSRF-Token.
const (
	sessionCookie    = "jq_session"
	csrfHeader       = "X-Csrf-Token"
	maxSession       = 12 * time.Hour
	maxSessions      = 4096 // of all tokens
	maxTokenSessions = 16   // of one; another one ends the oldest
)

type (
	loginRequest struct {
		Token string `json:"token"`
	}
	sessionAnswer struct {
		Name      string    `json:"name"`
		Roles     []Role    `json:"roles"`
		Queues    []string  `json:"queues,omitempty"`
		KeyPrefix string    `json:"key_prefix,omitempty"`
		Expires   wire.Time `json:"expires,omitzero"`
		CSRFToken string    `json:"csrf_token,omitempty"`
	}
)

// Sessions are those of an API. They end with its process.
type sessions struct {
	clock   clock.Clock
	bearers *bearers

	mu  sync.Mutex // guards all
	all map[[sha256.Size]byte]*session
}

// A session is kept by the hash of its id: whoever reads the memory of the server can not use it.
type session struct {
	token       string // the hash of it
	begun, ends time.Time
	life        context.Context // which the token's has to outlast
	end         context.CancelCauseFunc
}

// open begins a session of the token. The id is always a new one, whatever the browser has sent: nobody can have planted it there.
func (s *sessions) open(b *bearer) (id string, ends time.Time, err error) {
	var secret [32]byte
	_, _ = rand.Read(secret[:]) // it never fails
	id = base64.RawURLEncoding.EncodeToString(secret[:])
	s.sweep()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.makeRoom(b.Hash)
	if len(s.all) >= maxSessions {
		return "", time.Time{}, tooManySessions
	}
	now := s.clock.Now()
	one := &session{token: b.Hash, begun: now, ends: now.Add(maxSession)}
	if !b.Expires.IsZero() && b.Expires.Before(one.ends) {
		one.ends = b.Expires.Time
	}
	one.life, one.end = context.WithCancelCause(b.life)
	s.all[sha256.Sum256([]byte(id))] = one
	return id, one.ends, nil
}

// makeRoom ends the oldest session of the token, if it has as many as it can have.
func (s *sessions) makeRoom(token string) {
	n := 0
	var oldest [sha256.Size]byte
	for sum, one := range s.all {
		if one.token != token {
			continue
		}
		if n++; n == 1 || one.begun.Before(s.all[oldest].begun) {
			oldest = sum
		}
	}
	if n >= maxTokenSessions {
		s.remove(oldest)
	}
}

func (s *sessions) remove(sum [sha256.Size]byte) {
	if one := s.all[sum]; one != nil {
		one.end(noSession)
		delete(s.all, sum)
	}
}

// close ends the session.
func (s *sessions) close(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remove(sha256.Sum256([]byte(id)))
}

// sweep ends sessions whose time is over, and forgets those whose token was removed.
func (s *sessions) sweep() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Now()
	for sum, one := range s.all {
		if !now.Before(one.ends) || one.life.Err() != nil {
			s.remove(sum)
		}
	}
}

// find is the bearer as whom the session is let in, or nil. Its life may be over, like that of any bearer. What the token may do now is
// asked of the tokens that are known now.
func (s *sessions) find(id string) *bearer {
	s.mu.Lock()
	one := s.all[sha256.Sum256([]byte(id))]
	s.mu.Unlock()
	if one == nil || !s.clock.Now().Before(one.ends) {
		return nil
	}
	all := s.bearers.all()
	at := slices.IndexFunc(all, func(b *bearer) bool { return b.Hash == one.token })
	if at < 0 {
		return nil
	}
	return &bearer{known: all[at].known, share: all[at].share, life: one.life, end: one.end}
}

// csrfOf is what calls of the session repeat. It tells nothing of the id.
func csrfOf(id string) string {
	sum := sha256.Sum256([]byte("csrf:" + id))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// cookieName is that of the cookie. Under TLS browsers take it from this very host alone, not from its neighbours.
func cookieName(r *http.Request) string {
	if r.TLS != nil {
		return "__Host-" + sessionCookie
	}
	return sessionCookie
}

// cookieOf is the id that the browser has sent. Of two, one was planted there by a neighbour: then there is none.
func cookieOf(r *http.Request) string {
	if sent := r.CookiesNamed(cookieName(r)); len(sent) == 1 {
		return sent[0].Value
	}
	return ""
}

func setCookie(w http.ResponseWriter, r *http.Request, id string, age time.Duration) {
	seconds := int(age / time.Second)
	if id == "" || seconds == 0 {
		seconds = -1 // which removes it
	}
	http.SetCookie(w, &http.Cookie{
		Name: cookieName(r), Value: id, Path: "/", MaxAge: seconds, HttpOnly: true, Secure: r.TLS != nil, SameSite: http.SameSiteStrictMode,
	})
}

// bearerOf is who makes the request: by a token, or by the cookie of a session where there is none.
func (a *API) bearerOf(r *http.Request) (*bearer, error) {
	if r.Header.Get("Authorization") == "" {
		if id := cookieOf(r); id != "" {
			if b := a.sessions.find(id); b != nil {
				return b, nil
			}
			return nil, noSession
		}
	}
	scheme, secret, found := strings.Cut(r.Header.Get("Authorization"), " ")
	if !found || !strings.EqualFold(scheme, "Bearer") {
		return nil, noToken
	}
	if b := a.bearers.find(strings.TrimSpace(secret)); b != nil {
		return b, nil
	}
	return nil, noToken
}

// checkCSRF refuses what the page of another site may have sent with the cookie of a session.
func checkCSRF(r *http.Request) error {
	if r.Method == http.MethodGet || r.Method == http.MethodHead || r.Header.Get("Authorization") != "" {
		return nil
	}
	if subtle.ConstantTimeCompare([]byte(r.Header.Get(csrfHeader)), []byte(csrfOf(cookieOf(r)))) != 1 {
		return noCSRF
	}
	return nil
}

// login begins a session. The one that the browser had before ends.
func (a *API) login(w *exchange, r *http.Request) error {
	req, err := decode[loginRequest](w, r)
	if err != nil {
		return err
	}
	if !a.bearers.needed() {
		return noSessions
	}
	b := a.bearers.find(req.Token)
	if b == nil {
		return noLogin
	}
	w.bearer = b
	if err := a.bearers.refusal(b); err != nil {
		return err
	}
	a.begin(w, r)
	id, ends, err := a.sessions.open(b)
	if err != nil {
		return err
	}
	a.sessions.close(cookieOf(r))
	setCookie(w, r, id, ends.Sub(a.clock.Now()))
	w.Header().Set(csrfHeader, csrfOf(id))
	return done(w)
}

// session tells what the token or the session may do.
func (a *API) session(w *exchange, r *http.Request) error {
	if w.bearer == nil {
		return noSessions
	}
	answer := sessionAnswer{
		Name: w.bearer.Name, Roles: w.bearer.roles, Queues: w.bearer.Queues, KeyPrefix: w.bearer.KeyPrefix, Expires: w.bearer.Expires,
	}
	if r.Header.Get("Authorization") == "" {
		answer.CSRFToken = csrfOf(cookieOf(r))
	}
	return a.answer(w, http.StatusOK, answer)
}

// logout ends the session, if it is one.
func (a *API) logout(w *exchange, r *http.Request) error {
	if err := nothing(w, r); err != nil {
		return err
	}
	if w.bearer == nil {
		return noSessions
	}
	if r.Header.Get("Authorization") == "" {
		a.sessions.close(cookieOf(r))
		setCookie(w, r, "", 0)
	}
	return done(w)
}
