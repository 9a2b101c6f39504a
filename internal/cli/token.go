package cli

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/seed-ed332417/jq/internal/httpapi"
	"github.com/seed-ed332417/jq/internal/wire"
)

func (a *app) token() *cobra.Command {
	return a.group("token", "create, list, rotate and remove tokens for the server",
		a.tokenNew(), a.tokenLs(), a.tokenRm(), a.tokenRotate())
}

func tokensFileFlag(f *pflag.FlagSet, file *string, more string) {
	f.StringVar(file, "file", "tokens", "`FILE` of tokens"+more)
}

const wantExpiry = "want a duration such as 90d or 36h, or a future time such as 2030-01-31T00:00:00Z"

func (a *app) tokenNew() *cobra.Command {
	var want httpapi.Token
	var file, role, expires string
	cmd := &cobra.Command{
		Use:   "new NAME",
		Short: "create a token and print it once",
		Long: "Create a token for NAME, print it, and add its hash to the file that you give to serve --tokens. Nothing stores the token\n" +
			"itself: if you lose it, create another one. Several tokens may share a name. A running server reloads the file.\n\n" +
			"A producer enqueues jobs, and reads a job and its result. A worker claims and finishes jobs. A viewer reads everything\n" +
			"except payloads and lease tokens. An operator may do everything. A token can have several roles. With --queue, the token\n" +
			"has access to matching queues only, and the server answers as if no others existed.",
		Args: takes(1, 1, "a name for the token"),
		Example: "  SELF token new reports-worker --role worker --expires 90d --file tokens\n" +
			"  SELF token new mailer --role producer,worker --queue 'mail-*' --key-prefix mail/",
		Annotations: map[string]string{storeless: ""},
	}
	f := cmd.Flags()
	f.StringVar(&role, "role", "", "`ROLE`: producer, worker, viewer or operator, or several separated by commas")
	f.StringArrayVar(&want.Queues, "queue", nil, "`NAME` of a queue that the token may use, or a prefix followed by *; may be repeated (default: all queues)")
	f.StringVar(&want.KeyPrefix, "key-prefix", "", "`TEXT` that the unique, limit and request keys of its calls must begin with")
	f.Int64Var(&want.MaxWaiting, "max-waiting", 0, "limit of waiting jobs in its queues, above which its enqueue requests are refused; 0 means no limit")
	f.StringVar(&expires, "expires", "never", "`WHEN` the token expires: after 90d or 36h, or at 2030-01-31T00:00:00Z")
	tokensFileFlag(f, &file, " to add the hash to; created if it is missing")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if role == "" {
			return misuse("give --role: producer, worker, viewer or operator")
		}
		end, err := expiry(expires, time.Now())
		if err != nil {
			return err
		}
		want.Name, want.Role, want.Expires = args[0], httpapi.Role(role), end
		secret, entry, err := httpapi.NewToken(want)
		if err != nil {
			return usageError{err}
		}
		err = changeTokens(cmd.Context(), file, func(tokens []httpapi.Token) ([]httpapi.Token, error) { return append(tokens, entry), nil })
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(a.out, secret)
		return err
	}
	return cmd
}

// expiry parses the value of --expires.
func expiry(text string, now time.Time) (wire.Time, error) {
	if text == "never" {
		return wire.Time{}, nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		length, err := lengthInDays(text)
		if err != nil {
			return wire.Time{}, misuse("--expires %s: %s", text, wantExpiry)
		}
		at = now.Add(length)
	}
	if at = at.UTC().Truncate(time.Second); !at.After(now) || at.Year() > 9999 {
		return wire.Time{}, misuse("--expires %s: %s", text, wantExpiry)
	}
	return wire.Time{Time: at}, nil
}

var days = regexp.MustCompile(`^[0-9]{1,5}d$`)

// lengthInDays parses a duration such as 36h, or a number of days such as 90d.
func lengthInDays(text string) (time.Duration, error) {
	if !days.MatchString(text) {
		return time.ParseDuration(text)
	}
	n, err := strconv.Atoi(text[:len(text)-1])
	return time.Duration(n) * 24 * time.Hour, err
}

// idLength is how many digits of its hash identify a token.
const idLength = 8

func idOf(t httpapi.Token) string { return t.Hash[:idLength] }

func (a *app) tokenLs() *cobra.Command {
	var file string
	var asJSON bool
	cmd := &cobra.Command{
		Use: "ls", Short: "list the tokens in a file", Args: takesNone(), Annotations: map[string]string{storeless: ""},
	}
	tokensFileFlag(cmd.Flags(), &file, "")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.RunE = func(*cobra.Command, []string) error {
		tokens, err := parseTokens(file)
		if err != nil {
			return err
		}
		return a.listTokens(tokens.All(), asJSON, time.Now())
	}
	return cmd
}

func (a *app) listTokens(tokens []httpapi.Token, asJSON bool, now time.Time) error {
	type listed struct {
		ID      string       `json:"id"`
		Name    string       `json:"name"`
		Role    httpapi.Role `json:"role"`
		Queues  []string     `json:"queues,omitempty"`
		Prefix  string       `json:"key_prefix,omitempty"`
		Expires wire.Time    `json:"expires,omitzero"`
		Expired bool         `json:"expired"`
	}
	all := []listed{}
	for _, t := range tokens {
		all = append(all, listed{idOf(t), t.Name, t.Role, t.Queues, t.KeyPrefix, t.Expires, t.Expired(now)})
	}
	if asJSON {
		return wire.Encode(a.out, map[string][]listed{"tokens": all})
	}
	table := newTable(a.out)
	row(table, "id", "name", "role", "queues", "keys", "expires")
	for _, t := range all {
		when := moment(t.Expires.Time)
		switch {
		case t.Expired:
			when += " (EXPIRED)"
		case when == "":
			when = "never"
		}
		queues := "all"
		if len(t.Queues) > 0 {
			queues = strings.Join(t.Queues, ", ")
		}
		row(table, t.ID, t.Name, t.Role, queues, t.Prefix+"*", when)
	}
	return table.Flush()
}

func (a *app) tokenRm() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "rm NAME|ID",
		Short: "remove all tokens of a name, or the token with an id",
		Long: "Remove all tokens of a name, or the token with an id that token ls shows. A running server refuses them within seconds and\n" +
			"ends their waiting requests.",
		Args:        takes(1, 1, "the name or id of a token"),
		Annotations: map[string]string{storeless: ""},
	}
	tokensFileFlag(cmd.Flags(), &file, "")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var gone, stay []httpapi.Token
		err := changeTokens(cmd.Context(), file, func(tokens []httpapi.Token) ([]httpapi.Token, error) {
			var err error
			gone, stay, err = choose(tokens, args[0])
			return stay, err
		})
		if err != nil {
			return err
		}
		for _, t := range gone {
			fmt.Fprintf(a.out, "removed token %s of %s\n", idOf(t), printable(t.Name))
		}
		if len(stay) == 0 {
			fmt.Fprintf(a.std.err, "%s contains no tokens now: a running server refuses every request, and no server starts with it\n", printable(file))
		}
		return nil
	}
	return cmd
}

// choose splits the tokens into those with the name, or else with the id, and the others.
func choose(tokens []httpapi.Token, name string) (chosen, others []httpapi.Token, err error) {
	for _, is := range []func(httpapi.Token) bool{
		func(t httpapi.Token) bool { return t.Name == name },
		func(t httpapi.Token) bool { return idOf(t) == name },
	} {
		chosen, others = nil, nil
		for _, t := range tokens {
			if is(t) {
				chosen = append(chosen, t)
			} else {
				others = append(others, t)
			}
		}
		if len(chosen) > 0 {
			return chosen, others, nil
		}
	}
	return nil, nil, fmt.Errorf("there is no token with the name or id %q: see token ls", name)
}

func (a *app) tokenRotate() *cobra.Command {
	var file, expires string
	var overlap time.Duration
	cmd := &cobra.Command{
		Use:   "rotate NAME",
		Short: "replace the tokens of a name with a new one",
		Long: "Create a token with the same rights as the tokens of NAME, and print it. The old tokens expire after the overlap, so that\n" +
			"you have time to distribute the new one.",
		Args:        takes(1, 1, "the name of the tokens"),
		Example:     "  SELF token rotate reports-worker --overlap 24h --file tokens",
		Annotations: map[string]string{storeless: ""},
	}
	f := cmd.Flags()
	f.DurationVar(&overlap, "overlap", 24*time.Hour, "how long the old tokens stay valid")
	f.StringVar(&expires, "expires", "never", "`WHEN` the new token expires: after 90d or 36h, or at 2030-01-31T00:00:00Z; you must give it\nif an old token expires")
	tokensFileFlag(f, &file, "")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		now := time.Now()
		end, err := expiry(expires, now)
		if err != nil {
			return err
		}
		if overlap < 0 {
			return misuse("--overlap %v: want 0s or more", overlap)
		}
		r := rotation{name: args[0], now: now, ends: now.Add(overlap), expires: end, given: cmd.Flags().Changed("expires")}
		secret, err := r.in(cmd.Context(), file)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(a.out, secret)
		return err
	}
	return cmd
}

// A rotation replaces the tokens of a name with a new one.
type rotation struct {
	name    string
	now     time.Time
	ends    time.Time // when the old tokens expire
	expires wire.Time // when the new token expires
	given   bool      // --expires was given
}

func (r rotation) in(ctx context.Context, file string) (secret string, err error) {
	err = changeTokens(ctx, file, func(tokens []httpapi.Token) ([]httpapi.Token, error) {
		var entry httpapi.Token
		secret, entry, err = r.renew(tokens)
		return append(tokens, entry), err
	})
	return secret, err
}

// renew sets the expiry of the old tokens and creates the new one.
func (r rotation) renew(tokens []httpapi.Token) (string, httpapi.Token, error) {
	old := -1
	for i, t := range tokens {
		if t.Name != r.name {
			continue
		}
		if old >= 0 && !t.SameRights(tokens[old]) {
			return "", t, fmt.Errorf("the tokens of %s have different rights: create another with token new, and remove the old ones by id", r.name)
		}
		if !t.Expires.IsZero() && !t.Expired(r.now) && !r.given {
			return "", t, misuse("a token of %s expires: give --expires for the new token, or --expires never", r.name)
		}
		if t.Expires.IsZero() || t.Expires.After(r.ends) {
			tokens[i].Expires = wire.Time{Time: r.ends.UTC().Truncate(time.Second)}
		}
		old = i
	}
	if old < 0 {
		return "", httpapi.Token{}, fmt.Errorf("there is no token of %s: create one with token new", r.name)
	}
	entry := tokens[old]
	entry.Expires = r.expires
	return httpapi.NewToken(entry)
}
