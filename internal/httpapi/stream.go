package httpapi

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/seed-ed332417/jq/internal/wire"
)

// signOfLife is how often a stream sends at least a comment. Proxies cut silent connections, and a failed write shows that
// the client has left.
const signOfLife = 15 * time.Second

// A stream is an answer with server-sent events.
type stream struct {
	api    *API
	w      *exchange
	ctx    context.Context // ends when the client leaves, the token is no longer valid, or the API is closed
	text   bytes.Buffer    // what send will write
	silent *clock.Timer
	ends   []func()
}

// stream begins a stream with a comment, so that the client knows that it is open.
func (a *API) stream(w *exchange, r *http.Request) (*stream, error) {
	done, err := a.lasting()
	if err != nil {
		return nil, err
	}
	leave, ok := w.enter(func(s *share) room { return s.streams })
	if !ok {
		done()
		return nil, noRoom
	}
	w.end() // the decoded request is small
	ctx, cancel := context.WithCancel(r.Context())
	stop := context.AfterFunc(a.life, cancel)
	s := &stream{api: a, w: w, ctx: ctx, silent: a.clock.Timer(signOfLife)}
	if w.bearer != nil {
		forget := context.AfterFunc(w.bearer.life, cancel)
		s.ends = append(s.ends, func() { forget() })
	}
	s.ends = append(s.ends, func() { stop() }, cancel, func() { s.silent.Stop() }, leave, done)
	w.Header().Set("Content-Type", wire.Events)
	w.Header().Set("X-Accel-Buffering", "no") // proxies must not buffer it
	w.WriteHeader(http.StatusOK)
	s.line(": jq\n\n")
	return s, nil
}

func (s *stream) close() {
	for _, end := range s.ends {
		end()
	}
}

// sign adds a comment, which only shows that the stream is alive.
func (s *stream) sign() { s.line(": \n\n") }

func (s *stream) line(text string) { s.text.WriteString(text) }

// event adds an event.
func (s *stream) event(id, name string, data any) { s.text.Write(frame(id, name, data)) }

// frame encodes an event. Its data is JSON, so it has no line breaks.
func frame(id, name string, data any) []byte {
	text, err := wire.Marshal(data)
	if err != nil {
		panic(err) // our own types can always be encoded
	}
	if id != "" {
		id = "id: " + id + "\n"
	}
	return fmt.Appendf(nil, "%sevent: %s\ndata: %s\n\n", id, name, text)
}

// send writes what was added. It returns false if the stream must end.
func (s *stream) send() bool {
	if s.ctx.Err() != nil {
		return false
	}
	if s.text.Len() == 0 {
		return true
	}
	if !s.silent.Stop() {
		select {
		case <-s.silent.C:
		default:
		}
	}
	s.silent.Reset(signOfLife) // before the write: after it, the client measures the silence too
	s.api.allow(s.w)
	_, err := s.w.Write(s.text.Bytes())
	s.text = bytes.Buffer{} // do not keep a large buffer for each stream
	if err != nil || http.NewResponseController(s.w).Flush() != nil {
		return false
	}
	s.api.unhurried(s.w)
	return true
}

// wait waits for more events, or until a comment is due. It returns false if the stream must end.
func (s *stream) wait(more <-chan struct{}) bool {
	select {
	case <-s.ctx.Done():
		return false
	case <-more:
	case <-s.silent.C:
		s.sign()
	}
	return true
}

// The pause of a stream after it has sent something, multiplied by the number of streams: lingerEach, or lingerEvent for each
// event that it has sent if that is more. This is about ten times the processor time that a stream needs, so all streams
// together use a tenth of a processor, however much happens. With 500 streams, each sends up to ten times a second, and 200
// events a second. If more happens, streams lose events, and get a reset.
const (
	lingerEach  = 200 * time.Microsecond
	lingerEvent = 10 * time.Microsecond
	fewStreams  = 10 // with no more than this, streams do not pause
)

// linger pauses the stream if there are many, so that events are sent together. It returns false if the stream must end.
func (s *stream) linger(told int) bool {
	n := len(s.api.all.streams)
	if n <= fewStreams {
		return true
	}
	enough := s.api.clock.Timer(time.Duration(n) * max(lingerEach, time.Duration(told)*lingerEvent))
	defer enough.Stop()
	select {
	case <-s.ctx.Done():
		return false
	case <-enough.C:
		return true
	}
}
