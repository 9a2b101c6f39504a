package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
)

// confirm asks the user before an action that cannot be undone. Without a terminal it requires yes.
func (a *app) confirm(question string, yes bool) (bool, error) {
	if yes {
		return true, nil
	}
	if !isTerminal(a.std.in) || !isTerminal(a.std.err) {
		return false, misuse("this would %s: add --yes to confirm", question)
	}
	return ask(a.in, a.std.err, question)
}

func ask(in io.Reader, out io.Writer, question string) (bool, error) {
	fmt.Fprintf(out, "%s? [y/N] ", question)
	answer, err := bufio.NewReader(in).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		fmt.Fprintln(out) // the error starts on a new line
		return false, err
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return true, nil
	}
	fmt.Fprintln(out, "nothing was changed")
	return false, nil
}
