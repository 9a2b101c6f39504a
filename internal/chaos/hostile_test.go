//go:build unix

package chaos

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-ed332417/jq/internal/wire"
)

// hostileName is what the process of the hostile clients is called.
const hostileName = "hostile"

// spinnerName is what the process that keeps processors busy is called.
const spinnerName = "spinner"

// envHostile has the orders of that process, as JSON.
const envHostile = "JQ_CHAOS_HOSTILE"

// linkSpeed is how many bytes a second all hostile clients together send, and as many receive: those of a network of one gigabit a
// second. Over the loopback of one machine they would send as fast as its processors can copy, which are the server's too.
const linkSpeed = 125_000_000

// longestHold is for how long a hostile client keeps a connection that it does nothing with. The server ends most of them before.
const longestHold = 40 * time.Second

// orders are what the process of the hostile clients is told.
type orders struct {
	Address string            `json:"address"`
	Tokens  map[string]string `json:"tokens"` // by role
	Seed    uint64            `json:"seed"`
	Clients int               `json:"clients"`
}

// A tally is what became of the attacks.
type tally struct {
	Made      map[string]int `json:"made"`    // by attack
	Answers   map[string]int `json:"answers"` // by attack and status
	Surprises []string       `json:"surprises"`
}

// hostiles are the clients that attack.
type hostiles struct {
	orders
	up, down *cable

	mu    sync.Mutex // guards tally
	tally tally
}

// attackAll attacks until its standard input ends, and prints the tally.
func attackAll() error {
	h := &hostiles{up: &cable{}, down: &cable{}, tally: tally{Made: map[string]int{}, Answers: map[string]int{}}}
	if err := json.Unmarshal([]byte(os.Getenv(envHostile)), &h.orders); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	var all sync.WaitGroup
	for i := range h.Clients {
		all.Go(func() { h.client(ctx, attacks[i%len(attacks)], numbers(h.Seed, i)) })
	}
	all.Wait()
	return json.NewEncoder(os.Stdout).Encode(h.tally)
}

// spin keeps every processor busy until its standard input ends.
func spin() error {
	var spun atomic.Int64
	for range runtime.NumCPU() {
		go func() {
			for n := 0; ; n++ {
				spun.Store(int64(n))
			}
		}()
	}
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

// client makes one attack after the other, each on a connection of its own.
func (h *hostiles) client(ctx context.Context, a attack, rng *rand.Rand) {
	for ; ctx.Err() == nil; a = attacks[rng.IntN(len(attacks))] {
		token := h.Tokens[a.role]
		if rng.IntN(8) == 0 {
			token = ""
		}
		h.once(ctx, a, token, rng)
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(20+rng.IntN(180)) * time.Millisecond):
		}
	}
}

func (h *hostiles) once(ctx context.Context, a attack, token string, rng *rand.Rand) {
	ctx, cancel := context.WithTimeout(ctx, longestHold)
	defer cancel()
	h.mu.Lock()
	h.tally.Made[a.name]++
	h.mu.Unlock()
	e := &enemy{hostiles: h, ctx: ctx, rng: rng, attack: a.name, token: token, hold: longestHold/8 + time.Duration(rng.Int64N(int64(longestHold)))}
	if a.streams {
		a.do(e)
		return
	}
	conn, err := e.dial(ctx, "http/1.1")
	if err != nil {
		e.heard("no connection")
		return
	}
	e.conn, e.reader = conn, bufio.NewReaderSize(conn, 4<<10)
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	defer func() { _ = conn.Close() }()
	a.do(e)
}

// An enemy is one attack under way.
type enemy struct {
	*hostiles
	ctx    context.Context
	rng    *rand.Rand
	attack string
	token  string
	hold   time.Duration
	conn   net.Conn // none for an attack by streams
	reader *bufio.Reader
}

func (h *hostiles) dial(ctx context.Context, protocol string) (net.Conn, error) {
	plain, err := (&net.Dialer{}).DialContext(ctx, "tcp", h.Address)
	if err != nil {
		return nil, err
	}
	conn := tls.Client(&slow{Conn: plain, up: h.up, down: h.down}, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{protocol}})
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = plain.Close()
		return nil, err
	}
	return conn, nil
}

func (e *enemy) heard(what string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.tally.Answers[e.attack+": "+what]++
}

// expect looks at the status of an answer. A client without a token, and one that comes when there is no room, is told so.
func (e *enemy) expect(status int, allowed ...int) {
	e.heard(fmt.Sprint(status))
	allowed = append(allowed, http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusRequestTimeout)
	if e.token == "" {
		allowed = append(allowed, http.StatusUnauthorized)
	}
	if !slices.Contains(allowed, status) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.tally.Surprises = append(e.tally.Surprises, fmt.Sprintf("%s was answered %d", e.attack, status))
	}
}

// head writes that of a request.
func (e *enemy) head(method, path string, length int, more ...string) error {
	text := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: localhost\r\n", method, path)
	if e.token != "" {
		text += "Authorization: Bearer " + e.token + "\r\n"
	}
	if length >= 0 {
		text += fmt.Sprintf("Content-Type: application/json\r\nContent-Length: %d\r\n", length)
	}
	for _, line := range more {
		text += line + "\r\n"
	}
	_, err := io.WriteString(e.conn, text+"\r\n")
	return err
}

// call makes a whole request, and is the status of its answer, which is read; or 0 if there is none.
func (e *enemy) call(method, path, body string) int {
	length := len(body)
	if method == http.MethodGet {
		length = -1
	}
	if e.head(method, path, length) == nil {
		_, _ = io.WriteString(e.conn, body)
	}
	return e.answer()
}

// answer reads one, or says that none came.
func (e *enemy) answer() int {
	resp, err := http.ReadResponse(e.reader, nil)
	if err != nil {
		e.heard("no answer")
		return 0
	}
	defer func() { _ = resp.Body.Close() }()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

// wait does nothing for as long as it is held, or until the attack has to end.
func (e *enemy) wait(d time.Duration) {
	select {
	case <-e.ctx.Done():
	case <-time.After(d):
	}
}

// flood sends a body of so many bytes: the beginning, one item again and again, and the end.
func (e *enemy) flood(begin, item, end string, size int) {
	chunk := strings.Repeat(item, max(1, (64<<10)/len(item)))
	left := size - len(begin) - len(end)
	_, err := io.WriteString(e.conn, begin)
	for left > 0 && err == nil {
		part := chunk[:min(left, len(chunk))]
		left -= len(part)
		_, err = io.WriteString(e.conn, part)
	}
	if err == nil {
		_, _ = io.WriteString(e.conn, end)
	}
}

// An attack is one thing that a hostile client does.
type attack struct {
	name    string
	role    string // of its token
	do      func(e *enemy)
	streams bool // over HTTP/2, on connections that it opens itself
}

const (
	asProducer = "producer"
	asWorker   = "worker"
	asViewer   = "viewer"
	asOperator = "operator"
)

var attacks = []attack{
	millions("enqueues millions of jobs", asProducer, wire.PathJobs, `{"jobs":[`, `{},`, `{}]}`),
	millions("acks millions of jobs", asWorker, wire.PathAck, `{"jobs":[`, `{},`, `{}]}`),
	millions("nacks millions of jobs", asWorker, wire.PathNAck, `{"jobs":[`, `{},`, `{}]}`),
	millions("saves millions of jobs", asWorker, wire.PathCheckpoint, `{"jobs":[`, `{},`, `{}]}`),
	millions("claims of millions of queues", asWorker, wire.PathClaim, `{"worker":"w","queues":[`, `"",`, `""]}`),
	millions("lists millions of states", asViewer, wire.PathList, `{"filter":{"states":[`, `"",`, `""]}}`),
	millions("lists millions of ids", asViewer, wire.PathList, `{"filter":{"ids":[`, `"1",`, `"1"]}}`),
	millions("counts millions of queues", asViewer, wire.PathCount, `{"filter":{"queues":[`, `"",`, `""]}}`),
	millions("repeats a key", asProducer, wire.PathJobs, `{"jobs":[],`, `"jobs":[],`, `"jobs":[]}`),
	millions("nests lists", asProducer, wire.PathJobs, `{"jobs":[{"payload":`, `[`, `]}]}`),
	millions("sends one long text", asProducer, wire.PathJobs, `{"jobs":[{"kind":"`, `x`, `"}]}`),
	{name: "sends 17 MiB of blanks", role: asViewer, do: func(e *enemy) {
		const size = 17 << 20
		if e.head(http.MethodPost, wire.PathList, size) == nil {
			e.flood("", " ", "{}", size)
			e.expectRefused(e.answer())
		}
	}},
	{name: "sends blanks without a length", role: asViewer, do: (*enemy).chunkedBlanks},
	{name: "announces too much and waits", role: asProducer, do: func(e *enemy) {
		if e.head(http.MethodPost, wire.PathJobs, 1<<40, "Expect: 100-continue") == nil {
			e.expectRefused(e.answer())
		}
	}},
	{name: "sends half a surrogate pair", role: asProducer, do: func(e *enemy) {
		e.expectRefused(e.call(http.MethodPost, wire.PathJobs, `{"jobs":[{"kind":"k","unique_key":"\ud800"}]}`))
	}},
	{name: "sends a list that is null", role: asProducer, do: func(e *enemy) {
		e.expectRefused(e.call(http.MethodPost, wire.PathJobs, []string{`null`, `{"jobs":null}`}[e.rng.IntN(2)]))
	}},
	{name: "asks for large pages and reads none", role: asOperator, do: func(e *enemy) {
		for range 3 {
			if e.head(http.MethodGet, wire.PathJobs+"?queue="+largeQueue+"&limit=1000", -1) != nil {
				return
			}
		}
		e.wait(e.hold)
	}},
	{name: "reads a large page byte by byte", role: asOperator, do: func(e *enemy) {
		if e.head(http.MethodGet, wire.PathJobs+"?queue="+largeQueue+"&limit=1000", -1) == nil {
			e.drip(e.hold)
		}
	}},
	{name: "claims large jobs and reads none", role: asWorker, do: func(e *enemy) {
		body := `{"worker":"hostile","queues":["` + largeQueue + `"],"limit":500,"lease":"1s"}`
		if e.head(http.MethodPost, wire.PathClaim, len(body)) == nil {
			_, _ = io.WriteString(e.conn, body)
			e.wait(e.hold)
		}
	}},
	{name: "enqueues large jobs", role: asProducer, do: func(e *enemy) {
		e.expect(e.call(http.MethodPost, wire.PathJobs, largeJobs(20)), 0, http.StatusCreated)
	}},
	{name: "registers large workers", role: asWorker, do: (*enemy).register},
	{name: "asks for all workers and reads none", role: asViewer, do: func(e *enemy) {
		if e.head(http.MethodGet, wire.PathWorkers, -1) == nil {
			e.wait(e.hold)
		}
	}},
	{name: "asks for all workers", role: asViewer, do: func(e *enemy) {
		e.expect(e.call(http.MethodGet, wire.PathWorkers, ""), 0, http.StatusOK)
	}},
	{name: "invents queues and kinds", role: asProducer, do: (*enemy).invent},
	{name: "asks for metrics", role: asViewer, do: func(e *enemy) {
		e.expect(e.call(http.MethodGet, "/metrics", ""), 0, http.StatusOK)
	}},
	{name: "asks for metrics and reads none", role: asViewer, do: func(e *enemy) {
		if e.head(http.MethodGet, "/metrics", -1) == nil {
			e.wait(e.hold)
		}
	}},
	{name: "sends nothing", do: func(e *enemy) { e.wait(e.hold) }},
	{name: "sends half a head", do: func(e *enemy) {
		if _, err := io.WriteString(e.conn, "POST /v1/jobs HTTP/1.1\r\nHost: loc"); err == nil {
			e.wait(e.hold)
		}
	}},
	{name: "sends half a body", role: asProducer, do: func(e *enemy) {
		if e.head(http.MethodPost, wire.PathJobs, 1<<20) == nil {
			e.flood(`{"jobs":[`, " ", "", 1<<e.rng.IntN(19))
			e.wait(e.hold)
		}
	}},
	{name: "holds streams of events", role: asViewer, streams: true, do: func(e *enemy) { e.hundred(http.MethodGet, "/v1/events", nil) }},
	{name: "holds half bodies by streams", role: asWorker, streams: true, do: func(e *enemy) {
		e.hundred(http.MethodPost, wire.PathAck, []byte(`{"jobs":[`))
	}},
}

// largeQueue is that of large jobs, which everybody may see.
const largeQueue = "large"

// largeJobs is a call that enqueues so many of 50 kB each.
func largeJobs(n int) string {
	job := `{"queue":"` + largeQueue + `","kind":"large","payload":"` + strings.Repeat("x", 50_000) + `"}`
	return `{"jobs":[` + strings.Repeat(job+",", n-1) + job + `]}`
}

// millions is a call with the largest body that is read at all.
func millions(name, role, path, begin, item, end string) attack {
	return attack{name: name, role: role, do: func(e *enemy) {
		rest := wire.MaxBody - len(begin) - len(end)
		size := wire.MaxBody - rest%len(item)
		if e.head(http.MethodPost, path, size) == nil {
			e.flood(begin, item, end, size)
		}
		e.expectRefused(e.answer())
	}}
}

// expectRefused says that the request was. No answer is one too: the server may have closed the connection.
func (e *enemy) expectRefused(status int) {
	e.expect(status, 0, http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusExpectationFailed)
}

func (e *enemy) chunkedBlanks() {
	if e.head(http.MethodPost, wire.PathList, -1, "Content-Type: application/json", "Transfer-Encoding: chunked") != nil {
		return
	}
	chunk := "10000\r\n" + strings.Repeat(" ", 0x10000) + "\r\n"
	for range 17 << 4 {
		if _, err := io.WriteString(e.conn, chunk); err != nil {
			break
		}
	}
	_, _ = io.WriteString(e.conn, "0\r\n\r\n")
	e.expectRefused(e.answer())
}

// drip reads one byte a second.
func (e *enemy) drip(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end) && e.ctx.Err() == nil; e.wait(time.Second) {
		if _, err := io.ReadFull(e.conn, make([]byte, 1)); err != nil {
			return
		}
	}
}

// hostileWorkers is how many workers they register, of 255 kB each.
const hostileWorkers = 400

func (e *enemy) register() {
	queues := make([]string, 1000)
	for i := range queues {
		queues[i] = fmt.Sprintf("%s%03d", strings.Repeat("q", 245), i)
	}
	body, err := json.Marshal(wire.Worker{Queues: queues, Slots: 1, StaleAfter: wire.Duration(time.Hour)})
	if err != nil {
		panic(err) // names can be written
	}
	for range 20 {
		name := fmt.Sprintf("%s/hostile-%d", wire.PathWorkers, e.rng.IntN(hostileWorkers))
		if e.expect(e.call(http.MethodPut, name, string(body)), 0, http.StatusNoContent); e.ctx.Err() != nil {
			return
		}
	}
}

// inventions is how many queues, and as many kinds, they invent.
const inventions = 100_000

func (e *enemy) invent() {
	var jobs []string
	first := e.rng.IntN(inventions/200) * 200
	for i := range 200 {
		jobs = append(jobs, fmt.Sprintf(`{"queue":"q%06d","kind":"k%06[1]d","unique_key":"u%06[1]d"}`, first+i)) // unique: so many jobs, and no more
	}
	e.expect(e.call(http.MethodPost, wire.PathJobs, `{"jobs":[`+strings.Join(jobs, ",")+`]}`), 0, http.StatusCreated)
}

// hundred opens a hundred streams on one connection, and leaves them open.
func (e *enemy) hundred(method, path string, body []byte) {
	transport := &http.Transport{
		ForceAttemptHTTP2: true, MaxConnsPerHost: 1,
		DialTLSContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return e.dial(ctx, "h2") },
	}
	defer transport.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(e.ctx, e.hold)
	defer cancel()
	var all sync.WaitGroup
	for range 100 {
		all.Go(func() { e.stream(ctx, transport, method, path, body) })
	}
	all.Wait()
}

func (e *enemy) stream(ctx context.Context, transport *http.Transport, method, path string, half []byte) {
	var body io.Reader
	if half != nil {
		reader, writer := io.Pipe()
		defer func() { _ = writer.CloseWithError(errors.New("enough")) }()
		go func() { _, _ = writer.Write(half) }() // which ends when the reader or the writer is closed
		body = reader
	}
	req, err := http.NewRequestWithContext(ctx, method, "https://"+e.Address+path, body)
	if err != nil {
		panic(err) // ours can be made
	}
	if e.token != "" {
		req.Header.Set("Authorization", "Bearer "+e.token)
	}
	req.Header.Set("Content-Type", wire.JSON)
	resp, err := transport.RoundTrip(req)
	if err != nil {
		e.heard("no answer")
		return
	}
	defer func() { _ = resp.Body.Close() }()
	e.expect(resp.StatusCode, http.StatusOK, http.StatusBadRequest)
	_, _ = io.Copy(io.Discard, resp.Body)
}

// A cable is one direction of the network that all hostile clients share.
type cable struct {
	mu   sync.Mutex
	free time.Time // from when on it carries more
}

// carry returns when the bytes would have gone over it.
func (l *cable) carry(n int) {
	l.mu.Lock()
	now := time.Now()
	if l.free.Before(now) {
		l.free = now
	}
	l.free = l.free.Add(time.Duration(n) * time.Second / linkSpeed)
	pause := l.free.Sub(now)
	l.mu.Unlock()
	if pause > time.Millisecond {
		<-time.After(pause)
	}
}

// A slow connection shares a network with others.
type slow struct {
	net.Conn
	up, down *cable
}

func (s *slow) Write(p []byte) (int, error) {
	s.up.carry(len(p))
	return s.Conn.Write(p)
}

func (s *slow) Read(p []byte) (int, error) {
	n, err := s.Conn.Read(p)
	s.down.carry(n)
	return n, err
}
