package httpapi

import (
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
)

// An extract is what a reader takes from an answer.
type extract struct {
	names   []string // of the fields
	ids     []int64  // of jobs
	numbers map[int64]bool
	cursors []string
}

var (
	aJob    = regexp.MustCompile(`job ([0-9]+)`)
	aNumber = regexp.MustCompile(`[0-9]+`)
)

// read finds what is told in JSON, or in the lines of a stream.
func read(text string) extract {
	out := extract{numbers: map[int64]bool{}}
	for _, number := range aNumber.FindAllString(text, -1) {
		if n, err := strconv.ParseInt(number, 10, 64); err == nil {
			out.numbers[n] = true
		}
	}
	for line := range strings.Lines(text) {
		var parsed any
		if json.Unmarshal([]byte(strings.TrimPrefix(strings.TrimSpace(line), "data: ")), &parsed) == nil {
			out.walk("", parsed)
		}
	}
	for _, named := range aJob.FindAllStringSubmatch(text, -1) {
		out.id(named[1])
	}
	return out
}

func (e *extract) id(text string) {
	if id, err := strconv.ParseInt(text, 10, 64); err == nil {
		e.ids = append(e.ids, id)
	}
}

func (e *extract) walk(name string, v any) {
	switch v := v.(type) {
	case map[string]any:
		for name, field := range v {
			e.names = append(e.names, name)
			e.walk(name, field)
		}
	case []any:
		for _, item := range v {
			e.walk(name, item)
		}
	case string:
		switch name {
		case "id", "ids", "job", "last_job":
			e.id(v)
		case "next":
			e.cursors = append(e.cursors, v)
		}
	}
}
