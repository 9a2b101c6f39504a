package tikv

import (
	"errors"
	"net"
	"net/url"
	"strconv"
	"strings"
)

// CheckURL returns an error if Open would not take the URL. It connects to nothing.
func CheckURL(address string) error {
	_, err := parse(address)
	return err
}

// A location is what a URL says.
type location struct {
	hosts  []string // of PD
	prefix string
}

// parse returns the parts of a URL. It cannot use url.Parse, which takes a single host.
func parse(address string) (location, error) {
	var l location
	scheme, rest, found := strings.Cut(address, "://")
	switch {
	case !found || strings.ToLower(scheme) != "tikv":
		return l, errors.New("it must begin with tikv://")
	case strings.ContainsAny(rest, "?#"):
		return l, errors.New("it can have no ? and no #: write %3F and %23")
	}
	hosts, path, _ := strings.Cut(rest, "/")
	for host := range strings.SplitSeq(hosts, ",") {
		if host == "" {
			return l, errors.New("a host is empty: separate hosts by single commas")
		}
		name, port, err := net.SplitHostPort(host)
		n, wrong := strconv.ParseUint(port, 10, 16)
		if err != nil || wrong != nil || n == 0 || name == "" || strings.ContainsAny(name, "@% \t\n") {
			return l, errors.New("each host must be HOST:PORT of a server of PD, such as a.example:2379")
		}
		l.hosts = append(l.hosts, host)
	}
	prefix, err := url.PathUnescape(path)
	switch {
	case err != nil:
		return l, errors.New("its prefix has an invalid URL escape: write % as %25")
	case prefix == "":
		return l, errors.New("it must end with a prefix for the keys, such as /jobs")
	}
	l.prefix = prefix
	return l, checkPrefix(prefix)
}
