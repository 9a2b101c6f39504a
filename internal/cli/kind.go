package cli

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/seed-ed332417/jq"
)

// A Kind is a kind of store beside those that the command always has. A main outside this module gives it to Main, so that this module needs
// nothing that the kind links.
type Kind struct {
	Name    string   // for messages, such as etcd
	Schemes []string // that its URLs begin with
	Form    string   // of a URL, for help and messages
	Flags   string   // what the form can have besides, for help

	// Check refuses a URL. It opens nothing, and its error does not quote the URL, which may have a password anywhere.
	Check func(url string) error

	// Open opens the store at a URL that Check has taken.
	Open func(ctx context.Context, url string, options Options) (jq.Store, error)

	// What people do instead of the commands backup and restore, as in: run pg_dump.
	Backup, Restore string
}

// Options are what the command's flags say about the stores of a Kind.
type Options struct {
	MaxLease  time.Duration // zero means the default
	NoMigrate bool          // open no store that does not exist
	Logger    *slog.Logger
}

// elsewhere are schemes of stores that another main opens, and the package of its command.
var elsewhere = map[string]string{
	"etcd":  "github.com/seed-ed332417/jq/etcd/cmd/jobq",
	"etcds": "github.com/seed-ed332417/jq/etcd/cmd/jobq",
	"tikv":  "github.com/seed-ed332417/jq/tikv/cmd/jobq",
}

// kinds are those that a main has added.
type kinds []Kind

// of returns the kind of a scheme, or nil.
func (all kinds) of(scheme string) *Kind {
	for i := range all {
		if slices.Contains(all[i].Schemes, scheme) {
			return &all[i]
		}
	}
	return nil
}

// forms says what URLs of stores look like, for the help of the flag.
func (all kinds) forms() string {
	forms := []string{storeForms}
	for _, k := range all {
		forms = append(forms, k.Form+k.Flags)
	}
	return strings.Join(forms, ",\nor ")
}

// want says it for error messages.
func (all kinds) want() string {
	forms := []string{"memory:", "sqlite:PATH", "postgres://USER@HOST/DATABASE"}
	for _, k := range all {
		forms = append(forms, k.Form)
	}
	last := len(forms) - 1
	return "want " + strings.Join(forms[:last], ", ") + " or " + forms[last]
}

// place returns the place that a URL of the kind names.
func (k *Kind) place(text string) (place, error) {
	if err := k.Check(text); err != nil {
		return place{}, fmt.Errorf("not the URL of a store on %s: %w; want %s", k.Name, err, k.Form)
	}
	return place{kind: addedKind, added: k, dsn: text, shown: withoutSecrets(text)}, nil
}

// withoutSecrets returns a URL without its password and parameters.
func withoutSecrets(text string) string {
	text, _, _ = strings.Cut(text, "?")
	scheme, rest, _ := strings.Cut(text, "://")
	hosts, path, named := strings.Cut(rest, "/")
	if at := strings.LastIndexByte(hosts, '@'); at >= 0 {
		user, _, _ := strings.Cut(hosts[:at], ":")
		hosts = user + hosts[at:]
	}
	if named {
		hosts += "/" + path
	}
	return strings.ToLower(scheme) + "://" + hosts
}

// openAdded opens a store of a kind that a main has added.
func (a *app) openAdded(ctx context.Context, p place, makes bool) (jq.Store, error) {
	s, err := p.added.Open(ctx, p.dsn, Options{MaxLease: a.longest, NoMigrate: !makes, Logger: a.logger(slog.LevelInfo)})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.shown, err)
	}
	return s, nil
}
