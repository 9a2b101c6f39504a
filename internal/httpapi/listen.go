package httpapi

import (
	"cmp"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

// Limits configures NewServer and Limit. Zero fields mean the default.
type Limits struct {
	HeaderTimeout  time.Duration // to read the headers of a request: by default 10 seconds
	ReadTimeout    time.Duration // to read a whole request: by default 30 seconds
	WriteTimeout   time.Duration // to write an answer, unless the API sets another time: by default a minute
	IdleTimeout    time.Duration // to wait for the next request: by default two minutes
	MaxHeaderBytes int           // of the headers of a request: by default 16 KiB
	MaxConnections int           // open at once: by default 4,096; further ones wait
	MaxPerAddress  int           // of them from one IPv4 address or one IPv6 /64 network: by default half; further ones are closed at once
	Logger         *slog.Logger  // for errors of clients, at level debug: by default slog.Default()
}

// NewServer returns a server that tolerates clients that are slow, hang or disconnect. With a TLS configuration it uses TLS,
// version 1.2 or later. Limits and secure may be nil.
//
// Serve it on the listener that [Limit] returns: with ServeTLS and no files if you use TLS, otherwise with Serve. To stop it,
// close the API first, because claims wait in it. Then call Shutdown.
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
	full := *cmp.Or(l, &Limits{})
	fill(&full.HeaderTimeout, 10*time.Second)
	fill(&full.ReadTimeout, 30*time.Second)
	fill(&full.WriteTimeout, time.Minute)
	fill(&full.IdleTimeout, 2*time.Minute)
	fill(&full.MaxHeaderBytes, 16<<10)
	fill(&full.MaxConnections, 4096)
	fill(&full.MaxPerAddress, max(1, full.MaxConnections/2))
	fill(&full.Logger, slog.Default())
	if min(full.HeaderTimeout, full.ReadTimeout, full.WriteTimeout, full.IdleTimeout) < 0 || min(full.MaxHeaderBytes, full.MaxConnections, full.MaxPerAddress) < 0 {
		return full, errors.New("jq: a negative limit of the HTTP server: want more than nothing")
	}
	return full, nil
}

// Limit returns the listener with limits on its connections. At the limit it accepts the next connection when another one is
// closed. One address can not use up all connections.
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
	most   int // connections of one origin

	mu   sync.Mutex // guards from
	from map[netip.Prefix]int
}

// Accept waits for a free place, and then for a connection whose origin does not have too many.
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
		_ = c.Close() // the client gets no other answer
	}
}

// origin returns the network of an internet address. It is zero for other addresses.
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
	network, _ := ip.Prefix(bits) // bits is never too large
	return network
}

// count changes the number of connections of an origin. It refuses to exceed the limit.
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

// Close closes the listener. It does not close connections.
func (l *limited) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// A place is a connection that takes one of the limited places.
type place struct {
	net.Conn
	leave func()
}

// Close closes the connection and frees its place.
func (p *place) Close() error {
	defer p.leave()
	return p.Conn.Close()
}
