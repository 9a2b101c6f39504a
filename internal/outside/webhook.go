package outside

import (
	"bytes"
	"cmp"
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

// WebhookOptions configures Webhook. Zero fields mean the default.
type WebhookOptions struct {
	// Allow lists addresses to which requests may be sent although they are not public. Default: none.
	Allow []netip.Prefix
	// Header is sent with every request, for example Authorization. Default: none.
	Header http.Header
	// Secrets sign every request: each secret adds one signature. Give two secrets while you replace one: see [Webhook].
	// Default: no signature.
	Secrets []Secret

	// Clock dates the signatures, and is compared with a date in Retry-After. Default: the clock of the process.
	Clock clock.Clock
}

// keptOfAnswers is how many bytes of the beginning of an answer are kept with a failure.
const keptOfAnswers = 2 << 10

// Webhook returns a handler that sends each job to the URL: a POST whose body is the payload, with the headers Jq-Job-Id,
// Jq-Lease-Token, Jq-Kind, Jq-Queue and Jq-Attempt, Jq-Schedule and Jq-Scheduled-For if a schedule enqueued the job, and traceparent
// if the job has a trace. In names, every byte that is not visible ASCII, and every %, is percent-encoded. The answer decides what becomes of the job:
//
//	2xx        succeeded, with the body as the result
//	410        dead
//	429, 503   with Retry-After: tried again then, or after the job's backoff if that is longer, if retries are left
//	otherwise  failed with the status and the beginning of the body, and tried again if retries are left
//
// Only 410 says for certain that nobody wants the job. Any other status, including 400, 404 and 422, may come from a proxy or
// from an incomplete deployment, and a later request may succeed. Redirects are not followed.
//
// With a secret, each request is signed by the convention of Standard Webhooks. The header webhook-id is JOB-TOKEN-KIND: the id
// of the job, the token of the lease, and the kind as in Jq-Kind with its full stops percent-encoded too. So it stays the same
// when one request is repeated, and differs between the runs of a job. The header webhook-timestamp is the time of sending in
// seconds since 1970. The header webhook-signature is v1, a comma and the base64 of the HMAC-SHA256 with the secret of
// id.timestamp.body. With several secrets there is one signature per secret, in the order of the secrets, separated by spaces.
// To replace a secret, sign with the new one and the old one until all receivers know the new one. The other headers are not
// signed.
//
// Somebody who can write the URL, or control the DNS of its host, must not reach the network of this process. So Webhook
// refuses a URL whose host is an address that is not public, and each connection is refused if the name resolves to such an
// address, unless Allow has the address. No proxy is used.
//
// If the context ends, the request is broken off. The receiver may still be working on it, and should stop when it gets a
// request for the same job with a greater token.
func Webhook(address string, options *WebhookOptions) (jq.HandlerFunc, error) {
	w := &webhook{o: *cmp.Or(options, &WebhookOptions{})}
	w.o.Clock = cmp.Or(w.o.Clock, clock.New())
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

// webhookURL parses the address. Its errors do not contain the address, which may have a secret.
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

// client returns an HTTP client that connects only where the gate allows it.
func (g gate) client() *http.Client {
	dialer := &net.Dialer{Timeout: 10 * time.Second, Control: g.control}
	return &http.Client{
		Transport: &http.Transport{
			DialContext:            dialer.DialContext,
			TLSHandshakeTimeout:    10 * time.Second,
			ForceAttemptHTTP2:      true,
			DisableCompression:     true, // so that limits apply to the bytes that are kept
			MaxIdleConnsPerHost:    100,
			IdleConnTimeout:        3 * time.Second, // shorter than the time-outs of web servers, so that they do not close a connection that is about to be used
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

// failed returns the error of a request without its URL, which may have a secret.
func (w *webhook) failed(err error) error {
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err
	}
	return fmt.Errorf("webhook %s: %w", w.url.Host, err)
}

// describe sets the headers of a request.
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
	if s := run.Scheduled(); s != nil {
		h.Set("Jq-Schedule", escaped(s.Name))
		h.Set("Jq-Scheduled-For", moment(s.For))
	}
	if run.Trace != "" && escaped(run.Trace) == run.Trace {
		h.Set("traceparent", run.Trace)
	}
	sign(w.o.Secrets, w.o.Clock.Now(), h, run)
}

// escaped returns the name as a header can carry it.
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

// accept sets the answer as the result. If the answer breaks off, the run fails, because the result is not known.
func (w *webhook) accept(run *jq.Run, answer *http.Response) error {
	body := &head{limit: resultRoom}
	if _, err := io.Copy(body, io.LimitReader(answer.Body, resultRoom+1)); err != nil {
		return w.failed(fmt.Errorf("the answer %d broke off: %w", answer.StatusCode, err))
	}
	return keepResult(run, body)
}
