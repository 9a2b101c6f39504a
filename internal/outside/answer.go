package outside

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/seed-ed332417/jq"
)

// longestWait is the longest time by which a receiver can delay a retry, so that a wrong number can not make a job wait for
// years.
const longestWait = 24 * time.Hour

// refused returns the error for an answer that is not a success.
func (w *webhook) refused(run *jq.Run, answer *http.Response) error {
	body := &head{limit: keptOfAnswers}
	_, _ = io.Copy(body, io.LimitReader(answer.Body, keptOfAnswers+1)) // after an error, use the part that was read
	status := strconv.Itoa(answer.StatusCode)
	if text := http.StatusText(answer.StatusCode); text != "" {
		status += " " + text
	}
	if answer.StatusCode/100 == 3 {
		status += " (redirects are not followed)"
	}
	err := fmt.Errorf("webhook %s answered %s", w.url.Host, status)
	if text := body.text(); text != "" {
		err = fmt.Errorf("%w: %s", err, text)
	}
	switch answer.StatusCode {
	case http.StatusGone:
		return jq.Never(err)
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		wait := retryAfter(answer.Header.Get("Retry-After"), w.o.Clock.Now())
		// Retry-After is the least time to wait. If the receiver sends 0, the job's own backoff must still apply, or all
		// retries would be used up at once.
		if wait > run.Backoff.Delay(run.ID, run.Retries+1) {
			return jq.RetryAfter(wait, err)
		}
	}
	return err
}

// retryAfter reads a time to wait, which is a number of seconds or a date. If it can read neither, the time is 0.
func retryAfter(text string, now time.Time) time.Duration {
	if seconds, err := strconv.ParseUint(text, 10, 64); err == nil {
		return time.Duration(min(seconds, uint64(longestWait/time.Second))) * time.Second
	}
	if date, err := http.ParseTime(text); err == nil {
		return min(date.Sub(now), longestWait)
	}
	return 0
}
