package httpapi

import (
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

// Limits are what an HTTP server grants its clients. The zero value of each field means its default.
type Limits struct {
	HeaderTimeout  time.Duration // for the head of a request: by default 10 seconds
	ReadTimeout    time.Duration // for a whole request: by default 30 seconds
	WriteTimeout   time.Duration // for an answer, unless the API says otherwise: by default a minute
	IdleTimeout    time.Duration // between two requests: by default two minutes
	MaxHeaderBytes int           // of a head: by default 16 KiB
	MaxConnections int           // at once: by default 4,096; more have to wait
	MaxPerAddress  int           // of them, from one address, or one network of 64 bits: by default half; more are closed at once
	Logger         *slog.Logger  // of what clients do wrong, at level debug: by default slog.Default()
}

// NewServer returns a server for the handler that bears with clients which are slow, hang or vanish. It speaks TLS where there is
// a configuration of it, of version 1.2 at least. Limits and secure may be nil.
//
// Serve it on [Limit] of a listener: by ServeTLS without files where there is a configuration, else by Serve. To stop it, close the
// API first, for claims wait in it; then Shutdown.
func NewServer(h http.Handler, limits *Limits, secure *tls.Config) (*http.Server, error) {
	l, err := limits.filled()
	if err != nil {
		return nil, err
	}
	s := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: l.HeaderTimeout, ReadTimeout: l.ReadTimeout, WriteTimeout: l.WriteTimeout, IdleTimeout: l.IdleTimeout,
		MaxHeaderBytes: l.MaxHeaderBytes,
		ErrorLog:       slog.NewLogLogger(l.Logger.Handler(), slog.LevelDebug),
	}
	if secure != nil {
		s.TLSConfig = secure.Clone()
		s.TLSConfig.MinVersion = max(tls.VersionTLS12, secure.MinVersion)
	}
	return s, nil
}

func (l *Limits) filled() (Limits, error) {
	var full Limits
	if l != nil {
		full = *l
	}
	fill(&full.HeaderTimeout, 10*time.Second)
	fill(&full.ReadTimeout, 30*time.Second)
	fill(&full.WriteTimeout, time.Minute)
	fill(&full.IdleTimeout, 2*time.Minute)
	fill(&full.MaxHeaderBytes, 16<<10)
	fill(&full.MaxConnections, 4096)
	fill(&full.MaxPerAddress, max(1, full.MaxConnections/2))
	if full.Logger == nil {
		full.Logger = slog.Default()
	}
	if min(full.HeaderTimeout, full.ReadTimeout, full.WriteTimeout, full.IdleTimeout) < 0 || min(full.MaxHeaderBytes, full.MaxConnections, full.MaxPerAddress) < 0 {
		return full, errors.New("jq: a negative limit of the HTTP server: want more than nothing")
	}
	return full, nil
}

// Limit is the listener with the limits of connections: one more is accepted when another was closed, and one address leaves some to
// others.
func Limit(l net.Listener, limits *Limits) (net.Listener, error) {
	full, err := limits.filled()
	if err != nil {
		return nil, err
	}
	return &limited{
		Listener: l, places: newRoom(full.MaxConnections), closed: make(chan struct{}), most: full.MaxPerAddress, from: map[netip.Prefix]int{},
	}, nil
}

type limited struct {
	net.Listener
	places room
	once   sync.Once
	closed chan struct{}
	most   int // of one origin

	mu   sync.Mutex // guards from
	from map[netip.Prefix]int
}

// Accept waits for a place, then for a connection of whoever has not too many.
func (l *limited) Accept() (net.Conn, error) {
	select {
	case l.places <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			l.places.leave()
			return nil, err
		}
		from := origin(c.RemoteAddr())
		if l.count(from, 1) {
			return &place{Conn: c, leave: sync.OnceFunc(func() {
				l.count(from, -1)
				l.places.leave()
			})}, nil
		}
		_ = c.Close() // whoever it is hears of nothing else
	}
}

// origin is the address, or the network that one customer of a provider has. What is no address of the internet has none.
func origin(a net.Addr) netip.Prefix {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	return network(tcp.AddrPort().Addr())
}

func network(ip netip.Addr) netip.Prefix {
	ip = ip.Unmap().WithZone("")
	bits := ip.BitLen()
	if ip.Is6() {
		bits = 64
	}
	network, _ := ip.Prefix(bits) // which are not too many
	return network
}

// count adds to the connections of an origin, unless there are too many.
func (l *limited) count(from netip.Prefix, n int) bool {
	if !from.IsValid() {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	sum := l.from[from] + n
	switch {
	case n > 0 && sum > l.most:
		return false
	case sum == 0:
		delete(l.from, from)
	default:
		l.from[from] = sum
	}
	return true
}

// Close closes the listener. Connections stay as they are.
func (l *limited) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// A place is a connection that others may wait for.
type place struct {
	net.Conn
	leave func()
}

// Close closes the connection, and lets the next one in.
func (p *place) Close() error {
	defer p.leave()
	return p.Conn.Close()
}
