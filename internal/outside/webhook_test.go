package outside

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/jqtest"
)

var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}

// receiver is a web server, and the handler that sends to it.
func receiver(t *testing.T, o WebhookOptions, serve http.HandlerFunc) (jq.HandlerFunc, *httptest.Server) {
	t.Helper()
	server := httptest.NewServer(serve)
	t.Cleanup(server.Close)
	o.Allow = loopback
	handle, err := Webhook(server.URL+"/hook?key=secret", &o)
	require.NoError(t, err)
	return handle, server
}

func TestWebhookIsToldOfItsJob(t *testing.T) {
	t.Parallel()
	var got *http.Request
	var body []byte
	handle, _ := receiver(t, WebhookOptions{Header: http.Header{"authorization": {"Bearer x"}, "Jq-Job-Id": {"9"}}},
		func(w http.ResponseWriter, r *http.Request) {
			got = r
			body, _ = io.ReadAll(r.Body)
			_, _ = io.WriteString(w, `{"sent":  true}`+"\n")
		})
	payload := `{"to":  "Ada"}`
	ran := once(t, handle, jq.Raw{Name: "größe 100%/a:b", Document: json.RawMessage(payload)})
	assert.Equal(t, fate{Phase: jq.Succeeded, Result: `{"sent":  true}`}, fateOf(ran))
	assert.Equal(t, payload, string(body))
	assert.Equal(t, []string{"POST", "/hook?key=secret"}, []string{got.Method, got.RequestURI})
	want := http.Header{
		"Authorization": {"Bearer x"}, "Content-Length": {"14"}, "Content-Type": {"application/json"}, "User-Agent": {"jq"},
		"Jq-Job-Id": {"1"}, "Jq-Lease-Token": {"1"}, "Jq-Kind": {"gr%C3%B6%C3%9Fe%20100%25/a:b"}, "Jq-Queue": {"post"}, "Jq-Attempt": {"1"},
		"Traceparent": {trace},
	}
	assert.Equal(t, want, got.Header)
}

func TestWebhookIsToldOfItsSchedule(t *testing.T) {
	t.Parallel()
	h := headersOf(jq.Job{Extras: scheduled("nightly/äß", time.Date(2026, 1, 2, 3, 0, 0, 0, time.FixedZone("", 3600)))})
	assert.Equal(t, []string{"nightly/%C3%A4%C3%9F", "2026-01-02T02:00:00Z"}, []string{h.Get("Jq-Schedule"), h.Get("Jq-Scheduled-For")})
	assert.NotContains(t, headersOf(jq.Job{}), "Jq-Schedule")
}

// headersOf returns the headers of the request for a job.
func headersOf(job jq.Job) http.Header {
	h := http.Header{}
	(&webhook{o: WebhookOptions{Clock: clock.NewMock()}}).describe(h, &jq.Run{Job: job})
	return h
}

// R31: what a web server answers decides what becomes of the job.
func TestAnswerDecidesWhatBecomesOfTheJob(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status     int
		retryAfter string
		body       string
		want       fate
	}{
		"200":                       {200, "", "done\n", fate{Phase: jq.Succeeded, Result: `"done"`}},
		"202":                       {202, "", "", fate{Phase: jq.Succeeded}},
		"204":                       {204, "", "", fate{Phase: jq.Succeeded}},
		"302":                       {302, "", "", retried("302 Found (redirects are not followed)", time.Minute)},
		"400":                       {400, "", "what?", retried("400 Bad Request: what?", time.Minute)},
		"404":                       {404, "", "nobody\n", retried("404 Not Found: nobody", time.Minute)},
		"409":                       {409, "", "", retried("409 Conflict", time.Minute)},
		"410":                       {410, "", "left", fate{Phase: jq.Dead, Error: "webhook HOST answered 410 Gone: left"}},
		"422":                       {422, "", "", retried("422 Unprocessable Entity", time.Minute)},
		"429":                       {429, "", "", retried("429 Too Many Requests", time.Minute)},
		"429 with seconds":          {429, "70", "slower", retried("429 Too Many Requests: slower", 70*time.Second)},
		"429 at once":               {429, "0", "", retried("429 Too Many Requests", time.Minute)},
		"429 with many seconds":     {429, "9223372036854775807", "", retried("429 Too Many Requests", 24*time.Hour)},
		"429 with too many seconds": {429, "99999999999999999999", "", retried("429 Too Many Requests", time.Minute)},
		"429 before the backoff":    {429, "7", "", retried("429 Too Many Requests", time.Minute)},
		"429 with nonsense":         {429, "soon", "", retried("429 Too Many Requests", time.Minute)},
		"429 with less":             {429, "-1", "", retried("429 Too Many Requests", time.Minute)},
		"503 with a date":           {503, "Thu, 01 Jan 2026 12:01:09 GMT", "", retried("503 Service Unavailable", 69*time.Second)},
		"503 with a past date":      {503, "Thu, 01 Jan 2026 11:00:00 GMT", "", retried("503 Service Unavailable", time.Minute)},
		"503 with a far date":       {503, "Thu, 01 Jan 2099 11:00:00 GMT", "", retried("503 Service Unavailable", 24*time.Hour)},
		"500 with seconds":          {500, "7", "", retried("500 Internal Server Error", time.Minute)},
		"599":                       {599, "", "\xff\x00bad", retried("599: \uFFFD\uFFFDbad", time.Minute)},
		"long":                      {500, "", strings.Repeat("x", 3000), retried("500 Internal Server Error: "+strings.Repeat("x", 2048)+" … (cut)", time.Minute)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now := clock.NewMock()
			now.Set(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC))
			handle, server := receiver(t, WebhookOptions{Clock: now}, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Location", "/elsewhere")
				if c.retryAfter != "" {
					w.Header().Set("Retry-After", c.retryAfter)
				}
				w.WriteHeader(c.status)
				_, _ = io.WriteString(w, c.body)
			})
			c.want.Error = strings.ReplaceAll(c.want.Error, "HOST", strings.TrimPrefix(server.URL, "http://"))
			assert.Equal(t, c.want, fateOf(once(t, handle, mail(`{}`))))
		})
	}
}

// The receiver's wait is compared with the backoff of the attempt, which grows, and not with that of the first one.
func TestRetryAfterOfALaterAttempt(t *testing.T) {
	t.Parallel()
	handle, _ := receiver(t, WebhookOptions{}, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "90")
		w.WriteHeader(429)
	})
	s := jqtest.NewStore(t)
	_, err := jq.NewClient(s, nil).Enqueue(t.Context(), mail(`{}`), &jq.EnqueueOptions{
		MaxRetries: new(3), Backoff: jq.Backoff{Base: time.Minute, Cap: time.Hour, Jitter: -1},
	})
	require.NoError(t, err)
	var h jq.Handlers
	h.Otherwise(handle)
	var waits []time.Duration
	for _, ran := range jqtest.Drain(t, s, &h, nil) {
		waits = append(waits, fateOf(ran).Next)
	}
	assert.Equal(t, []time.Duration{90 * time.Second, 2 * time.Minute, 4 * time.Minute, 0}, waits)
}

func retried(answer string, next time.Duration) fate {
	return fate{Phase: jq.Retrying, Error: "webhook HOST answered " + answer, Next: next}
}

func TestAnswerIsTheResultUpToItsLimit(t *testing.T) {
	t.Parallel()
	var room atomic.Int64
	handle, _ := receiver(t, WebhookOptions{}, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `"`+strings.Repeat("x", int(room.Load())-2)+"\"\n")
	})
	room.Store(store.MaxDocBytes)
	ran := once(t, handle, mail(`{}`))
	assert.Equal(t, jq.Succeeded, ran.After.Phase(), ran.After.Error)
	assert.Len(t, ran.After.Result, store.MaxDocBytes)
	for _, size := range []int64{store.MaxDocBytes + 1, 8 * store.MaxDocBytes} {
		room.Store(size)
		ran = once(t, handle, mail(`{}`))
		assert.Equal(t, jq.Dead, ran.After.Phase())
		assert.Contains(t, ran.After.Error, "the result is longer than 1048576 bytes")
	}
}

// An answer that breaks off has not said what was done: the job is run again.
func TestAnswerThatBreaksOffIsAFailure(t *testing.T) {
	t.Parallel()
	handle, _ := receiver(t, WebhookOptions{}, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, `"done"`)
	})
	got := fateOf(once(t, handle, mail(`{}`)))
	assert.Equal(t, jq.Retrying, got.Phase)
	assert.Contains(t, got.Error, "the answer 200 broke off: unexpected EOF")
}

// The address may hold a secret, as those of many services do, and errors are for more people to see.
func TestErrorsDoNotTellTheAddress(t *testing.T) {
	t.Parallel()
	handle, server := receiver(t, WebhookOptions{}, nil)
	server.Close()
	got := fateOf(once(t, handle, mail(`{}`)))
	assert.Equal(t, jq.Retrying, got.Phase)
	assert.Contains(t, got.Error, "connection refused")
	assert.NotContains(t, got.Error, "secret")
	assert.NotContains(t, got.Error, "hook?")
}

func TestRedirectIsNotFollowed(t *testing.T) {
	t.Parallel()
	var followed atomic.Bool
	handle, _ := receiver(t, WebhookOptions{}, func(w http.ResponseWriter, r *http.Request) {
		followed.Store(followed.Load() || r.URL.Path != "/hook")
		http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
	})
	assert.Contains(t, fateOf(once(t, handle, mail(`{}`))).Error, "307 Temporary Redirect (redirects are not followed)")
	assert.False(t, followed.Load())
}

// What the environment says of proxies would lead around the gate.
func TestNoProxyIsAsked(t *testing.T) {
	var asked atomic.Bool
	proxy := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Store(true) }))
	defer proxy.Close()
	t.Setenv("HTTP_PROXY", proxy.URL)
	t.Setenv("http_proxy", proxy.URL)
	handle, err := Webhook("http://no-such-host.invalid/", nil)
	require.NoError(t, err)
	assert.Contains(t, fateOf(once(t, handle, mail(`{}`))).Error, "webhook no-such-host.invalid: ")
	assert.False(t, asked.Load())
}

// A name is judged by what it leads to: this one is let through because of an address that the server does not have.
func TestNameIsJudgedByItsAddresses(t *testing.T) {
	t.Parallel()
	var reached atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Store(true) }))
	defer server.Close()
	address := strings.Replace(server.URL, "127.0.0.1", "localhost", 1)
	handle, err := Webhook(address, &WebhookOptions{Allow: []netip.Prefix{netip.MustParsePrefix("::1/128")}})
	require.NoError(t, err)
	got := fateOf(once(t, handle, mail(`{}`)))
	assert.Equal(t, jq.Retrying, got.Phase)
	assert.False(t, reached.Load())

	handle, err = Webhook(address, &WebhookOptions{Allow: loopback})
	require.NoError(t, err)
	assert.Equal(t, jq.Succeeded, once(t, handle, mail(`{}`)).After.Phase())
	assert.True(t, reached.Load())
}

func TestWebhookThatCanNotBeSentToIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"":                               "must begin with http:// or https://",
		"example.com/hook":               "must begin with http:// or https://",
		"ftp://example.com":              `not with "ftp"`,
		"https://":                       "names no host",
		"https://:80/":                   "names no host",
		"http://u:secret@exa mple.com/":  "jq: the address of the webhook is no URL",
		"http://127.0.0.1:80/":           "jq: the webhook can not be used: 127.0.0.1 is a loopback address, and nothing is sent there unless it is allowed",
		"http://localhost/":              "127.0.0.1 is a loopback address",
		"http://LOCALHOST./":             "127.0.0.1 is a loopback address",
		"http://api.localhost/":          "127.0.0.1 is a loopback address",
		"http://[::1]:80/":               "::1 is a loopback address",
		"http://[::ffff:10.0.0.1]/":      "10.0.0.1 is a private address",
		"http://[fe80::1%25eth0]/":       "fe80::1 is a link-local address",
		"http://169.254.169.254/latest/": "169.254.169.254 is a link-local address",
	} {
		_, err := Webhook(address, nil)
		assert.ErrorContains(t, err, want, address)
		if err != nil {
			assert.NotContains(t, err.Error(), "secret")
		}
	}
	_, err := Webhook("http://example.com", &WebhookOptions{Allow: make([]netip.Prefix, 1)})
	assert.Error(t, err)
	_, err = Webhook("https://user:password@example.com/a?b#c", nil)
	assert.NoError(t, err)
}

// C13, C14: the end of the context breaks the request off, and is what is returned, so that the server knows why.
func TestEndOfTheContextBreaksTheRequestOff(t *testing.T) {
	t.Parallel()
	for _, cause := range []error{jq.ErrDrained, jq.ErrTimeout, jq.ErrLeaseLost} {
		came := make(chan struct{})
		handle, _ := receiver(t, WebhookOptions{}, func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.ReadAll(r.Body) // only then the server looks for the end of the connection
			close(came)
			<-r.Context().Done()
		})
		ctx, cancel := context.WithCancelCause(t.Context())
		returned := make(chan error, 1)
		go func() { returned <- handle(ctx, &jq.Run{Job: jq.Job{ID: 1, Payload: []byte(`{}`)}}) }()
		<-came
		cancel(cause)
		assert.Equal(t, cause, <-returned)
		assert.Equal(t, cause, handle(ctx, nil), "nothing is sent any more")
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("over"))
	handle, err := Webhook("http://example.com", nil)
	require.NoError(t, err)
	assert.EqualError(t, handle(ctx, nil), "over")
}
