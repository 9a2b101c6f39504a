package httpapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// The parts of the OpenAPI document that the page shows.
type (
	document struct {
		Info struct {
			Title, Summary, Description string
		}
		Tags       []struct{ Name, Description string }
		Paths      map[string]map[string]*operation
		Components struct {
			Responses ordered[reply]
			Schemas   ordered[*schema]
		}
	}
	operation struct {
		OperationID, Summary, Description string
		Tags                              []string
		Roles                             []Role `json:"x-roles"`
		Parameters                        []parameterDoc
		RequestBody                       struct {
			Required bool
			Content  ordered[media]
		}
		Responses ordered[reply]
	}
	parameterDoc struct {
		Name, In, Description string
		Required              bool
		Schema                *schema
		Example               json.RawMessage
	}
	reply struct {
		Ref         string `json:"$ref"`
		Description string
		Headers     ordered[struct{ Description string }]
		Content     ordered[media]
	}
	media struct {
		Schema  *schema
		Example json.RawMessage
		Events  ordered[*schema] `json:"x-events"` // the data of each event of a stream
	}
	schema struct {
		Ref                  string `json:"$ref"`
		Type                 string
		Description          string
		Properties           ordered[*schema]
		Required             []string
		Items                *schema
		Enum                 []string
		Minimum, Maximum     *int64
		MinLength, MaxLength *int64
		MaxItems             *int64
		AdditionalProperties values
		Extends              string `json:"x-extends"` // a schema whose properties it has too
	}
)

// values is the schema of the values of a map, or nil. OpenAPI also permits a boolean there, which says nothing of values.
type values struct{ *schema }

// UnmarshalJSON reads the schema, or ignores the boolean.
func (v *values) UnmarshalJSON(text []byte) error {
	if text[0] != '{' {
		return nil
	}
	return json.Unmarshal(text, &v.schema)
}

// An ordered is an object of JSON whose members keep their order.
type ordered[T any] []member[T]

type member[T any] struct {
	Name  string
	Value T
}

// UnmarshalJSON reads an object.
func (o *ordered[T]) UnmarshalJSON(text []byte) error {
	d := json.NewDecoder(bytes.NewReader(text))
	if _, err := d.Token(); err != nil {
		return err
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return err
		}
		var m member[T]
		if err := d.Decode(&m.Value); err != nil {
			return err
		}
		m.Name, _ = name.(string)
		*o = append(*o, m)
	}
	return nil
}

// get returns the member with a name, or the zero value.
func (o ordered[T]) get(name string) (value T, there bool) {
	for _, m := range o {
		if m.Name == name {
			return m.Value, true
		}
	}
	return value, false
}

// named returns the schema that a reference points at, with its name.
func (d *document) named(ref string) (string, *schema, error) {
	name := strings.TrimPrefix(ref, "#/components/schemas/")
	s, there := d.Components.Schemas.get(name)
	if !there {
		return "", nil, fmt.Errorf("openapi.json has no schema %q", ref)
	}
	return name, s, nil
}

// shared returns the answer that a reference points at, with its name.
func (d *document) shared(ref string) (string, reply, error) {
	name := strings.TrimPrefix(ref, "#/components/responses/")
	r, there := d.Components.Responses.get(name)
	if !there {
		return "", reply{}, fmt.Errorf("openapi.json has no response %q", ref)
	}
	return name, r, nil
}
