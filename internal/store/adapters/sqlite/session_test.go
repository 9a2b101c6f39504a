package sqlite

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A connection that prepares its statements says what is wrong with one that it cannot prepare, in each of its methods.
func TestAStatementThatCannotBePreparedFails(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	conn, err := s.callers.Connx(t.Context())
	require.NoError(t, err)
	p := newPrepared(conn)
	defer p.discard()
	var one int
	require.NoError(t, p.QueryRowContext(t.Context(), `SELECT 1`).Scan(&one))
	assert.Equal(t, 1, one)

	_, err = p.ExecContext(t.Context(), `SELEKT 1`)
	assert.ErrorContains(t, err, "syntax error")
	_, err = p.QueryContext(t.Context(), `SELEKT 1`)
	assert.ErrorContains(t, err, "syntax error")
	assert.ErrorContains(t, p.QueryRowContext(t.Context(), `SELEKT 1`).Scan(&one), "syntax error")
	ended, end := context.WithCancel(t.Context())
	end()
	assert.ErrorIs(t, p.QueryRowContext(ended, `SELECT 2`).Scan(&one), context.Canceled)
}
