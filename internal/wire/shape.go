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

// A shape is what a value of a type looks like in JSON, as far as a request is checked before it is decoded. A list has items, an
// object has fields, and any other value has neither.
type shape struct {
	items  *shape
	fields map[string]member
	exact  bool // a document: its text stays as it is written
}

type member struct {
	*shape
	name  string
	index int
	some  bool // an empty list is refused: its absence means everything, which whoever leaves it empty did not mean
}

var (
	shapes      sync.Map // by reflect.Type
	unmarshaler = reflect.TypeFor[json.Unmarshaler]()
	raw         = reflect.TypeFor[json.RawMessage]()
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
		s.items = shapeOf(t.Elem())
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

// errMalformed says that the text is no JSON. The decoder explains it better.
var errMalformed = errors.New("malformed")

// A checker looks through a request before it is decoded, in one pass that allocates next to nothing. It refuses what would cost
// the decoder much memory, a list that is longer than any may be, and what the decoder takes without a word: fields that are given twice
// or are not known, a list that is null, half of a surrogate pair. A value of another kind than it should have is left to the decoder.
type checker struct {
	text []byte
	at   int
}

// check says what is wrong with the request, or errMalformed.
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

// next is the next byte that is not blank, or 0 at the end.
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
		_, err := c.list(name, s)
		return err
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
		case f.items == nil || f.exact:
			return c.value(f.name, f.shape)
		case first == 'n':
			return refuse(f.name, "must be a list")
		case first == '[':
			if items, err := c.list(f.name, f.shape); err != nil || items > 0 || !f.some {
				return err
			}
			return refuse(f.name, "must not be empty: leave it out")
		default:
			return c.skip()
		}
	})
}

func (c *checker) list(name string, s *shape) (items int, err error) {
	err = c.each(']', func() error {
		if items++; items > store.MaxItems {
			return refuse(name, fmt.Sprintf("must be at most %d a call", store.MaxItems))
		}
		return c.value(name, s.items)
	})
	return items, err
}

// each reads what stands between commas, up to the end of the list or the object that begins here.
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

// member reads a name and its colon. Names are those of the API to the letter: the decoder would fold cases.
func (c *checker) member(s *shape) (f member, err error) {
	if c.next() != '"' {
		return f, errMalformed
	}
	begin := c.at + 1
	if err := c.string("body"); err != nil { // to its end, which is not the first quotation mark where that is escaped
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

// string reads one whose text is taken as it is meant, and not as it is written.
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
			c.at++ // what is escaped may be a quotation mark
		}
	}
	return errMalformed
}

// unit is what \u and four digits stand for, or 0 where the text begins otherwise.
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

// skip passes over a value, whatever it is.
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
