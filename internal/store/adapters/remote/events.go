package remote

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strings"
)

// mostEvent is how long a line, and an event, can be.
const mostEvent = 16 << 10

var errTooLong = errors.New("an event is longer than it can be")

// An event is one of a stream of server-sent events, or a sign of life: then it has neither name nor data.
type event struct{ name, data string }

// events reads a stream of server-sent events, of which the lines end as those of a jq server do: by a line feed, and perhaps by
// carriage returns before it.
type events struct{ lines *bufio.Reader }

func newEvents(r io.Reader) *events { return &events{bufio.NewReaderSize(r, mostEvent)} }

// next is the next event or sign of life. An event that the stream's end cuts off is none.
func (e *events) next() (event, error) {
	var got event
	var data []string
	for size := 0; ; {
		line, err := e.line()
		if err != nil {
			return event{}, err
		}
		if size += len(line); size > mostEvent {
			return event{}, errTooLong
		}
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "" && data != nil:
			got.data = strings.Join(data, "\n")
			return got, nil
		case line == "": // what has no data is no event
			got.name = ""
		case name == "" && data == nil && got.name == "":
			return event{}, nil
		case name == "event":
			got.name = value
		case name == "data":
			data = append(data, value)
		}
	}
}

func (e *events) line() (string, error) {
	line, err := e.lines.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		return "", errTooLong
	}
	if err != nil {
		return "", err
	}
	return string(bytes.TrimRight(line[:len(line)-1], "\r")), nil
}
