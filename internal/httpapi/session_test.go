package httpapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A visitor has a browser: it keeps cookies, and sends them with every call.
type visitor struct {
	*world
	audit   *audited
	count   *tally
	known   *Tokens
	secrets map[Role]string
	csrf    string
}

// lookPause is how often the API looks for sessions whose time is over.
const lookPause = time.Minute

// ends waits for the end of the stream, whatever is told before.
func (f *follower) ends() {
	for f.next() != "" {
		continue
	}
}

func newVisitor(t *testing.T) *visitor {
	t.Helper()
	v := &visitor{audit: &audited{}, count: &tally{}}
	v.known, v.secrets = tokens(t)
	v.world = newWorld(t, Options{Tokens: v.known, Audit: v.audit.logger(), Counter: v.count, PollPause: lookPause})
	v.forget()
	return v
}

// forget leaves the browser without cookies.
func (v *visitor) forget() {
	jar, err := cookiejar.New(nil)
	require.NoError(v, err)
	v.client.Jar = jar
}

func (v *visitor) login(secret string) answered {
	v.Helper()
	got := v.ask("POST", pathSession, fmt.Sprintf(`{"token":%q}`, secret), "Sec-Fetch-Site", "same-origin")
	v.csrf = got.header.Get(csrfHeader)
	return got
}

// cookie is the one that the answer sets.
func (v *visitor) cookie(a answered) *http.Cookie {
	v.Helper()
	all := (&http.Response{Header: a.header}).Cookies()
	require.Len(v, all, 1)
	return all[0]
}

// pause changes something by the session.
func (v *visitor) pause(headers ...string) int {
	v.Helper()
	return v.ask("POST", "/v1/queues/a/pause", "", headers...).status
}

// TestSession is begun by a token, does what the token may do, and is ended.
func TestSession(t *testing.T) {
	v := newVisitor(t)
	assert.Equal(t, 401, v.ask("GET", pathSession, "").status)
	got := v.login(v.secrets[Operator])
	require.Equal(t, 204, got.status)
	c := v.cookie(got)
	assert.Len(t, c.Value, 43, "256 bits")
	assert.Equal(t, "jq_session="+c.Value+"; Path=/; Max-Age=43200; HttpOnly; SameSite=Strict", c.Raw)
	answer := call[sessionAnswer](v.world, 200, "GET", pathSession, "")
	assert.Equal(t, sessionAnswer{Name: "the operator", Roles: []Role{Operator}, CSRFToken: v.csrf}, answer)
	assert.NotEqual(t, c.Value, v.csrf)
	assert.Equal(t, 204, v.pause(csrfHeader, v.csrf))
	assert.Empty(t, call[sessionAnswer](v.world, 200, "GET", pathSession, "", "Authorization", "Bearer "+v.secrets[Viewer]).CSRFToken)
	for sum := range v.api.sessions.all {
		assert.NotContains(t, string(sum[:]), c.Value, "the id is not kept")
	}
	follower := v.follow("GET", "/v1/events", "")
	got = v.ask("DELETE", pathSession, "", csrfHeader, v.csrf)
	require.Equal(t, 204, got.status)
	assert.Equal(t, "jq_session=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict", v.cookie(got).Raw)
	follower.ends()
	assert.Equal(t, 401, v.ask("GET", pathSession, "", "Cookie", "jq_session="+c.Value).status, "who has copied the cookie has nothing")
	var operations []any
	for _, line := range v.audit.lines(t) {
		assert.Equal(t, "the operator", line["name"])
		operations = append(operations, line["operation"])
	}
	assert.Equal(t, []any{"login", "pause", "logout"}, operations)
	for _, secret := range []string{v.secrets[Operator], c.Value, v.csrf} {
		assert.NotContains(t, v.logged.String()+v.audit.String(), secret)
	}
}

// TestSessionUnderTLS has a cookie that no other host can set, and that is sent under TLS alone.
func TestSessionUnderTLS(t *testing.T) {
	v := newVisitor(t)
	server := httptest.NewTLSServer(theBook().record(t, v.api))
	defer server.Close()
	v.url, v.client = server.URL, server.Client()
	v.forget()
	got := v.login(v.secrets[Operator])
	c := v.cookie(got)
	assert.Equal(t, "__Host-jq_session="+c.Value+"; Path=/; Max-Age=43200; HttpOnly; Secure; SameSite=Strict", c.Raw)
	assert.Equal(t, 204, v.pause(csrfHeader, v.csrf))
	v.forget()
	assert.Equal(t, 401, v.pause(csrfHeader, v.csrf, "Cookie", "jq_session="+c.Value), "by the plain name it is none")
}

// TestForgedCallsOfASession: what a page can not have read is missing, wrong, or another session's.
func TestForgedCallsOfASession(t *testing.T) {
	v := newVisitor(t)
	require.Equal(t, 204, v.login(v.secrets[Operator]).status)
	other := v.csrf
	v.forget()
	c := v.cookie(v.login(v.secrets[Operator]))
	for _, csrf := range []string{"", other, c.Value, v.csrf[1:], v.csrf + "A", strings.ToLower(v.csrf), csrfOf("")} {
		got := v.ask("POST", "/v1/queues/a/pause", "", csrfHeader, csrf)
		assert.Equal(t, []any{403, urn + "csrf"}, []any{got.status, got.fail(t).Type}, csrf)
	}
	assert.Equal(t, 403, v.ask("DELETE", pathSession, "").status)
	assert.Equal(t, 403, v.ask("POST", "/v1/jobs/list", `{}`).status)
	assert.Equal(t, 403, v.pause(csrfHeader, v.csrf, "Sec-Fetch-Site", "cross-site"))
	assert.Equal(t, 403, v.pause(csrfHeader, v.csrf, "Origin", "http://evil.example"))
	assert.Equal(t, 204, v.pause(csrfHeader, v.csrf, "Origin", v.url))
	assert.Equal(t, 200, v.ask("GET", "/v1/queues", "").status, "a reading needs none")
	assert.Equal(t, 204, v.pause("Authorization", "Bearer "+v.secrets[Operator]), "a token is no cookie")
	assert.Equal(t, 401, v.pause("Authorization", "Bearer x", csrfHeader, v.csrf), "the cookie does not mend a wrong token")
	v.forget()
	assert.Equal(t, 401, v.pause(csrfHeader, csrfOf("")), "no cookie at all")
	assert.Equal(t, 403, v.ask("POST", pathSession, `{"token":"x"}`, "Sec-Fetch-Site", "cross-site").status, "nobody is signed in by another page")
	assert.Equal(t, 415, v.ask("POST", pathSession, `{"token":"x"}`, "Content-Type", "text/plain").status)
}

// TestFailedSignIns are counted and logged like other unknown tokens, and write no line of the audit.
func TestFailedSignIns(t *testing.T) {
	v := newVisitor(t)
	for range 3 {
		assert.Equal(t, 401, v.login("jq_guessed").status)
	}
	assert.Equal(t, map[string]int{"refused unauthorized": 3}, v.count.taken())
	assert.Equal(t, 1, strings.Count(v.logged.String(), requestRefused))
	assert.NotContains(t, v.logged.String(), "jq_guessed")
	assert.Empty(t, v.audit.lines(t))
	assert.Empty(t, v.api.sessions.all)
}

// TestSessionExpires after twelve hours, or with its token.
func TestSessionExpires(t *testing.T) {
	v := newVisitor(t)
	brief, secrets := bearing(t, "brief", Operator, time.Hour)
	v.api.SetTokens(listed(t, brief))
	c := v.cookie(v.login(strings.TrimPrefix(secrets[1], "Bearer ")))
	assert.Equal(t, 3600, c.MaxAge)
	v.forget()
	v.clock.Add(time.Hour - 1)
	assert.Equal(t, 204, v.pause("Cookie", "jq_session="+c.Value, csrfHeader, v.csrf))
	v.clock.Add(1)
	assert.Equal(t, 401, v.pause("Cookie", "jq_session="+c.Value, csrfHeader, v.csrf))

	v = newVisitor(t)
	c = v.cookie(v.login(v.secrets[Operator]))
	v.clock.Add(maxSession - 1)
	follower := v.follow("GET", "/v1/events", "")
	v.forget()
	assert.Equal(t, 204, v.pause("Cookie", "jq_session="+c.Value, csrfHeader, v.csrf))
	v.clock.Add(1)
	assert.Equal(t, 401, v.pause("Cookie", "jq_session="+c.Value, csrfHeader, v.csrf))
	v.clock.Add(2 * lookPause)
	follower.ends()
	v.eventually("nothing is kept", func() bool {
		v.api.sessions.mu.Lock()
		defer v.api.sessions.mu.Unlock()
		return len(v.api.sessions.all) == 0
	})
}

// TestSessionEndsWithItsToken, also where the same token comes back, and stays where others come and go.
func TestSessionEndsWithItsToken(t *testing.T) {
	v := newVisitor(t)
	require.Equal(t, 204, v.login(v.secrets[Operator]).status)
	var others bytes.Buffer
	for _, one := range v.known.All() {
		if one.Role != Viewer {
			others.Write(one.Line())
		}
	}
	fewer, err := ReadTokens(&others)
	require.NoError(t, err)
	v.api.SetTokens(fewer)
	assert.Equal(t, 204, v.pause(csrfHeader, v.csrf))
	follower := v.follow("GET", "/v1/events", "")
	v.api.SetTokens(&Tokens{})
	assert.Empty(t, follower.next())
	assert.Equal(t, 401, v.pause(csrfHeader, v.csrf))
	v.api.SetTokens(v.known)
	assert.Equal(t, 401, v.pause(csrfHeader, v.csrf))
	require.Equal(t, 204, v.login(v.secrets[Operator]).status)
	less := v.known.All()
	for i := range less {
		less[i].Role = Viewer
	}
	v.api.SetTokens(listed(t, less...))
	assert.Equal(t, 401, v.pause(csrfHeader, v.csrf), "whoever may do less signs in again")
}

// TestSessionsAreBounded: one more of a token ends its oldest, and all together have an end.
func TestSessionsAreBounded(t *testing.T) {
	v := newVisitor(t)
	var cookies []string
	for range maxTokenSessions + 1 {
		v.forget()
		cookies = append(cookies, v.cookie(v.login(v.secrets[Operator])).Value)
		v.clock.Add(time.Second)
	}
	v.forget()
	for i, c := range cookies {
		want := 200
		if i == 0 {
			want = 401
		}
		assert.Equal(t, want, v.ask("GET", pathSession, "", "Cookie", "jq_session="+c).status, i)
	}
	assert.Len(t, v.api.sessions.all, maxTokenSessions)
	require.Equal(t, 204, v.login(v.secrets[Viewer]).status)
	assert.Len(t, v.api.sessions.all, maxTokenSessions+1)
	v.login(v.secrets[Viewer])
	assert.Len(t, v.api.sessions.all, maxTokenSessions+1, "the one that the browser had before has ended")
}

// TestPlantedCookiesAreNotTaken: an id that somebody has put into the browser is never a session's.
func TestPlantedCookiesAreNotTaken(t *testing.T) {
	v := newVisitor(t)
	here, err := url.Parse(v.url)
	require.NoError(t, err)
	planted := strings.Repeat("A", 43)
	v.client.Jar.SetCookies(here, []*http.Cookie{{Name: sessionCookie, Value: planted}})
	c := v.cookie(v.login(v.secrets[Operator]))
	assert.NotEqual(t, planted, c.Value)
	v.forget()
	assert.Equal(t, 401, v.ask("GET", pathSession, "", "Cookie", "jq_session="+planted).status)
	assert.Equal(t, 401, v.ask("GET", pathSession, "", "Cookie", "jq_session="+c.Value+"; jq_session="+planted).status, "of two, nobody knows which is ours")
	assert.Equal(t, 200, v.ask("GET", pathSession, "", "Cookie", "other=1; jq_session="+c.Value).status)

	v.client.Jar.SetCookies(here, []*http.Cookie{{Name: sessionCookie, Value: c.Value}}) // another's session, planted
	mine := v.cookie(v.login(v.secrets[Viewer]))
	v.forget()
	assert.Equal(t, 401, v.ask("GET", pathSession, "", "Cookie", "jq_session="+c.Value).status)
	var who sessionAnswer
	require.NoError(t, json.Unmarshal([]byte(v.ask("GET", pathSession, "", "Cookie", "jq_session="+mine.Value).text), &who))
	assert.Equal(t, "the viewer", who.Name)
}

// TestSessionHasTheLimitsOfItsToken in queues and keys.
func TestSessionHasTheLimitsOfItsToken(t *testing.T) {
	h := newHouse(t, Options{})
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	h.client.Jar = jar
	got := h.ask("POST", pathSession, `{"token":"`+h.secrets[Operator]+`"}`)
	require.Equal(t, 204, got.status)
	answer := call[sessionAnswer](h.world, 200, "GET", pathSession, "")
	assert.Equal(t, []any{[]string{"mail", "mail-*"}, "m/"}, []any{answer.Queues, answer.KeyPrefix})
	csrf := got.header.Get(csrfHeader)
	assert.Equal(t, 204, h.ask("POST", "/v1/queues/mail/pause", "", csrfHeader, csrf).status)
	assert.Equal(t, 403, h.ask("POST", "/v1/queues/billing/pause", "", csrfHeader, csrf).status)
}

// TestServerWithoutTokensNeedsNoSession: it says so to whoever asks, and nobody signs in or out.
func TestServerWithoutTokensNeedsNoSession(t *testing.T) {
	w := newWorld(t, Options{})
	for _, method := range []string{"POST", "DELETE"} {
		body := ""
		if method == "POST" {
			body = `{"token":"x"}`
		}
		assert.Equal(t, urn+"no_sessions", w.ask(method, pathSession, body).fail(t).Type)
	}
	const open = `{"name":"","roles":["producer","worker","operator","viewer"],"open":true}`
	for _, headers := range [][]string{{}, {"Authorization", "Bearer x"}, {"Cookie", "jq_session=x"}} {
		got := w.ask("GET", pathSession, "", headers...)
		assert.Equal(t, 200, got.status)
		assert.JSONEq(t, open, got.text, headers)
	}
	w.api.SetTokens(&Tokens{})
	assert.Equal(t, 401, w.ask("GET", pathSession, "").status, "an empty list of tokens is not the same as none")
}
