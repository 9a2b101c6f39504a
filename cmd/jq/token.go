package main

import (
	"bytes"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/seed-ed332417/jq/internal/httpapi"
)

func (a *app) token() *cobra.Command {
	return a.group("token", "make tokens for those who use the server", a.tokenNew())
}

func (a *app) tokenNew() *cobra.Command {
	var want httpapi.Token
	var file, role string
	cmd := &cobra.Command{
		Use:   "new NAME",
		Short: "make a token, and print it this once",
		Long: "Make a token for NAME, print it, and add its hash to a file that serve reads by --tokens. The token itself is kept\n" +
			"nowhere: who loses it gets another one. To take a token back, remove its line and start the server anew.\n\n" +
			"A producer enqueues, and looks at a job and its result; a worker claims and finishes jobs; a viewer reads, but neither\n" +
			"payloads nor tokens of leases; an operator may do everything. A token can have several roles, and be for some queues\n" +
			"alone: what is in others is then not there for it.",
		Args: takes(1, 1, "who will have the token"),
		Example: "  SELF token new reports-worker --role worker --file tokens\n" +
			"  SELF token new mailer --role producer,worker --queue 'mail-*' --key-prefix mail/",
		Annotations: map[string]string{storeless: ""},
	}
	f := cmd.Flags()
	f.StringVar(&role, "role", "", "`ROLE`: producer, worker, viewer or operator, or several with commas")
	f.StringArrayVar(&want.Queues, "queue", nil, "`NAME` of a queue that it is for, or the beginning of names with a * behind it; may be repeated; all if left out")
	f.StringVar(&want.KeyPrefix, "key-prefix", "", "`TEXT` with which its unique keys and request keys must begin")
	f.StringVar(&file, "file", "tokens", "`FILE` to add its hash to; it is made if it is missing")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		if role == "" {
			return misuse("say what the token is for by --role: producer, worker, viewer or operator")
		}
		want.Name, want.Role = args[0], httpapi.Role(role)
		secret, entry, err := httpapi.NewToken(want)
		if err != nil {
			return usageError{err}
		}
		if err := addToken(file, entry); err != nil {
			return err
		}
		_, err = fmt.Fprintln(a.out, secret)
		return err
	}
	return cmd
}

// addToken adds a line to the file, unless the server would refuse the file then.
func addToken(file string, entry httpapi.Token) error {
	f, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // closed below where that matters
	kept, err := io.ReadAll(f)
	if err != nil {
		return err
	}
	line := entry.Line()
	if len(kept) > 0 && !bytes.HasSuffix(kept, []byte("\n")) { // somebody has edited it
		line = append([]byte("\n"), line...)
	}
	if _, err := httpapi.ReadTokens(bytes.NewReader(append(kept, line...))); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if _, err := f.Write(line); err != nil {
		return err
	}
	return f.Close()
}
