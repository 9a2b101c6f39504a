package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"

	"github.com/seed-ed332417/jq/internal/httpapi"
)

// parseTokens reads and parses a file of tokens.
func parseTokens(file string) (*httpapi.Tokens, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("%w: create it with token new", err)
	}
	return tokensIn(file, text)
}

func tokensIn(file string, text []byte) (*httpapi.Tokens, error) {
	tokens, err := httpapi.ReadTokens(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return tokens, nil
}

// tokensLockTimeout is how long a command waits while another changes the same file.
const tokensLockTimeout = 10 * time.Second

// changeTokens changes the tokens in a file, and creates the file if it is missing. It replaces the file atomically: a reader sees
// either the old or the new content. A lock serializes commands that change the same file.
func changeTokens(ctx context.Context, file string, change func([]httpapi.Token) ([]httpapi.Token, error)) error {
	if target, err := filepath.EvalSymlinks(file); err == nil {
		file = target
	}
	ctx, cancel := context.WithTimeout(ctx, tokensLockTimeout)
	defer cancel()
	lock := flock.New(file+".lock", flock.SetPermissions(0o600))
	if _, err := lock.TryLockContext(ctx, 10*time.Millisecond); err != nil {
		return fmt.Errorf("another command is changing %s: %w", file, err)
	}
	defer func() { _ = lock.Close() }() // the lock also ends with the process
	tokens, err := parseTokens(file)
	if errors.Is(err, fs.ErrNotExist) {
		tokens, err = &httpapi.Tokens{}, nil
	}
	if err != nil {
		return err
	}
	changed, err := change(tokens.All())
	if err != nil {
		return err
	}
	var text bytes.Buffer
	for _, t := range changed {
		text.Write(t.Line())
	}
	if _, err := tokensIn(file, text.Bytes()); err != nil { // a server would refuse the file
		return err
	}
	return replaceSecret(file, text.Bytes())
}

// replaceSecret replaces the file atomically. Only the owner can read the new file, and the group if it could read the old one.
func replaceSecret(file string, text []byte) error {
	mode := fs.FileMode(0o600)
	before, err := os.Stat(file)
	if err == nil {
		mode |= before.Mode() & 0o040
	}
	part, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+"-*")
	if err != nil {
		return err
	}
	err = errors.Join(keepOwner(part, before), part.Chmod(mode), write(part, text), part.Close())
	if err == nil {
		err = os.Rename(part.Name(), file)
	}
	if err != nil {
		return errors.Join(err, os.Remove(part.Name()))
	}
	return syncFolder(filepath.Dir(file))
}

func write(f *os.File, text []byte) error {
	if _, err := f.Write(text); err != nil {
		return err
	}
	return f.Sync()
}
