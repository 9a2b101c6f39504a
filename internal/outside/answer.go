package outside

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/seed-ed332417/jq"
)

// longestWait is for how long a receiver can put a retry off: a wrong number must not make a job wait for years.
const longestWait = 24 * time.Hour

// refused makes an error of an answer that is none of success.
func (w *webhook) refused(run *jq.Run, answer *http.Response) error {
	body := &head{limit: keptOfAnswers}
	_, _ = io.Copy(body, io.LimitReader(answer.Body, keptOfAnswers+1)) // what has come is better than nothing
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
		// The receiver says how long to wait at least. If it says at once, all retries would be used up at once.
		if wait > run.Backoff.Delay(run.ID, run.Retries+1) {
			return jq.RetryAfter(wait, err)
		}
	}
	return err
}

// retryAfter reads how long to wait, in seconds or until a date. What can not be read is nothing.
func retryAfter(text string, now time.Time) time.Duration {
	if seconds, err := strconv.ParseUint(text, 10, 64); err == nil {
		return time.Duration(min(seconds, uint64(longestWait/time.Second))) * time.Second
	}
	if date, err := http.ParseTime(text); err == nil {
		return min(date.Sub(now), longestWait)
	}
	return 0
}
