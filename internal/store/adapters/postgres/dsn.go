package postgres

import (
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"strings"
)

// A pair of a keyword DSN: a key, and a value that may be quoted.
var pair = regexp.MustCompile(`([^\s=]+)\s*=\s*('(?:\\.|[^'\\])*'|(?:\\.|[^\s\\])*)`)

// cutMaxConns takes max_conns out of a DSN, which the driver does not know. The number is 0 if there is none.
func cutMaxConns(dsn string) (rest string, conns int, err error) {
	const name = "max_conns"
	var values []string
	base, query, isURL := strings.Cut(dsn, "?")
	switch {
	case !strings.Contains(dsn, "://"):
		rest = pair.ReplaceAllStringFunc(dsn, func(found string) string {
			part := pair.FindStringSubmatch(found)
			if part[1] != name {
				return found
			}
			values = append(values, strings.Trim(part[2], "'"))
			return ""
		})
	case isURL:
		var left []string
		for one := range strings.SplitSeq(query, "&") {
			key, value, _ := strings.Cut(one, "=")
			if key != name {
				left = append(left, one)
				continue
			}
			value, _ = url.QueryUnescape(value)
			values = append(values, value)
		}
		rest = strings.TrimSuffix(base+"?"+strings.Join(left, "&"), "?")
	default:
		rest = dsn
	}
	for _, value := range values {
		if conns, err = strconv.Atoi(value); err != nil || conns < MinConns {
			return "", 0, fmt.Errorf("jq: max_conns in the DSN is %q: want a number of at least %d", value, MinConns)
		}
	}
	return rest, conns, nil
}
