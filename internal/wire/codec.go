package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/seed-ed332417/jq/internal/store"
)

const maxCall = store.MaxCallBytes

// Encode writes v as one line of JSON. It does not escape HTML: programs read the text, not browsers.
func Encode(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// Marshal returns the text that Encode writes, without the newline.
func Marshal(v any) ([]byte, error) {
	if jobs, ok := v.(Jobs); ok {
		return jobs.marshal()
	}
	var text bytes.Buffer
	if err := Encode(&text, v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(text.Bytes(), []byte("\n")), nil
}

// Decode reads a request: one JSON value with known fields. Any mistake in it is a [store.InvalidError] that names the field,
// or "body" if the text is not JSON.
func Decode(body []byte, into any) error {
	if !utf8.Valid(body) {
		return refuse("body", "must be valid UTF-8") // the decoder would silently replace invalid bytes
	}
	err := check(body, shapeOf(reflect.TypeOf(into).Elem()))
	if errors.Is(err, errMalformed) {
		into = &struct{}{} // decode it only to explain the error, since the check did not reach the end
	} else if err != nil {
		return err
	}
	if err := json.Unmarshal(body, into); err != nil {
		return explain(err, len(body))
	}
	if err != nil {
		return refuse("body", "must be JSON")
	}
	return nil
}

// explain turns an error of the decoder into an InvalidError.
func explain(err error, size int) error {
	var syntax *json.SyntaxError
	var mismatch *json.UnmarshalTypeError
	switch {
	case size == 0:
		return refuse("body", "must be a JSON object, and is empty")
	case errors.As(err, &syntax) && syntax.Error() == "unexpected end of JSON input": // the package has no other way to recognize it
		return refuse("body", "must be JSON: it ends too early")
	case errors.As(err, &syntax):
		return refuse("body", fmt.Sprintf("must be JSON: %v (byte %d)", syntax, syntax.Offset))
	case errors.As(err, &mismatch):
		return refuse(field(mismatch), "must be "+wanted(mismatch))
	}
	return refuse("body", fmt.Sprintf("must be JSON: %v", err))
}

func field(m *json.UnmarshalTypeError) string {
	parts := slices.DeleteFunc(strings.Split(m.Field, "."), func(part string) bool {
		return part == "" || unicode.IsUpper(rune(part[0])) // an embedded struct, which JSON does not show
	})
	if len(parts) == 0 {
		return "body"
	}
	return strings.Join(parts, ".")
}

func wanted(m *json.UnmarshalTypeError) string {
	if wanted := store.Wanted(m); wanted != "" {
		return wanted
	}
	switch kind := m.Type.Kind().String(); {
	case strings.HasPrefix(kind, "int"):
		return "a whole number that fits " + kind
	case kind == "slice":
		return "a list"
	case kind == "struct", kind == "map", kind == "ptr":
		return "an object"
	case kind == "bool":
		return "true or false"
	default:
		return "a " + kind
	}
}

func refuse(field, rule string) error {
	return &store.InvalidError{Item: -1, Field: field, Rule: rule}
}
