package remote

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strings"
)

// mostEvent is the greatest size of a line and of an event, in bytes.
const mostEvent = 16 << 10

var errTooLong = errors.New("an event is longer than it can be")

// An event is one event of a stream of server-sent events. A keepalive is an event without name and data.
type event struct{ name, data string }

// events reads a stream of server-sent events. Its lines must end as a jq server ends them: with a line feed, optionally after
// carriage returns.
type events struct{ lines *bufio.Reader }

func newEvents(r io.Reader) *events { return &events{bufio.NewReaderSize(r, mostEvent)} }

// next returns the next event or keepalive. It drops an event that is cut off by the end of the stream.
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
		case line == "": // a block without data is not an event
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
