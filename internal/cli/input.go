package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
)

// input is a stream that returns an error when its context ends. A blocked read of a terminal or a pipe cannot be cancelled, so
// it continues into its own buffer until the process exits.
type input struct {
	ctx     context.Context
	from    io.Reader
	pending bytes.Buffer // bytes read but not yet returned
	failed  error
}

// Read implements io.Reader.
func (in *input) Read(p []byte) (int, error) {
	if in.pending.Len() == 0 && in.failed == nil {
		if err := in.fill(); err != nil {
			return 0, err
		}
	}
	if n, _ := in.pending.Read(p); n > 0 {
		return n, nil
	}
	return 0, in.failed
}

func (in *input) fill() error {
	type answer struct {
		text []byte
		err  error
	}
	done := make(chan answer, 1)
	go func() {
		text := make([]byte, 64<<10)
		n, err := in.from.Read(text)
		done <- answer{text[:n], err}
	}()
	select {
	case a := <-done:
		in.pending.Write(a.text)
		in.failed = a.err
		return nil
	case <-in.ctx.Done():
		in.failed = in.ctx.Err()
		return in.failed
	}
}

// readAtMost reads the whole stream. It returns an error if the stream is longer than limit.
func readAtMost(r io.Reader, limit int) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, int64(limit)+1))
	if err == nil && len(text) > limit {
		return nil, fmt.Errorf("longer than %d bytes", limit)
	}
	return text, err
}
