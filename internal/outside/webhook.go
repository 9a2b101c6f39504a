package outside

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/seed-ed332417/jq"
)

// WebhookOptions are what can be chosen. The zero value of each field means its default, which is said first.
type WebhookOptions struct {
	// Allow are addresses that may be sent to although they are not public. Default: none.
	Allow []netip.Prefix
	// Header is sent with every request, for example an Authorization. Default: none.
	Header http.Header
	// Secrets sign every request, each with a signature of its own. Two of them replace one: see [Webhook]. Default: no signature.
	Secrets []Secret

	// Clock tells the time of signatures, and how long it is until a date. Default: the clock of the process.
	Clock clock.Clock
}

// keptOfAnswers is how much of an answer is kept with a failure, from its beginning.
const keptOfAnswers = 2 << 10

// Webhook is a handler that sends each job to the URL: a POST whose body is the payload, with the headers Jq-Job-Id,
// Jq-Lease-Token, Jq-Kind, Jq-Queue and Jq-Attempt, and traceparent if the job has a trace. In names, what is not visible ASCII is
// percent-encoded. The answer decides what becomes of the job:
//
//	2xx        succeeded, with the body as the result
//	410        dead
//	429, 503   with Retry-After: tried again then, or after the job's backoff if that is longer, if retries are left
//	otherwise  failed with the status and the beginning of the body, and tried again if retries are left
//
// Only 410 says for good that nobody wants the job. Any other status, 400, 404 and 422 too, may as well come from a proxy or from
// a deployment that is half done, and a later one may know better. Redirects are not followed.
//
// With a secret each request is signed by the convention of Standard Webhooks. The header webhook-id is JOB-TOKEN-KIND: the id of
// the job, the token of the lease, and the kind as in Jq-Kind with its full stops percent-encoded too. So it is the same in repeats
// of one request, and another one in each run of the job. webhook-timestamp is the time of sending in seconds since 1970.
// webhook-signature is v1, a comma and the base64 of the HMAC-SHA256 with the secret of id.timestamp.body. With several secrets
// there are as many signatures, parted by spaces, in the order of the secrets: the sender signs with the new secret and the former
// one until all receivers know the new one. The other headers are not signed.
//
// Whoever can write the URL, or answer for its name, must not reach into the network of this process: addresses that are not
// public are refused when a connection is made, after the name was resolved, unless they are allowed. No proxy is used. An
// address that stands in the URL itself is refused now.
//
// The end of the context breaks the request off. The receiver may go on with it, and should let a greater token of the same job
// stop it.
func Webhook(address string, options *WebhookOptions) (jq.HandlerFunc, error) {
	w := &webhook{}
	if options != nil {
		w.o = *options
	}
	if w.o.Clock == nil {
		w.o.Clock = clock.New()
	}
	gate := gate{w.o.Allow}
	for _, prefix := range gate.allow {
		if !prefix.IsValid() {
			return nil, errors.New("jq: an address that is allowed to a webhook has no value")
		}
	}
	var err error
	if w.url, err = webhookURL(address); err != nil {
		return nil, err
	}
	if err := gate.admit(w.url.Hostname()); err != nil {
		return nil, fmt.Errorf("jq: the webhook can not be used: %w", err)
	}
	w.client = gate.client()
	return w.handle, nil
}

// webhookURL is the address as a URL that can be sent to. What is wrong is said without the address, which may hold a secret.
func webhookURL(address string) (*url.URL, error) {
	u, err := url.Parse(address)
	switch {
	case err != nil:
		return nil, errors.New("jq: the address of the webhook is no URL")
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, fmt.Errorf("jq: the address of the webhook must begin with http:// or https://, not with %q", u.Scheme)
	case u.Hostname() == "":
		return nil, errors.New("jq: the address of the webhook names no host")
	}
	u.Fragment = ""
	return u, nil
}

// client sends requests to where the gate lets it.
func (g gate) client() *http.Client {
	dialer := &net.Dialer{Timeout: 10 * time.Second, Control: g.control}
	return &http.Client{
		Transport: &http.Transport{
			DialContext:            dialer.DialContext,
			TLSHandshakeTimeout:    10 * time.Second,
			ForceAttemptHTTP2:      true,
			DisableCompression:     true, // so that the limit is that of what is kept
			MaxIdleConnsPerHost:    100,
			IdleConnTimeout:        3 * time.Second, // less than web servers allow: none closes a connection that is about to be used
			MaxResponseHeaderBytes: 64 << 10,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

type webhook struct {
	o      WebhookOptions
	url    *url.URL
	client *http.Client
}

func (w *webhook) handle(ctx context.Context, run *jq.Run) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	err := w.send(ctx, run)
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

func (w *webhook) send(ctx context.Context, run *jq.Run) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url.String(), bytes.NewReader(run.Payload))
	if err != nil {
		return w.failed(err)
	}
	w.describe(request.Header, run)
	answer, err := w.client.Do(request)
	if err != nil {
		return w.failed(err)
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode/100 == 2 {
		return w.accept(run, answer)
	}
	return w.refused(run, answer)
}

// failed is the error of a request without its URL, which may hold a secret.
func (w *webhook) failed(err error) error {
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err
	}
	return fmt.Errorf("webhook %s: %w", w.url.Host, err)
}

// describe fills the headers of a request.
func (w *webhook) describe(h http.Header, run *jq.Run) {
	for name, values := range w.o.Header {
		h[http.CanonicalHeaderKey(name)] = values
	}
	h.Set("Content-Type", "application/json")
	h.Set("User-Agent", "jq")
	h.Set("Jq-Job-Id", strconv.FormatInt(run.ID, 10))
	h.Set("Jq-Lease-Token", strconv.FormatInt(run.Token, 10))
	h.Set("Jq-Kind", escaped(run.Kind))
	h.Set("Jq-Queue", escaped(run.Queue))
	h.Set("Jq-Attempt", strconv.Itoa(run.Attempts))
	if run.Trace != "" && escaped(run.Trace) == run.Trace {
		h.Set("traceparent", run.Trace)
	}
	sign(w.o.Secrets, w.o.Clock.Now(), h, run)
}

// escaped is the name as a header can hold it.
func escaped(name string) string {
	var text strings.Builder
	for _, b := range []byte(name) {
		if b <= ' ' || b >= 0x7f || b == '%' {
			fmt.Fprintf(&text, "%%%02X", b)
		} else {
			text.WriteByte(b)
		}
	}
	return text.String()
}

// accept makes the answer the result. If it breaks off it is not known what it would have been.
func (w *webhook) accept(run *jq.Run, answer *http.Response) error {
	body := &head{limit: resultRoom}
	if _, err := io.Copy(body, io.LimitReader(answer.Body, resultRoom+1)); err != nil {
		return w.failed(fmt.Errorf("the answer %d broke off: %w", answer.StatusCode, err))
	}
	return keepResult(run, body)
}
