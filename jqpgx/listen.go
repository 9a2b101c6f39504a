package jqpgx

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgxpool"
)

// How long a listener waits before it tries another connection, at first and at most.
const (
	soonest = 100 * time.Millisecond
	latest  = 10 * time.Second
)

// A listener listens on a connection that it takes out of a pool for good.
type listener struct{ pool *pgxpool.Pool }

// listen is a Driver's Listen.
func (l listener) listen(ctx context.Context, channel string, connected func(), heard func(payload string)) {
	for pause := soonest; ctx.Err() == nil; pause = min(2*pause, latest) {
		l.once(ctx, channel, func() {
			pause = soonest
			connected()
		}, heard)
		wait := time.NewTimer(pause)
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
		}
	}
}

// once listens until the connection is lost or the context ends.
func (l listener) once(ctx context.Context, channel string, connected func(), heard func(payload string)) {
	acquired, err := l.pool.Acquire(ctx)
	if err != nil {
		return
	}
	conn := acquired.Hijack()
	defer func() {
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
		_ = conn.Close(within)
	}()
	if _, err := conn.Exec(ctx, `LISTEN `+pgx.Identifier{channel}.Sanitize()); err != nil {
		return
	}
	connected()
	for {
		message, err := conn.PgConn().ReceiveMessage(ctx)
		if err != nil {
			return
		}
		if n, ok := message.(*pgproto3.NotificationResponse); ok {
			heard(n.Payload)
		}
	}
}
