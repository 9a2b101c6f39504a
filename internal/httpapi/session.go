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

// A session stands for a token in a browser, which must not store the token itself. Scripts can not read the cookie. To
// protect sessions from other sites, each call except GET and HEAD must send the X-CSRF-Token, which only pages of this
// server can read.
const (
	sessionCookie    = "jq_session"
	csrfHeader       = "X-Csrf-Token"
	maxSession       = 12 * time.Hour
	maxSessions      = 4096 // sessions of all tokens together
	maxTokenSessions = 16   // sessions of one token; one more ends the oldest
)

type (
	loginRequest struct {
		Token string `json:"token"`
	}
	sessionAnswer struct {
		Name      string    `json:"name"`
		Roles     []Role    `json:"roles"`
		Open      bool      `json:"open,omitempty"` // the server has no tokens
		Queues    []string  `json:"queues,omitempty"`
		KeyPrefix string    `json:"key_prefix,omitempty"`
		Expires   wire.Time `json:"expires,omitzero"`
		CSRFToken string    `json:"csrf_token,omitempty"`
	}
)

// sessions holds the sessions of an API. They end with the process.
type sessions struct {
	clock   clock.Clock
	bearers *bearers

	mu  sync.Mutex // guards all
	all map[[sha256.Size]byte]*session
}

// A session is stored under the hash of its id, so that nobody who reads the server's memory can use it.
type session struct {
	token       string // the hash of the token
	begun, ends time.Time
	life        context.Context // derived from the life of the token
	end         context.CancelCauseFunc
}

// open begins a session of the token. The id is always new, whatever the browser has sent, so that nobody can have planted
// it.
func (s *sessions) open(b *bearer) (id string, ends time.Time, err error) {
	var secret [32]byte
	_, _ = rand.Read(secret[:]) // never fails
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

// makeRoom ends the oldest session of the token if the token has the maximum number.
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

// sweep ends sessions that have expired or whose token was removed.
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

// find returns the bearer of the session, or nil. The rights are those that the token has now. As for any bearer, the life of
// the result may have ended.
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

// csrfOf returns the CSRF token of the session. It does not reveal the id.
func csrfOf(id string) string {
	sum := sha256.Sum256([]byte("csrf:" + id))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// cookieName returns the name of the cookie. With TLS it has the prefix __Host-: browsers accept such a cookie only from this
// very host, not from a subdomain or a parent domain.
func cookieName(r *http.Request) string {
	if r.TLS != nil {
		return "__Host-" + sessionCookie
	}
	return sessionCookie
}

// cookieOf returns the session id that the browser has sent. If there are two cookies, another host has planted one of them,
// so it accepts neither.
func cookieOf(r *http.Request) string {
	if sent := r.CookiesNamed(cookieName(r)); len(sent) == 1 {
		return sent[0].Value
	}
	return ""
}

func setCookie(w http.ResponseWriter, r *http.Request, id string, age time.Duration) {
	seconds := int(age / time.Second)
	if id == "" || seconds == 0 {
		seconds = -1 // removes the cookie
	}
	http.SetCookie(w, &http.Cookie{
		Name: cookieName(r), Value: id, Path: "/", MaxAge: seconds, HttpOnly: true, Secure: r.TLS != nil, SameSite: http.SameSiteStrictMode,
	})
}

// bearerOf returns who makes the request, by its token or else by the cookie of a session.
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

// checkCSRF refuses a request with a session cookie that a page of another site may have sent.
func checkCSRF(r *http.Request) error {
	if r.Method == http.MethodGet || r.Method == http.MethodHead || r.Header.Get("Authorization") != "" {
		return nil
	}
	if subtle.ConstantTimeCompare([]byte(r.Header.Get(csrfHeader)), []byte(csrfOf(cookieOf(r)))) != 1 {
		return noCSRF
	}
	return nil
}

// login begins a session, and ends the session that the browser had before.
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

// session answers what the token or the session may do. Without tokens everybody may do everything.
func (a *API) session(w *exchange, r *http.Request) error {
	if w.bearer == nil {
		return a.answer(w, http.StatusOK, sessionAnswer{Roles: roles, Open: true})
	}
	answer := sessionAnswer{
		Name: w.bearer.Name, Roles: w.bearer.roles, Queues: w.bearer.Queues, KeyPrefix: w.bearer.KeyPrefix, Expires: w.bearer.Expires,
	}
	if r.Header.Get("Authorization") == "" {
		answer.CSRFToken = csrfOf(cookieOf(r))
	}
	return a.answer(w, http.StatusOK, answer)
}

// logout ends the session, if the request belongs to one.
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
