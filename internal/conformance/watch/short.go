package watch

import (
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// shown is how many bytes of a value are shown.
const shown = 300

// Short is the value in words, cut to what is shown.
func Short(v any) string { return shorten(readable(fmt.Sprintf("%+v", cut(v)))) }

func shorten(text string) string {
	if len(text) > shown {
		text = text[:shown] + "…"
	}
	return text
}

// cut returns the value without what lies behind the beginning of its slices, which is not shown. Some cases have documents of
// megabytes, and to put those into words took most of the time in which the suite fails its broken stores.
func cut(v any) any {
	if v == nil {
		return nil
	}
	return cutValue(reflect.ValueOf(v)).Interface()
}

func cutValue(v reflect.Value) reflect.Value {
	switch v.Kind() {
	case reflect.Slice:
		v = v.Slice(0, min(v.Len(), shown))
		if v.IsNil() || v.Type().Elem().Kind() == reflect.Uint8 {
			return v
		}
		some := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
		for i := range v.Len() {
			some.Index(i).Set(cutValue(v.Index(i)))
		}
		return some
	case reflect.Struct:
		some := reflect.New(v.Type()).Elem()
		some.Set(v)
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				some.Field(i).Set(cutValue(v.Field(i)))
			}
		}
		return some
	case reflect.Interface:
		if !v.IsNil() {
			return cutValue(v.Elem())
		}
	default: // no cases have documents behind pointers or in maps
	}
	return v
}

// zeroField is a field that is not set, as %+v writes it.
var zeroField = regexp.MustCompile(`\b[A-Za-z]+:(0001-01-01 00:00:00 \+0000 UTC|0s|0|\[\]|\{\}|false)?( |(\}))`)

// brief is a request or an answer without the fields that are not set.
func brief(v any) string {
	return shorten(readable(zeroField.ReplaceAllString(fmt.Sprintf("%+v", cut(v)), "$3")))
}

// document is a document as %+v writes it: by the numbers of its bytes.
var document = regexp.MustCompile(`\b(Payload|Checkpoint|Progress|Result):\[[0-9]+( [0-9]+)*\]`)

// readable returns the text with documents as text too, quoted if they have control characters or are not UTF-8.
func readable(text string) string {
	return document.ReplaceAllStringFunc(text, func(field string) string {
		name, numbers, _ := strings.Cut(field, ":")
		var doc []byte
		for number := range strings.FieldsSeq(strings.Trim(numbers, "[]")) {
			b, err := strconv.ParseUint(number, 10, 8)
			if err != nil {
				return field
			}
			doc = append(doc, byte(b))
		}
		if !utf8.Valid(doc) || strings.ContainsFunc(string(doc), func(r rune) bool { return r < ' ' }) {
			return name + ":" + strconv.Quote(string(doc))
		}
		return name + ":" + string(doc)
	})
}
