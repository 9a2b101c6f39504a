package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"unicode/utf16"

	"github.com/seed-ed332417/jq/internal/store"
)

// A shape describes the JSON of a type, as far as check needs it. A list has items, an object has fields, and other values
// have neither.
type shape struct {
	items  *shape
	most   int // how many items a list may have
	fields map[string]member
	exact  bool // a document, whose text is not checked
}

type member struct {
	*shape
	name  string
	index int
	some  bool // an empty list is refused: it would mean everything, like an absent one, and the caller hardly wants that
}

var (
	shapes      sync.Map // by reflect.Type
	unmarshaler = reflect.TypeFor[json.Unmarshaler]()
	raw         = reflect.TypeFor[json.RawMessage]()
	wait        = reflect.TypeFor[store.WaitJSON]()
)

func shapeOf(t reflect.Type) *shape {
	if known, ok := shapes.Load(t); ok {
		return known.(*shape)
	}
	s := &shape{exact: t == raw}
	switch {
	case reflect.PointerTo(t).Implements(unmarshaler):
	case t.Kind() == reflect.Pointer:
		return shapeOf(t.Elem())
	case t.Kind() == reflect.Slice:
		s.items, s.most = shapeOf(t.Elem()), store.MaxItems
		if t.Elem() == wait { // each job has such a list
			s.most = store.MaxWaits
		}
	case t.Kind() == reflect.Struct:
		s.fields = map[string]member{}
		for i, f := range reflect.VisibleFields(t) {
			if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); !f.Anonymous {
				s.fields[name] = member{shapeOf(f.Type), name, i, f.Tag.Get("list") == "some"}
			}
		}
	}
	shapes.Store(t, s)
	return s
}

// errMalformed says that the text is not JSON. The decoder has the better explanation.
var errMalformed = errors.New("malformed")

// A checker scans a request before it is decoded, in one pass that allocates almost nothing. It refuses lists that are too
// long, because decoding them would cost much memory. It also refuses mistakes that the decoder would accept silently:
// repeated or unknown fields, null for a list, and half of a surrogate pair. It does not check types: the decoder does.
type checker struct {
	text []byte
	at   int
}

// check returns the first mistake in the request, or errMalformed.
func check(text []byte, s *shape) error {
	c := &checker{text: text}
	if c.next() == 'n' {
		return refuse("body", "must be an object")
	}
	if err := c.value("body", s); err != nil {
		return err
	}
	if c.next(); c.at < len(c.text) {
		return refuse("body", "must be one JSON value, with nothing behind it")
	}
	return nil
}

// next returns the next byte that is not white space, or 0 at the end.
func (c *checker) next() byte {
	for ; c.at < len(c.text); c.at++ {
		if !blank(c.text[c.at]) {
			return c.text[c.at]
		}
	}
	return 0
}

func blank(b byte) bool { return b == ' ' || b == '\t' || b == '\n' || b == '\r' }

func (c *checker) value(name string, s *shape) error {
	switch first := c.next(); {
	case s.exact:
		return c.skip()
	case first == '"':
		return c.string(name)
	case first == '{' && s.fields != nil:
		return c.object(s)
	case first == '[' && s.items != nil:
		return c.list(name, s)
	default:
		return c.skip()
	}
}

func (c *checker) object(s *shape) error {
	seen := uint64(0)
	return c.each('}', func() error {
		f, err := c.member(s)
		if err != nil {
			return err
		}
		if seen&(1<<f.index) != 0 {
			return refuse(f.name, "must be given once")
		}
		seen |= 1 << f.index
		switch first := c.next(); {
		case f.items != nil && first == 'n':
			return refuse(f.name, "must be a list")
		case first == '[' && f.some && c.beginsEmpty():
			return refuse(f.name, "must not be empty: leave it out")
		default:
			return c.value(f.name, f.shape)
		}
	})
}

// beginsEmpty reports whether a list without items begins here.
func (c *checker) beginsEmpty() bool {
	behind := checker{text: c.text, at: c.at + 1}
	return behind.next() == ']'
}

func (c *checker) list(name string, s *shape) error {
	items := 0
	return c.each(']', func() error {
		if items++; items > s.most {
			return tooMany(name, s.most)
		}
		return c.value(name, s.items)
	})
}

func tooMany(name string, most int) error {
	if most == store.MaxItems {
		return refuse(name, fmt.Sprintf("must be at most %d a call", most))
	}
	return refuse(name, fmt.Sprintf("must be at most %d a job", most))
}

// each calls one for each element of the list or object that begins here.
func (c *checker) each(end byte, one func() error) error {
	c.at++
	if c.next() == end {
		c.at++
		return nil
	}
	for {
		if err := one(); err != nil {
			return err
		}
		behind := c.next()
		c.at++
		switch behind {
		case end:
			return nil
		case ',':
		default:
			return errMalformed
		}
	}
}

// member reads a name and its colon. The case must match: the decoder would ignore it.
func (c *checker) member(s *shape) (f member, err error) {
	if c.next() != '"' {
		return f, errMalformed
	}
	begin := c.at + 1
	if err := c.string("body"); err != nil { // an escaped quotation mark does not end the name
		return f, err
	}
	name := c.text[begin : c.at-1]
	if c.next() != ':' {
		return f, errMalformed
	}
	c.at++
	f, known := s.fields[string(name)]
	switch {
	case known:
		return f, nil
	case len(name) == 0 || len(name) > store.MaxNameBytes:
		return f, refuse("body", "must have fields that are known here")
	default:
		return f, refuse(string(name), "is not known here")
	}
}

// string reads a string and checks its escapes.
func (c *checker) string(name string) error {
	for c.at++; c.at < len(c.text); c.at++ {
		switch c.text[c.at] {
		case '"':
			c.at++
			return nil
		case '\\':
			first := unit(c.text[c.at:])
			if utf16.IsSurrogate(first) {
				c.at += 6
				if utf16.DecodeRune(first, unit(c.text[c.at:])) == '\uFFFD' {
					return refuse(name, "must not have half of a surrogate pair")
				}
			}
			c.at++ // skip the escaped character, which may be a quotation mark
		}
	}
	return errMalformed
}

// unit returns the UTF-16 unit that \u and four digits stand for, or 0 if the text does not begin like that.
func unit(text []byte) rune {
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
		return 0
	}
	n, err := strconv.ParseUint(string(text[2:6]), 16, 16)
	if err != nil {
		return 0
	}
	return rune(n)
}

// skip reads past a value of any kind.
func (c *checker) skip() error {
	for depth, quoted := 0, false; c.at < len(c.text); c.at++ {
		b := c.text[c.at]
		switch {
		case quoted && b == '\\':
			c.at++
		case b == '"':
			quoted = !quoted
		case quoted:
		case b == '{' || b == '[':
			depth++
		case b == '}' || b == ']':
			if depth == 0 {
				return nil
			}
			depth--
		case depth == 0 && (b == ',' || blank(b)):
			return nil
		}
	}
	return nil
}
