package etcd

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// CheckURL returns an error if Open would not take the URL. It reads no files and connects to nothing. Its error does not quote the URL, because a
// wrong one may have a password anywhere.
func CheckURL(address string) error {
	_, err := parse(address)
	return err
}

// A location is what a URL says.
type location struct {
	secure         bool
	user, password string // both or neither
	hosts          []string
	prefix         string
	ca, cert, key  string // files; the last two both or neither
}

// parse returns the parts of a URL. It cannot use url.Parse, which takes a single host.
func parse(address string) (location, error) {
	var l location
	scheme, rest, found := strings.Cut(address, "://")
	switch scheme = strings.ToLower(scheme); {
	case !found || scheme != "etcd" && scheme != "etcds":
		return l, errors.New("it must begin with etcd:// or, for TLS, etcds://")
	case strings.Contains(rest, "#"):
		return l, errors.New("it can have no #: write %23")
	}
	l.secure = scheme == "etcds"
	rest, query, _ := strings.Cut(rest, "?")
	hosts, path, _ := strings.Cut(rest, "/")
	if at := strings.LastIndexByte(hosts, '@'); at >= 0 {
		if err := l.login(hosts[:at]); err != nil {
			return l, err
		}
		hosts = hosts[at+1:]
	}
	for _, part := range []func() error{
		func() error { return l.members(hosts) },
		func() error { return l.keys(path) },
		func() error { return l.parameters(query) },
	} {
		if err := part(); err != nil {
			return l, err
		}
	}
	return l, nil
}

func (l *location) login(text string) error {
	user, password, _ := strings.Cut(text, ":")
	var errs [2]error
	l.user, errs[0] = url.PathUnescape(user)
	l.password, errs[1] = url.PathUnescape(password)
	if l.user == "" || l.password == "" || errors.Join(errs[:]...) != nil {
		return errors.New("its user must be USER:PASSWORD, with special characters as %XX")
	}
	return nil
}

func (l *location) members(text string) error {
	for host := range strings.SplitSeq(text, ",") {
		if host == "" {
			return errors.New("a host is empty: separate hosts by single commas")
		}
		name, port, err := net.SplitHostPort(host)
		n, wrong := strconv.ParseUint(port, 10, 16)
		if err != nil || wrong != nil || n == 0 || name == "" || strings.ContainsAny(name, "@% \t\n") {
			return errors.New("each host must be HOST:PORT, such as a.example:2379")
		}
		l.hosts = append(l.hosts, host)
	}
	return nil
}

func (l *location) keys(path string) error {
	prefix, err := url.PathUnescape(path)
	switch {
	case err != nil:
		return errors.New("its prefix has an invalid URL escape: write % as %25")
	case prefix == "":
		return errors.New("it must end with a prefix for the keys, such as /jobs")
	case strings.Contains(path, "@"):
		return errors.New("its prefix can have no @: write %40, and / in a password as %2F")
	}
	l.prefix = prefix
	return checkPrefix(prefix)
}

func (l *location) parameters(text string) error {
	values, err := url.ParseQuery(text)
	if err != nil {
		return errors.New("its parameters must be NAME=FILE&NAME=FILE")
	}
	for name, list := range values {
		var to *string
		switch name {
		case "ca":
			to = &l.ca
		case "cert":
			to = &l.cert
		case "key":
			to = &l.key
		default: // which may be the rest of a password
			return errors.New("it can have the parameters ca, cert and key, and no others")
		}
		if *to = list[0]; len(list) != 1 || list[0] == "" {
			return fmt.Errorf("its parameter %s must name one file", name)
		}
	}
	switch {
	case (l.cert == "") != (l.key == ""):
		return errors.New("it must have both the parameters cert and key, or neither")
	case len(values) > 0 && !l.secure:
		return errors.New("its parameters are for TLS: begin it with etcds://")
	}
	return nil
}

// config returns the configuration of a client. It reads the files.
func (l location) config() (clientv3.Config, error) {
	c := clientv3.Config{Username: l.user, Password: l.password}
	scheme := "http://"
	if l.secure {
		scheme = "https://"
		var err error
		if c.TLS, err = l.tls(); err != nil {
			return c, err
		}
	}
	for _, host := range l.hosts {
		c.Endpoints = append(c.Endpoints, scheme+host)
	}
	return c, nil
}

// tls returns the configuration of TLS. The certificate of the client is read again for each connection, so its files can be renewed.
func (l location) tls() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if l.ca != "" {
		text, err := os.ReadFile(l.ca)
		if err != nil {
			return nil, fmt.Errorf("the parameter ca: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("the parameter ca: %s contains no certificate: want blocks that begin with -----BEGIN CERTIFICATE-----", l.ca)
		}
	}
	if l.cert == "" {
		return c, nil
	}
	read := func() (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(l.cert, l.key)
		if err != nil {
			return nil, fmt.Errorf("the parameters cert and key: %w", err)
		}
		return &pair, nil
	}
	if _, err := read(); err != nil {
		return nil, err
	}
	c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return read() }
	return c, nil
}
