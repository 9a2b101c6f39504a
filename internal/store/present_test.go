package store

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/seed-ed332417/jq/internal/bubble"
)

// A clock that is set back again and again is told of once a minute, with the number of jumps in between.
func TestJumpsOfTheClockAreToldOfOnceAMinute(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var said bytes.Buffer
		p := &Present{Logger: slog.New(slog.NewTextHandler(&said, nil))}
		shown := time.Now().UTC()
		jump := func() {
			shown = shown.Add(-time.Hour)
			assert.Equal(t, shown, p.Read(func() time.Time { return shown }))
		}
		p.Read(time.Now)
		jump()
		assert.Contains(t, said.String(), "by=1h0m0s before=0")
		for range 3 {
			<-time.After(time.Second)
			jump()
		}
		assert.Equal(t, 1, strings.Count(said.String(), "\n"))
		<-time.After(time.Minute)
		jump()
		assert.Contains(t, said.String(), "before=3")
		<-time.After(time.Minute)
		jump()
		assert.Equal(t, 3, strings.Count(said.String(), "\n"))
		assert.Equal(t, 2, strings.Count(said.String(), "before=0"), "%s", said.String())
	})
}
