package remote

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/httpapi"
	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/adapters/memory"
	"github.com/seed-ed332417/jq/internal/wire"
)

func TestOpenRefusesWhatIsNoURLOfAServer(t *testing.T) {
	for text, says := range map[string]string{
		"":                                 "want http://HOST:PORT or https://HOST",
		"unix:":                            "want unix:PATH without //",
		"unix:///run/jq.sock":              "want unix:PATH without //",
		"UNIX:/run/jq.sock":                "want http://HOST:PORT",
		"jobs.db":                          "want http://HOST:PORT",
		"localhost:7070":                   "want http://HOST:PORT",
		"postgres://host/db":               "want http://HOST:PORT",
		"http:///path":                     "want http://HOST:PORT",
		"http://:7070":                     "want http://HOST:PORT",
		"http:opaque":                      "want http://HOST:PORT",
		"http://host:port:secret":          "want http://HOST:PORT",
		"http://secret@host":               "give the token apart (Options.Token)",
		"https://user:secret@host/jq":      "give the token apart (Options.Token)",
		"https://host/jq?token=secret":     "leave out what begins with ? or #",
		"https://host/?":                   "leave out what begins with ? or #",
		"https://host/#secret":             "leave out what begins with ? or #",
		"http://user:sec%ret@host/%zz\x7f": "want http://HOST:PORT",
	} {
		s, err := Open(t.Context(), text, nil)
		require.Nil(t, s, text)
		require.ErrorContains(t, err, says, text)
		assert.NotContains(t, err.Error(), "secret", text)
	}
	for _, o := range []Options{{Timeout: -1}, {Token: "a b"}, {Token: "a\n"}, {Token: "\u00e4"}} {
		_, err := Open(t.Context(), "http://127.0.0.1:1", &o)
		require.ErrorContains(t, err, "jq: ")
		assert.NotErrorIs(t, err, store.ErrUnavailable)
	}
}

// TestOpenSaysWhatToDo where no jq server answers.
func TestOpenSaysWhatToDo(t *testing.T) {
	page := httptest.NewServer(write(200, "text/html", "<h1>Welcome</h1>"))
	defer page.Close()
	missing := httptest.NewServer(http.NotFoundHandler())
	defer missing.Close()
	secure := httptest.NewUnstartedServer(write(200, wire.JSON, "{}"))
	secure.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	secure.StartTLS()
	defer secure.Close()
	away := httptest.NewServer(nil)
	away.Close()
	withTokens, secret := tokens(t, httpapi.Viewer)
	back, err := serve(memory.New(memory.Options{}), httpapi.Options{Tokens: withTokens})
	require.NoError(t, err)
	defer func() { require.NoError(t, back.stop()) }()
	for name, k := range map[string]struct {
		url, token, says string
	}{
		"Page":        {page.URL, "", "this is no answer of a jq server, is the URL right and nothing in between: HTTP 200, text/html"},
		"WrongPath":   {missing.URL + "/jq", "", "HTTP 404, text/plain"},
		"Away":        {away.URL, "", "no server answers there, start it or mend the URL: dial tcp"},
		"UnknownHost": {"http://jq.invalid", "", "the host is not known, mend the URL: "},
		"Untrusted":   {secure.URL, "", "the server's certificate is not trusted: "},
		"NoTLS":       {"https" + page.URL[4:], "", "the server speaks no TLS, give its URL with http:// if that is meant: "},
		"OnlyTLS":     {"http" + secure.URL[5:], "", ""}, // an answer that is none, or a connection that is reset
		"NoToken":     {back.url, "", "the server wants a token, give one (Options.Token, or JQ_TOKEN) (HTTP 401)"},
		"WrongToken":  {back.url, secret + "x", "the server does not know the token, give another (Options.Token, or JQ_TOKEN) (HTTP 401)"},
	} {
		_, err := Open(t.Context(), k.url, &Options{Token: k.token})
		want := store.ErrUnavailable
		if k.url == back.url { // D29: it was unavailable, on which callers ask for ever
			want = store.ErrDenied
		}
		assertOnly(t, err, want, k.says, name)
		assert.ErrorContains(t, err, "nothing was applied: opening "+k.url+": ", name)
		assert.NotContains(t, err.Error(), secret, name)
	}
	s, err := Open(t.Context(), back.url, &Options{Token: secret})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	assertOnly(t, oneAck(t.Context(), s), store.ErrDenied, "the token does not have the role for this: it is that of a viewer, and this is for: worker, operator; give another token (Options.Token, or JQ_TOKEN) (HTTP 403)", "a viewer's Ack")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = Open(ctx, back.url, nil)
	require.ErrorIs(t, err, store.ErrUnavailable)
	require.ErrorIs(t, err, context.Canceled)
}

// tokens are those of one bearer with the role.
func tokens(t *testing.T, role httpapi.Role) (*httpapi.Tokens, string) {
	t.Helper()
	secret, token, err := httpapi.NewToken(httpapi.Token{Name: "somebody", Role: role})
	require.NoError(t, err)
	known, err := httpapi.ReadTokens(bytes.NewReader(token.Line()))
	require.NoError(t, err)
	return known, secret
}

// TestBasePath: a server may stand below a path, behind a proxy, and with TLS.
func TestBasePath(t *testing.T) {
	api, err := httpapi.New(memory.New(memory.Options{}), nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, api.Close()) }()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		assert.GreaterOrEqual(t, r.TLS.Version, uint16(tls.VersionTLS12))
		http.StripPrefix("/jobs/v2", api).ServeHTTP(w, r)
	}))
	defer server.Close()
	for _, end := range []string{"", "/", "//"} {
		s, err := Open(t.Context(), server.URL+"/jobs/v2"+end, &Options{Transport: server.Client().Transport})
		require.NoError(t, err)
		for _, name := range []string{"q", ".", "..", "a/b", "//", "a b+c%2F", "\u00e4?#", "\x01", "a/../b"} {
			require.NoError(t, s.SetPaused(t.Context(), name, true), "%q", name)
			require.NoError(t, s.Beat(t.Context(), store.Worker{Name: name, StaleAfter: time.Minute}), "%q", name)
			queues, err := s.Queues(t.Context())
			require.NoError(t, err)
			assert.Equal(t, []store.Queue{{Name: name, Paused: true, Policy: policyOf(t, s, name, 0)}}, queues)
			set, err := s.SetPolicy(t.Context(), name, policyOf(t, s, name, time.Hour))
			require.NoError(t, err, "%q", name)
			assert.Equal(t, set, policyOf(t, s, name, time.Hour), "%q", name)
			_, err = s.SetPolicy(t.Context(), name, policyOf(t, s, name, 0))
			require.NoError(t, err, "%q", name)
			schedule, err := s.SetSchedule(t.Context(), aSchedule(name))
			require.NoError(t, err, "%q", name)
			assert.Equal(t, name, schedule.Name)
			require.NoError(t, s.DeleteSchedule(t.Context(), name), "%q", name)
			require.NoError(t, s.SetPaused(t.Context(), name, false), "%q", name)
			queues, err = s.Queues(t.Context())
			require.NoError(t, err)
			assert.Empty(t, queues, "%q", name)
		}
		require.NoError(t, s.Close())
	}
	server.CloseClientConnections()
	server.Client().CloseIdleConnections()
}

// policyOf is the policy of the queue, but for how long dead jobs are kept.
func policyOf(t *testing.T, s *Store, queue string, dead time.Duration) store.Policy {
	t.Helper()
	p, err := s.Policy(t.Context(), queue)
	require.NoError(t, err)
	p.RetainDead = dead
	return p
}

// TestTokenTravelsInTheHeaderOnly, and in the open only with a warning.
func TestTokenTravelsInTheHeaderOnly(t *testing.T) {
	for host, warns := range map[string]bool{"http://example.org": true, "https://example.org": false, "http://127.0.0.1": false, "http://[::1]:70": false, "http://localhost": false} {
		var log bytes.Buffer
		s, err := Open(t.Context(), host, &Options{
			Token: "secret", Logger: slog.New(slog.NewTextHandler(&log, nil)),
			Transport: trip(func(r *http.Request) (*http.Response, error) {
				assert.Equal(t, "Bearer secret", r.Header.Get("Authorization"))
				assert.NotContains(t, r.URL.String(), "secret")
				return reply(200, store.Counts{Now: time.Now()}), nil
			}),
		})
		require.NoError(t, err)
		require.NoError(t, s.Close())
		assert.Equal(t, warns, bytes.Contains(log.Bytes(), []byte("without encryption")), host)
		assert.NotContains(t, log.String(), "secret")
	}
}

// TestMissingAbilities of the server's own store are unsupported, and no others.
func TestMissingAbilities(t *testing.T) {
	back, err := serve(struct{ store.Store }{memory.New(memory.Options{})}, httpapi.Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, back.stop()) }()
	s, err := Open(t.Context(), back.url, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	_, queues := s.Queues(t.Context())
	_, workers := store.AllWorkers(t.Context(), s)
	_, wakeups := s.Subscribe(t.Context(), nil)
	_, fenced := s.Fence(t.Context(), store.FenceRequest{})
	_, policy := s.Policy(t.Context(), "q")
	_, setPolicy := s.SetPolicy(t.Context(), "q", store.Policy{})
	_, schedules := s.Schedules(t.Context(), store.ScheduleFilter{}, store.Page{Limit: 1})
	_, setSchedule := s.SetSchedule(t.Context(), aSchedule("s"))
	_, fired := s.Fire(t.Context(), []store.Firing{{Name: "s"}})
	for what, err := range map[string]error{
		"Policy": policy, "SetPolicy": setPolicy,
		"Schedules": schedules, "SetSchedule": setSchedule, "Fire": fired, "DeleteSchedule": s.DeleteSchedule(t.Context(), "s"),
		"Queues": queues, "Workers": workers, "Subscribe": wakeups, "SetPaused": s.SetPaused(t.Context(), "q", true),
		"Beat": s.Beat(t.Context(), store.Worker{Name: "w"}), "Fence": fenced,
	} {
		assertOnly(t, err, errors.ErrUnsupported, "", what)
	}
	require.NoError(t, enqueueOne(t.Context(), s))
	_, isOne := any(s).(store.Transactor)
	assert.False(t, isOne, "transactions do not travel")
}

// FuzzParse shows that no URL leads anywhere but to its host, and that none is quoted where it is refused.
func FuzzParse(f *testing.F) {
	f.Add("http://127.0.0.1:7070")
	f.Add("https://example.org/jq/")
	f.Add("unix:/run/jq.sock")
	f.Add("https://user:password@example.org")
	f.Add("http://[::1%25eth0]:7070/a%2Fb/../c")
	f.Fuzz(func(t *testing.T, text string) {
		base, socket, err := parse(text)
		if err != nil {
			return
		}
		if socket != "" {
			require.Equal(t, text, "unix:"+socket)
			require.Equal(t, &onSocket, base)
			return
		}
		u, err := url.Parse(text)
		require.NoError(t, err)
		require.Equal(t, u.Host, base.Host)
		require.Nil(t, base.User)
		s := Store{base: base}
		req, err := s.request(t.Context(), call{method: http.MethodPost, path: "/v1/queues/" + segment(text) + "/pause"}, s.parcel(call{}))
		require.NoError(t, err)
		require.Equal(t, u.Host, req.URL.Host)
		require.Equal(t, base.EscapedPath()+"/v1/queues/"+segment(text)+"/pause", req.URL.EscapedPath())
	})
}

// A server on a Unix socket is reached without a network, and a token may go there.
func TestUnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", path)
	require.NoError(t, err)
	known, secret := tokens(t, httpapi.Operator)
	api, err := httpapi.New(memory.New(memory.Options{}), &httpapi.Options{Tokens: known, Loopback: true})
	require.NoError(t, err)
	server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: api, ReadHeaderTimeout: time.Minute}}
	server.Start()
	defer func() {
		require.NoError(t, api.Close())
		server.Close()
	}()
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	var log bytes.Buffer
	s, err := Open(t.Context(), "unix:"+path, &Options{Token: secret, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	require.NoError(t, err)
	require.NoError(t, enqueueOne(t.Context(), s))
	jobs, err := s.FetchAndClaim(t.Context(), claimOf(1))
	require.NoError(t, err)
	require.Len(t, jobs, 1)
	require.NoError(t, s.Close())
	assert.Empty(t, log.String())

	_, err = Open(t.Context(), "unix:"+path+"-not", nil)
	assertOnly(t, err, store.ErrUnavailable, "opening unix:"+path+"-not: no server answers there, start it or mend the URL: ", "no socket")
	_, err = Open(t.Context(), "unix:"+path, &Options{Transport: newTransport("", nil)})
	require.ErrorContains(t, err, "leave Options.Transport out")
}

// What the options say of TLS goes for the store's own transport: whom it trusts, and which certificate it shows.
func TestTLSOfTheOptions(t *testing.T) {
	api, err := httpapi.New(memory.New(memory.Options{}), nil)
	require.NoError(t, err)
	server := httptest.NewUnstartedServer(api)
	server.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	server.StartTLS()
	defer func() {
		require.NoError(t, api.Close())
		server.Close()
	}()
	trusting := server.Client().Transport.(*http.Transport).TLSClientConfig
	for _, one := range []struct {
		secure *tls.Config
		says   string
	}{
		{nil, "certificate is not trusted: "},
		{&tls.Config{RootCAs: trusting.RootCAs}, "opening https://"}, // the alert that says why may be overtaken by the end
		{&tls.Config{RootCAs: trusting.RootCAs, Certificates: server.TLS.Certificates, MinVersion: tls.VersionTLS10}, ""},
	} {
		s, err := Open(t.Context(), server.URL, &Options{TLS: one.secure})
		if one.says != "" {
			assertOnly(t, err, store.ErrUnavailable, one.says, one.says)
			continue
		}
		require.NoError(t, err)
		assert.EqualValues(t, tls.VersionTLS12, s.own.TLSClientConfig.MinVersion)
		require.NoError(t, enqueueOne(t.Context(), s))
		require.NoError(t, s.Close())
	}
	alert := advice(&net.OpError{Op: "remote error", Err: errors.New("tls: certificate required")})
	assert.Contains(t, alert, "does it want a certificate of this client (Options.TLS, or --client-cert)")
	_, err = Open(t.Context(), server.URL, &Options{TLS: trusting, Transport: server.Client().Transport})
	require.ErrorContains(t, err, "give Options.TLS or Options.Transport")
}
