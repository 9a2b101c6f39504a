package wire

import (
	"crypto/rand"
	"fmt"
	"net/url"
	"strings"
)

// random is how request keys begin that nobody has chosen.
const random = "remote-"

// RandomKey is a request key for a call that was given none, so that it can be repeated.
func RandomKey() string { return random + rand.Text() }

// IsRandomKey says whether a key has the form of a random one, which nobody else can hit on.
func IsRandomKey(key string) bool {
	text, is := strings.CutPrefix(key, random)
	return is && len(text) == len(rand.Text()) && strings.Trim(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") == ""
}

// KeyHeader is a request key as the value of its header: what is no visible character of ASCII stands there as %XX, and so
// does the percent sign, for a header can not carry every key.
func KeyHeader(key string) string {
	var value strings.Builder
	for i := range len(key) {
		if c := key[i]; c > ' ' && c < 0x7f && c != '%' {
			value.WriteByte(c)
		} else {
			fmt.Fprintf(&value, "%%%02X", c)
		}
	}
	return value.String()
}

// KeyOf is the request key that stands in the header.
func KeyOf(value string) (string, error) {
	key, err := url.PathUnescape(value)
	if err != nil {
		return "", refuse("request_key", "must have a percent sign as %25")
	}
	return key, nil
}
