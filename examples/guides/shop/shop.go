// Package shop is an application that enqueues jobs and handles them. Its tests are what the guide docs/guides/testing.md is about.
package shop

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/seed-ed332417/jq"
)

// Welcome is the payload of the mail to a new user.
type Welcome struct{ Name string }

// Kind is part of jq.Payload.
func (Welcome) Kind() string { return "welcome" }

// Reminder is the payload of the mail that follows a day later.
type Reminder struct{ Name string }

// Kind is part of jq.Payload.
func (Reminder) Kind() string { return "reminder" }

// ErrNoName says that a user has no name.
var ErrNoName = errors.New("a user needs a name")

// A Mailer sends mails.
type Mailer interface {
	Send(ctx context.Context, name, text string) error
}

// SignUp welcomes a new user.
func SignUp(ctx context.Context, jobs *jq.Client, name string) error {
	if name == "" {
		return ErrNoName
	}
	_, err := jobs.Enqueue(ctx, Welcome{Name: name}, &jq.EnqueueOptions{Queue: "mail"})
	return err
}

// SignUpTx is SignUp in a transaction of the caller.
func SignUpTx(ctx context.Context, tx *sql.Tx, jobs *jq.Client, name string) error {
	_, err := jobs.EnqueueTx(ctx, tx, Welcome{Name: name}, &jq.EnqueueOptions{Queue: "mail"})
	return err
}

// Handlers returns the handlers of all kinds.
func Handlers(jobs *jq.Client, mailer Mailer) *jq.Handlers {
	var handlers jq.Handlers
	jq.Handle(&handlers, func(ctx context.Context, _ *jq.Run, w Welcome) error {
		if err := mailer.Send(ctx, w.Name, "welcome"); err != nil {
			return err
		}
		_, err := jobs.Enqueue(ctx, Reminder(w), &jq.EnqueueOptions{Queue: "mail", Delay: 24 * time.Hour, UniqueKey: "reminder/" + w.Name})
		return err
	})
	jq.Handle(&handlers, func(ctx context.Context, _ *jq.Run, r Reminder) error {
		return mailer.Send(ctx, r.Name, "reminder")
	})
	return &handlers
}
