package main

import (
	"bufio"
	"bytes"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/lib/pq"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/pgtest"
)

// The test binary is also the shop that these tests kill.
const runShop = "SHOP_TEST_RUN"

func TestMain(m *testing.M) {
	if os.Getenv(runShop) != "" {
		main()
		return
	}
	os.Exit(pgtest.Main(m))
}

// A process is a running shop.
type process struct {
	*exec.Cmd
	url, said string // said is the line with which it opens
}

func start(t *testing.T, args ...string) *process {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	p := &process{Cmd: exec.CommandContext(t.Context(), self, append([]string{"-addr", "127.0.0.1:0"}, args...)...)}
	p.Env = append(os.Environ(), runShop+"=1")
	p.Stderr = t.Output()
	out, err := p.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, p.Start())
	p.said, err = bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err, "the shop opens")
	p.url = strings.TrimSuffix(strings.Fields(p.said)[5], ";")
	return p
}

// end closes the shop as a service manager does.
func (p *process) end(t *testing.T) {
	t.Helper()
	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	require.NoError(t, p.Wait(), "a shop that is told to close ends well")
}

// order places an order, and returns what was answered. Like any client it repeats an order after a 503, as on a machine that is too busy.
func (p *process) order(t *testing.T, document string) (status int, o order) {
	t.Helper()
	for bound := time.Now().Add(time.Minute); ; {
		res, err := http.Post(p.url+"/orders", "application/json", strings.NewReader(document))
		require.NoError(t, err)
		if status, o = decoded(t, res); status != http.StatusServiceUnavailable || time.Now().After(bound) {
			return status, o
		}
	}
}

func (p *process) get(t *testing.T, id int64) (status int, o order) {
	t.Helper()
	res, err := http.Get(fmt.Sprintf("%s/orders/%d", p.url, id))
	require.NoError(t, err)
	return decoded(t, res)
}

func decoded(t *testing.T, res *http.Response) (status int, o order) {
	t.Helper()
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	if res.StatusCode < 300 {
		require.NoError(t, json.Unmarshal(body, &o), "%s", body)
	}
	return res.StatusCode, o
}

// A slowBank charges at once. The answers to all charges after the first few are held back until it is let go.
type slowBank struct {
	*httptest.Server
	quick int
	free  chan struct{} // closed when it answers everybody

	mu    sync.Mutex
	asked map[string][]string // the idempotency keys, by card
	calls int
}

func newSlowBank(t *testing.T, quick int) *slowBank {
	t.Helper()
	b := &slowBank{quick: quick, free: make(chan struct{}), asked: map[string][]string{}}
	b.Server = httptest.NewServer(b)
	t.Cleanup(b.Close)
	return b
}

func (b *slowBank) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	var charge struct{ Card string }
	body, _ := io.ReadAll(r.Body) // to its end, so that the server notices when the caller is killed
	if err := json.NewDecoder(bytes.NewReader(body)).Decode(&charge); err != nil {
		panic(err)
	}
	b.mu.Lock()
	b.asked[charge.Card] = append(b.asked[charge.Card], r.Header.Get("Idempotency-Key"))
	b.calls++
	held := b.calls > b.quick
	b.mu.Unlock()
	if held {
		select {
		case <-b.free:
		case <-r.Context().Done():
		}
	}
}

func (b *slowBank) heard() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.calls
}

// A shop is killed while the bank has charged cards and not yet said so. When it starts again, each order that it has acknowledged is
// shipped, no card is charged twice, and clients that order again get the orders that they have.
func killed(t *testing.T, database string) {
	const orders, quick = 12, 4
	bank := newSlowBank(t, quick)
	args := []string{"-database", database, "-bank", bank.URL, "-lease", "2s"}
	p := start(t, args...)
	document := func(i int) string { return fmt.Sprintf(`{"customer":"c%d","item":"cup","card":"card-%d"}`, i, i) }
	ids := map[int]int64{}
	for i := range orders {
		status, o := p.order(t, document(i))
		require.Equal(t, http.StatusCreated, status)
		ids[i] = o.ID
	}
	require.Eventually(t, func() bool { return bank.heard() >= quick+3 }, time.Minute, time.Millisecond, "the bank holds back answers")
	require.NoError(t, p.Process.Kill())
	require.Error(t, p.Wait())
	close(bank.free)

	p = start(t, args...)
	for i := range orders {
		status, o := p.order(t, document(i))
		assert.Equal(t, http.StatusOK, status)
		assert.Equal(t, ids[i], o.ID, "the order that the client has")
	}
	for i := range orders {
		require.Eventually(t, func() bool {
			_, o := p.get(t, ids[i])
			return o.State == shipped
		}, time.Minute, 10*time.Millisecond, "order %d is shipped", ids[i])
	}
	status, _ := p.get(t, orders+1)
	assert.Equal(t, http.StatusNotFound, status, "nothing was ordered twice")
	p.end(t)

	twice := 0
	require.Len(t, bank.asked, orders)
	for i := range orders {
		keys := bank.asked[fmt.Sprintf("card-%d", i)]
		for _, key := range keys {
			assert.Equal(t, fmt.Sprintf("order-%d", ids[i]), key, "all charges of a card have one key, so the bank charges once")
		}
		if len(keys) > 1 {
			twice++
		}
	}
	assert.Positive(t, twice, "the shop was killed in the middle of a charge")
}

func TestAKilledShopLosesNoOrderAndChargesNoneTwiceOnSQLite(t *testing.T) {
	t.Parallel()
	killed(t, filepath.Join(t.TempDir(), "shop.db"))
}

func TestAKilledShopLosesNoOrderAndChargesNoneTwiceOnPostgres(t *testing.T) {
	t.Parallel()
	killed(t, newDatabase(t))
}

// newDatabase returns the URL of an empty Postgres database.
func newDatabase(t *testing.T) string {
	t.Helper()
	config, err := pq.NewConfig(pgtest.DSN(t))
	require.NoError(t, err)
	db, err := sql.Open("postgres", pgtest.DSN(t))
	require.NoError(t, err)
	name := fmt.Sprintf("shop_%d", time.Now().UnixNano())
	_, err = db.ExecContext(t.Context(), "CREATE DATABASE "+name)
	require.NoError(t, err)
	t.Cleanup(func() {
		_, err := db.Exec("DROP DATABASE " + name + " WITH (FORCE)")
		assert.NoError(t, err)
		assert.NoError(t, db.Close())
	})
	where := url.URL{Scheme: "postgres", User: url.User(config.User), Path: "/" + name, RawQuery: url.Values{
		"host": {config.Host}, "port": {strconv.Itoa(int(config.Port))}, "sslmode": {"disable"},
	}.Encode()}
	if config.Password != "" {
		where.User = url.UserPassword(config.User, config.Password)
	}
	return where.String()
}

// A shop that is told to close while it charges a card waits for the bank.
func TestAShopThatClosesFinishesWhatItDoes(t *testing.T) {
	t.Parallel()
	bank := newSlowBank(t, 0)
	file := filepath.Join(t.TempDir(), "shop.db")
	p := start(t, "-database", file, "-bank", bank.URL)
	_, o := p.order(t, `{"customer":"ada","item":"cup","card":"card-1"}`)
	require.Eventually(t, func() bool { return bank.heard() > 0 }, time.Minute, time.Millisecond, "the bank is asked")
	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	require.Eventually(t, func() bool {
		res, err := http.Get(p.url + "/healthz")
		if err == nil {
			_ = res.Body.Close()
		}
		return err != nil
	}, time.Minute, time.Millisecond, "the shop takes no more orders")
	close(bank.free)
	require.NoError(t, p.Wait())

	db, err := open(t.Context(), file)
	require.NoError(t, err)
	defer db.Close()
	kept, err := (&table{db.DB()}).get(t.Context(), o.ID)
	require.NoError(t, err)
	assert.Equal(t, paid, kept.State)
}

func TestTheSalesOfADay(t *testing.T) {
	t.Parallel()
	for name, where := range map[string]string{"SQLite": filepath.Join(t.TempDir(), "shop.db"), "Postgres": newDatabase(t)} {
		t.Run(name, func(t *testing.T) {
			db, err := open(t.Context(), where)
			require.NoError(t, err)
			defer db.Close()
			orders, o := &table{db.DB()}, order{Customer: "ada", Item: "cup", Cents: 600, State: placed}
			from := time.Now()
			for range 3 {
				tx, err := orders.BeginTxx(t.Context(), nil)
				require.NoError(t, err)
				require.NoError(t, orders.insert(t.Context(), tx, &o))
				require.NoError(t, tx.Commit())
			}
			require.NoError(t, orders.refuse(t.Context(), o.ID))
			day, err := orders.sold(t.Context(), from, from.Add(24*time.Hour))
			require.NoError(t, err)
			assert.Equal(t, sales{Orders: 2, Cents: 1200}, day, "without the order that was refused")
			before, err := orders.sold(t.Context(), from.Add(-24*time.Hour), from.Add(-time.Millisecond))
			require.NoError(t, err)
			assert.Equal(t, sales{}, before)
		})
	}
}

func TestWhatCanNotBeOrderedIsRefused(t *testing.T) {
	t.Parallel()
	p := start(t, "-database", filepath.Join(t.TempDir(), "shop.db"))
	for document, want := range map[string]int{
		`{"customer":"ada","item":"car"}`:     http.StatusUnprocessableEntity,
		`{"customer":"Ada/","item":"cup"}`:    http.StatusUnprocessableEntity,
		`{"customer":`:                        http.StatusBadRequest,
		`"` + strings.Repeat("a", 2000) + `"`: http.StatusBadRequest,
	} {
		status, _ := p.order(t, document)
		assert.Equal(t, want, status, document)
	}
	for path, want := range map[string]int{"/orders/1": http.StatusNotFound, "/orders/x": http.StatusNotFound, "/healthz": http.StatusOK} {
		res, err := http.Get(p.url + path)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		assert.Equal(t, want, res.StatusCode, path)
	}
	p.end(t)
}
