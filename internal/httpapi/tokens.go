package httpapi

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/wire"
)

// A Role says what the bearer of a token may do. A token can have several roles.
type Role string

// The roles. An operator may do everything.
const (
	Producer Role = "producer" // enqueue, and read a single job
	Worker   Role = "worker"   // claim, finish and recover jobs
	Operator Role = "operator"
	Viewer   Role = "viewer" // read everything except documents and lease tokens
)

// roles lists all roles.
var roles = []Role{Producer, Worker, Operator, Viewer}

// A Token is one line of the token file: all that a server knows about a token. Only its bearer has the secret.
type Token struct {
	Name string `json:"name"`
	Role Role   `json:"role"`   // or several, separated by commas
	Hash string `json:"sha256"` // of the secret, in hexadecimal

	// Expires is when the token expires. A zero time means never.
	Expires wire.Time `json:"expires,omitzero"`

	Queues    []string `json:"queues,omitempty"`     // the queues that it may use, as patterns like those of a filter; empty means all
	KeyPrefix string   `json:"key_prefix,omitempty"` // the prefix of the unique, limit and request keys that it may use

	// MaxWaiting is about how many jobs may be blocked, ready or retrying in its queues when it enqueues. 0 means no limit.
	MaxWaiting int64 `json:"max_waiting,omitempty"`
}

// split returns the roles of the token.
func (t Token) split() []Role {
	var all []Role
	for name := range strings.SplitSeq(string(t.Role), ",") {
		all = append(all, Role(name))
	}
	return all
}

// Expired reports whether the token has expired at that time.
func (t Token) Expired(now time.Time) bool { return !t.Expires.IsZero() && !now.Before(t.Expires.Time) }

// Line returns the token as a line of the file, with the newline.
func (t Token) Line() []byte {
	text, err := wire.Marshal(t)
	if err != nil {
		panic(err) // strings and a time can always be encoded
	}
	return append(text, '\n')
}

// SameRights reports whether the two tokens differ only in their secrets and expiry times.
func (t Token) SameRights(other Token) bool {
	other.Hash, other.Expires = t.Hash, t.Expires
	return bytes.Equal(t.Line(), other.Line())
}

// NewToken makes a token with the name, the rights and the expiry time of t. It returns the secret, which must be shown once,
// and the Token to store.
func NewToken(t Token) (string, Token, error) {
	var secret [32]byte
	_, _ = rand.Read(secret[:]) // never fails
	text := "jq_" + base64.RawURLEncoding.EncodeToString(secret[:])
	sum := sha256.Sum256([]byte(text))
	t.Hash = hex.EncodeToString(sum[:])
	return text, t, t.check()
}

func (t Token) check() error {
	switch {
	case t.Name == "" || len(t.Name) > store.MaxNameBytes || !utf8.ValidString(t.Name) || strings.ContainsFunc(t.Name, control):
		return fmt.Errorf("the name of a token must be one line of 1 to %d bytes", store.MaxNameBytes)
	case slices.ContainsFunc(t.split(), func(r Role) bool { return !slices.Contains(roles, r) }):
		return errors.New("the role of a token must be producer, worker, operator or viewer, or several of these with commas")
	case t.MaxWaiting < 0:
		return errors.New("the waiting jobs of a token must be 0 or more")
	case len(t.KeyPrefix) > store.MaxNameBytes || !utf8.ValidString(t.KeyPrefix):
		return fmt.Errorf("the key prefix of a token must be at most %d bytes of text", store.MaxNameBytes)
	}
	if err := (store.Filter{Queues: t.Queues}).Check(); err != nil {
		return errors.New("the queues of a token must be names, or beginnings of names with a * behind them")
	}
	sum, err := hex.DecodeString(t.Hash)
	if err != nil || len(sum) != sha256.Size || hex.EncodeToString(sum) != t.Hash {
		return errors.New("sha256 must be 64 hexadecimal digits, in small letters")
	}
	return nil
}

func control(r rune) bool { return r < ' ' || r == 0x7f }

// Tokens holds the tokens of a file. Several may have the same name, so that one can replace another without a gap.
type Tokens struct{ known []known }

type known struct {
	Token
	sum   [sha256.Size]byte
	roles []Role
}

// maxLine is the maximum length of a line of the file.
const maxLine = 4 << 10

// ReadTokens reads a token file, which has a line of JSON for each token. It skips blank lines. Errors name the line but do
// not quote it, because somebody may have put a secret there.
func ReadTokens(r io.Reader) (*Tokens, error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, maxLine), maxLine)
	var tokens Tokens
	sums := map[string]bool{}
	n := 1
	for ; lines.Scan(); n++ {
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 {
			continue
		}
		var t Token
		if err := wire.Decode(line, &t); err != nil {
			return nil, fmt.Errorf("jq: tokens, line %d: want {\"name\", \"role\", \"sha256\"}, perhaps with queues, key_prefix, max_waiting and expires, as jobq token new writes it", n)
		}
		if err := t.check(); err != nil {
			return nil, fmt.Errorf("jq: tokens, line %d: %w", n, err)
		}
		if sums[t.Hash] {
			return nil, fmt.Errorf("jq: tokens, line %d: the token is there twice", n)
		}
		sums[t.Hash] = true
		k := known{Token: t, roles: t.split()}
		_, _ = hex.Decode(k.sum[:], []byte(t.Hash)) // checked above
		tokens.known = append(tokens.known, k)
	}
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		return nil, fmt.Errorf("jq: tokens, line %d: it is longer than the line of a token can be", n)
	} else if err != nil {
		return nil, fmt.Errorf("jq: tokens, line %d: %w", n, err)
	}
	return &tokens, nil
}

// Len returns the number of tokens.
func (t *Tokens) Len() int {
	if t == nil {
		return 0
	}
	return len(t.known)
}

// All returns the tokens in the order of the file.
func (t *Tokens) All() []Token {
	var all []Token
	for _, k := range t.known {
		all = append(all, k.Token)
	}
	return all
}

// admit returns why the request must be refused, or nil. It stores the bearer and the share in the exchange.
func (a *API) admit(x *exchange, r *http.Request) error {
	if err := a.origins.Check(r); err != nil {
		return noOrigin
	}
	if !a.bearers.needed() || x.to.roles == nil {
		return nil
	}
	b, err := a.bearerOf(r)
	if err != nil {
		return err
	}
	x.bearer, x.own = b, b.share
	if err := a.bearers.refusal(b); err != nil {
		return err
	}
	if !b.is(x.to.everyRole()...) {
		f := noRole
		f.Detail = fmt.Sprintf("it is that of a %s, and this is for: %s", list(b.roles), list(x.to.everyRole()))
		return f
	}
	return checkCSRF(r)
}

func list(all []Role) string {
	names := make([]string, len(all))
	for i, r := range all {
		names[i] = string(r)
	}
	return strings.Join(names, ", ")
}
