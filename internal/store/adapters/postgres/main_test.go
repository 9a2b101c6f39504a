package postgres

import (
	"os"
	"testing"

	"github.com/seed-ed332417/jq/internal/pgtest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }
