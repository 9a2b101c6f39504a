package httpapi

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// The tables that the page makes of schemas.
type (
	tableDoc struct {
		ID, Name string     // of the schema, if it has a name
		Caption  string     // which part of the call it is, if it is not the whole
		Also     string     // a schema whose fields it has too
		Fields   []fieldDoc // none, if its table stands elsewhere
	}
	fieldDoc struct {
		ID, Name string
		In       string // of parameters: path, query or header
		Type     typeDoc
		Required bool
		Answer   bool // it is part of an answer, where what is required is always there
		Text     string
		Limits   string
		Enum     []string // unless the text explains each value
	}
	// A typeDoc is a type in words, with the schema that the words end in, if that has a name.
	typeDoc struct{ Text, Schema string }
)

// tables returns the table of a schema, and those of the objects in it. An object that has its table elsewhere gets none but a link
// from the top.
func (b *pageBuilder) tables(caption string, s *schema) ([]tableDoc, error) {
	t := tableDoc{Caption: caption}
	if s.Ref != "" {
		var err error
		if t.Name, s, err = b.doc.named(s.Ref); err != nil {
			return nil, err
		}
		if b.shown[t.Name] {
			return []tableDoc{t}, nil
		}
		t.ID = "schema-" + t.Name
		b.shown[t.Name] = true
	}
	if s.Properties == nil {
		return nil, nil // text, or any object
	}
	var inherited ordered[*schema]
	if s.Extends != "" {
		_, base, err := b.doc.named("#/components/schemas/" + s.Extends)
		if err != nil {
			return nil, err
		}
		t.Also, inherited = s.Extends, base.Properties
	}
	var below []tableDoc
	for _, p := range s.Properties {
		if _, there := inherited.get(p.Name); there {
			continue
		}
		field, err := b.field(p.Name, p.Value)
		if err != nil {
			return nil, err
		}
		field.Required, field.Answer = slices.Contains(s.Required, p.Name), b.answer
		t.Fields = append(t.Fields, field)
		more, err := b.within(p.Name, p.Value)
		if err != nil {
			return nil, err
		}
		below = append(below, more...)
	}
	return append([]tableDoc{t}, below...), nil
}

// within returns the tables of the objects in a field that have none yet.
func (b *pageBuilder) within(name string, s *schema) ([]tableDoc, error) {
	caption := "In " + name
	if s.Items != nil {
		s, caption = s.Items, "Each of "+name
	}
	if s.Ref != "" {
		ref, _, err := b.doc.named(s.Ref)
		if err != nil || b.shown[ref] {
			return nil, err
		}
	}
	return b.tables(caption, s)
}

func (b *pageBuilder) field(name string, s *schema) (fieldDoc, error) {
	field := fieldDoc{Name: name, Text: s.Description, Enum: unexplained(s), Limits: limits(s)}
	var err error
	field.Type, err = b.typed(s)
	return field, err
}

// unexplained returns the values of a schema, or none if its description names each as code.
func unexplained(s *schema) []string {
	if slices.ContainsFunc(s.Enum, func(value string) bool { return !strings.Contains(s.Description, "`"+value+"`") }) {
		return s.Enum
	}
	return nil
}

// typed says the type of a field. It finds every reference, or fails.
func (b *pageBuilder) typed(s *schema) (typeDoc, error) {
	switch {
	case s.Ref != "":
		name, _, err := b.doc.named(s.Ref)
		return typeDoc{Schema: name}, err
	case s.Items != nil:
		of, err := b.typed(s.Items)
		return typeDoc{"list of " + of.Text, of.Schema}, err
	case s.AdditionalProperties.schema != nil:
		of, err := b.typed(s.AdditionalProperties.schema)
		return typeDoc{"map of " + of.Text, of.Schema}, err
	case s.Type == "":
		return typeDoc{}, fmt.Errorf("a field has neither a type nor a reference")
	}
	return typeDoc{Text: s.Type}, nil
}

// limits says what a value must keep to besides its type.
func limits(s *schema) string {
	var all []string
	if said := between(s.Minimum, s.Maximum); said != "" {
		all = append(all, said)
	}
	if said := between(s.MinLength, s.MaxLength); said != "" {
		all = append(all, said+" characters")
	}
	if s.MaxItems != nil {
		all = append(all, between(nil, s.MaxItems)+" items")
	}
	if s.Items != nil && s.Items.MaxLength != nil {
		all = append(all, between(s.Items.MinLength, s.Items.MaxLength)+" characters each")
	}
	return strings.Join(all, ", ")
}

func between(least, most *int64) string {
	switch {
	case most == nil:
		return "" // every number here is at least something
	case least == nil:
		return "up to " + digits(*most)
	}
	return digits(*least) + " to " + digits(*most)
}

// digits writes a number with its thousands apart.
func digits(n int64) string {
	text := strconv.FormatInt(n, 10)
	for at := len(text) - 3; at > 0 && text[at-1] != '-'; at -= 3 {
		text = text[:at] + "," + text[at:]
	}
	return text
}
