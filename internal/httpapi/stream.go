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

// signOfLife is how often a stream says something: proxies cut what is silent, and a client that is gone is noticed by it.
const signOfLife = 15 * time.Second

// A stream is an answer of server-sent events.
type stream struct {
	api    *API
	w      *exchange
	ctx    context.Context // ends with the client, with its token or with the API
	text   bytes.Buffer    // what is to be sent
	silent *clock.Timer
	ends   []func()
}

// stream begins one, with a line that tells the client that it is there.
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
	w.end() // what it asks for was decoded, into little
	ctx, cancel := context.WithCancel(r.Context())
	stop := context.AfterFunc(a.life, cancel)
	s := &stream{api: a, w: w, ctx: ctx, silent: a.clock.Timer(signOfLife)}
	if w.bearer != nil {
		forget := context.AfterFunc(w.bearer.life, cancel)
		s.ends = append(s.ends, func() { forget() })
	}
	s.ends = append(s.ends, func() { stop() }, cancel, func() { s.silent.Stop() }, leave, done)
	w.Header().Set("Content-Type", wire.Events)
	w.Header().Set("X-Accel-Buffering", "no") // proxies must not hold it back
	w.WriteHeader(http.StatusOK)
	s.line(": jq\n\n")
	return s, nil
}

func (s *stream) close() {
	for _, end := range s.ends {
		end()
	}
}

// sign adds a comment, which says nothing but that the stream is alive.
func (s *stream) sign() { s.line(": \n\n") }

func (s *stream) line(text string) { s.text.WriteString(text) }

// event adds one.
func (s *stream) event(id, name string, data any) { s.text.Write(frame(id, name, data)) }

// frame is an event as a stream has it. Its data has no line ends: it is JSON.
func frame(id, name string, data any) []byte {
	text, err := wire.Marshal(data)
	if err != nil {
		panic(err) // ours can always be written
	}
	if id != "" {
		id = "id: " + id + "\n"
	}
	return fmt.Appendf(nil, "%sevent: %s\ndata: %s\n\n", id, name, text)
}

// send writes what was added, and says whether the stream goes on.
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
	s.silent.Reset(signOfLife) // before the client can read: from then on, it counts the silence too
	s.api.allow(s.w)
	_, err := s.w.Write(s.text.Bytes())
	s.text = bytes.Buffer{} // one of the largest size for each stream would be much
	if err != nil || http.NewResponseController(s.w).Flush() != nil {
		return false
	}
	s.api.unhurried(s.w)
	return true
}

// wait returns when there may be more to send: a sign of life at least. It says whether the stream goes on.
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

// What a stream leaves to calls, for each stream that there is: so much before it is looked at again, and so much for each event that it
// was told. It is about ten times what a stream takes up, so that all of them take a tenth of a processor, however much happens: of 500
// streams each sends up to ten times a second, and is told 200 events a second. Where more happens, they lose some, and are told to reset.
const (
	lingerEach  = 200 * time.Microsecond
	lingerEvent = 10 * time.Microsecond
	fewStreams  = 10 // which are told at once
)

// linger lets events gather where many listen. It says whether the stream goes on.
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
