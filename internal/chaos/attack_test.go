//go:build unix

package chaos

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	crand "crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/internal/figures"
	"github.com/seed-ed332417/jq/internal/pgtest"
	"github.com/seed-ed332417/jq/internal/race"
	"github.com/seed-ed332417/jq/remote"
)

const (
	envAttack    = "JQ_ATTACK_LENGTH" // for how long the hostile clients attack, if not for
	attackLength = 30 * time.Second
	turns        = 3               // the attack comes in as many parts
	aloneFor     = 5 * time.Second // the honest clients work before the first part, and after the last
	triesAfter   = 6               // so often they do after the last, until they are as fast as they must be
	pausedFor    = 4 * time.Second // the hostile clients stand still between two parts

	hostileClients = 200
	mostMemory     = 512 << 20 // of the server
	leastRate      = 0.5       // of the honest clients beside the hostile ones, of what they have alone
)

// A server under attack by 200 hostile connections, with a token of each role and without, keeps within 512 MiB, and honest clients keep
// half of their rate (D11, D12, D18, D21). A machine that others use too may have another pace in each minute: the attack comes in
// three parts, each is compared with what the honest clients have just before it and just after, and the middle one of the three counts.
//
// The hostile clients are one process that runs only while a processor has nothing else to do, and share a network of one gigabit a second:
// real ones have processors of their own, and these would take those of the server. What the server does for them counts in full. The disk
// of a virtual machine can be slower while the processors work, whatever they do: so they always do, also while the honest clients are alone.
func TestAttackOnSQLite(t *testing.T) {
	attacked(t, func(folder string) string { return "sqlite:" + filepath.Join(folder, "jobs.db") })
}

// TestAttackOnPostgres is the same on Postgres.
func TestAttackOnPostgres(t *testing.T) {
	attacked(t, func(string) string {
		c, err := pgtest.Start(t.Context(), pgtest.Options{Network: true})
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, c.Stop()) })
		port := regexp.MustCompile(`port=(\d+)`).FindStringSubmatch(c.TCP)
		return (&url.URL{Scheme: "postgres", User: url.User("postgres"), Host: "127.0.0.1:" + port[1], Path: "/postgres", RawQuery: "sslmode=disable"}).String()
	})
}

// A siege is one attack on one server.
type siege struct {
	*testing.T
	folder string
	binary string
	tokens map[string]string // by name
	roots  *x509.CertPool
	server *exec.Cmd
	url    string
	honest *honest
	seed   uint64
}

func attacked(t *testing.T, store func(folder string) string) {
	t.Helper()
	switch {
	case runtime.GOOS != "linux":
		t.Skip("the memory of another process is read from /proc, which Linux has")
	case race.Enabled:
		t.Skip("left out under the race detector: the server is built without it, and memory and pace of the clients are others there")
	}
	s := &siege{T: t, folder: t.TempDir(), tokens: map[string]string{}, honest: newHonest(), seed: seedOf(t)}
	t.Logf("%s=%d has the same attacks again", envSeed, s.seed)
	s.build()
	s.certify()
	for _, role := range []string{asProducer, asWorker, asViewer, asOperator} {
		s.grant("hostile-"+role, role)
	}
	for _, role := range []string{asProducer, asWorker} {
		s.grant(role, role)
	}
	s.serve(store(s.folder))
	s.withstand()
}

// withstand measures the honest clients alone, beside the hostile ones in turn with a pause of these, and alone again.
func (s *siege) withstand() {
	s.Helper()
	length, err := time.ParseDuration(cmp.Or(os.Getenv(envAttack), attackLength.String()))
	require.NoError(s, err, envAttack)
	require.GreaterOrEqual(s, length, turns*time.Second, envAttack)
	s.occupy()
	rest := s.work()
	require.Eventually(s, func() bool { return s.honest.done() > 0 }, patience, 10*time.Millisecond, "the honest clients begin")
	alone, beside := [][]float64{s.honest.rates(aloneFor)}, [][]float64{}
	atFirst := s.memory("VmHWM")
	hostile, end := s.attack()
	for i := range turns {
		if i > 0 {
			require.NoError(s, hostile.Signal(syscall.SIGSTOP))
			alone = append(alone, s.honest.rates(pausedFor)[1:]) // in its first second the server ends what it had of the attack
			require.NoError(s, hostile.Signal(syscall.SIGCONT))
		}
		beside = append(beside, s.honest.rates(length/turns))
	}
	made := end()
	s.answers() // it may have to end what the attack has left
	alone = append(alone, s.afterwards(leastRate*middle(alone[0])))
	rest()
	s.judge(made, alone, beside, atFirst)
}

// afterwards returns rates after the attack that are as high as they must be, or those of the last try. Something else may be at work on the machine for a
// while.
func (s *siege) afterwards(least float64) (rates []float64) {
	for range triesAfter {
		if rates = s.honest.rates(aloneFor); middle(rates) >= least {
			break
		}
	}
	return rates
}

// work lets the honest clients work. The function that it returns ends that when every job is finished.
func (s *siege) work() (rest func()) {
	s.Helper()
	producing, stopProducing := context.WithCancel(context.WithoutCancel(s.Context()))
	working, stopWorking := context.WithCancel(context.WithoutCancel(s.Context()))
	s.Cleanup(stopProducing)
	s.Cleanup(stopWorking)
	var producer, workers sync.WaitGroup
	own := s.open(asProducer)
	producer.Go(func() { s.honest.produce(producing, own) })
	for i := range 2 {
		own := s.open(asWorker)
		workers.Go(func() { s.honest.work(working, own, fmt.Sprintf("honest %d", i+1)) })
	}
	return func() {
		stopProducing()
		producer.Wait()
		assert.Eventually(s, func() bool { return s.honest.ahead() == 0 }, patience, 10*time.Millisecond, "every job is finished")
		stopWorking()
		workers.Wait()
	}
}

// open is the store as who has the token reaches it.
func (s *siege) open(name string) jq.Store {
	s.Helper()
	own, err := remote.Open(s.Context(), s.url, &remote.Options{Token: s.tokens[name], TLS: &tls.Config{RootCAs: s.roots}})
	require.NoError(s, err)
	s.Cleanup(func() { assert.NoError(s, own.Close()) })
	return own
}

// attack starts the process of the hostile clients. The function that it returns ends it.
func (s *siege) attack() (hostile *os.Process, end func() tally) {
	s.Helper()
	self, err := os.Executable()
	require.NoError(s, err)
	told := orders{Address: strings.TrimPrefix(s.url, "https://"), Tokens: map[string]string{}, Seed: s.seed, Clients: hostileClients}
	for name, token := range s.tokens {
		if role, ok := strings.CutPrefix(name, "hostile-"); ok {
			told.Tokens[role] = token
		}
	}
	text, err := json.Marshal(told)
	require.NoError(s, err)
	cmd := atRest(self)
	cmd.Env = append(os.Environ(), envName+"="+hostileName, envHostile+"="+string(text))
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	in, err := cmd.StdinPipe()
	require.NoError(s, err)
	require.NoError(s, cmd.Start())
	var once sync.Once
	wait := func() {
		once.Do(func() {
			_ = in.Close()
			late := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
			defer late.Stop()
			err = cmd.Wait()
		})
	}
	s.Cleanup(wait)
	return cmd.Process, func() (made tally) {
		wait()
		require.NoError(s, err, "the hostile clients: %s", errs.String())
		require.NoError(s, json.Unmarshal(out.Bytes(), &made))
		return made
	}
}

// occupy keeps processors busy that have nothing else to do, until the test ends.
func (s *siege) occupy() {
	s.Helper()
	self, err := os.Executable()
	require.NoError(s, err)
	cmd := atRest(self)
	cmd.Env = append(os.Environ(), envName+"="+spinnerName)
	in, err := cmd.StdinPipe()
	require.NoError(s, err)
	require.NoError(s, cmd.Start())
	s.Cleanup(func() {
		_ = in.Close()
		late := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
		defer late.Stop()
		assert.NoError(s, cmd.Wait(), "the process that keeps processors busy")
	})
}

// atRest is a command that runs only while a processor has nothing else to do.
func atRest(program string) *exec.Cmd { return exec.Command("chrt", "--idle", "0", program) }

// answers says that the server is ready, within a bound.
func (s *siege) answers() {
	s.Helper()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: s.roots}, DisableKeepAlives: true}, Timeout: 5 * time.Second}
	require.Eventually(s, func() bool {
		resp, err := client.Get(s.url + "/readyz")
		if err != nil {
			return false
		}
		defer func() { _ = resp.Body.Close() }()
		return resp.StatusCode == http.StatusOK
	}, patience, 100*time.Millisecond, "the server is ready after the attack")
}

func (s *siege) judge(made tally, alone, beside [][]float64, atFirst int) {
	s.Helper()
	peak := s.memory("VmHWM")
	shares := make([]float64, turns)
	for i := range shares {
		shares[i] = middle(beside[i]) / middle(slices.Concat(alone[i], alone[i+1]))
	}
	for _, what := range slices.Sorted(maps.Keys(made.Answers)) {
		s.Logf("%5d %s", made.Answers[what], what)
	}
	s.Logf("jobs a second, alone: %.0f; beside: %.0f; shares: %.2f", alone, beside, shares)
	attacksMade, seconds := 0, len(slices.Concat(beside...))
	for _, a := range attacks {
		attacksMade += made.Made[a.name]
		assert.Positive(s, made.Made[a.name], a.name)
	}
	h := s.honest
	h.mu.Lock()
	defer h.mu.Unlock()
	figures.Print(s, "%s, seed %d: %d hostile connections made %d attacks in %d s; the server took up to %d MiB, %d before; honest clients finished "+
		"%.0f jobs a second alone and %.0f %% of them beside them, %d jobs in all, and made %d calls again", s.Name(), s.seed, hostileClients,
		attacksMade, seconds, peak>>20, atFirst>>20, middle(slices.Concat(alone...)), 100*middle(shares), len(h.enqueued), h.refused)
	assert.LessOrEqual(s, peak, mostMemory, "bytes of memory of the server, at the most")
	assert.GreaterOrEqual(s, middle(shares), leastRate, "the share of their rate that honest clients keep: %.2f", shares)
	assert.GreaterOrEqual(s, middle(alone[turns]), leastRate*middle(alone[0]), "jobs a second alone, within half a minute after the attack")
	assert.Empty(s, h.problems)
	assert.Empty(s, made.Surprises[:min(len(made.Surprises), mostProblems)], "%d answers that no attack should have", len(made.Surprises))
	lost := 0
	for id := range h.enqueued {
		if _, ok := h.finished[id]; !ok {
			lost++
		}
	}
	assert.Zero(s, lost, "jobs that were enqueued and not finished")
	counts, err := s.open(asProducer).Count(s.Context(), jq.Filter{Queue: honestQueue})
	require.NoError(s, err)
	require.Len(s, counts.Queues, 1)
	assert.Equal(s, map[jq.State]int64{jq.Succeeded: int64(len(h.enqueued))}, counts.Queues[0].Jobs, "each job has succeeded, and there is no other")
	figures.Count(s, "attacks", attacksMade)
	figures.Count(s, "seconds under attack", seconds)
	figures.Count(s, "jobs", len(h.enqueued))
	figures.Count(s, figures.Lost, lost)
}

// memory is what /proc says of the server, in bytes.
func (s *siege) memory(what string) int {
	s.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.server.Process.Pid))
	require.NoError(s, err)
	found := regexp.MustCompile(what + `:\s+(\d+) kB`).FindSubmatch(text)
	require.NotNil(s, found, "%s of the server, which lives", what)
	n, err := strconv.Atoi(string(found[1]))
	require.NoError(s, err)
	return n << 10
}

// build makes the command.
func (s *siege) build() {
	s.Helper()
	s.binary = filepath.Join(s.folder, "jq")
	output, err := exec.CommandContext(s.Context(), "go", "build", "-o", s.binary, "github.com/seed-ed332417/jq/cmd/jobq").CombinedOutput()
	require.NoError(s, err, "%s", output)
	syscall.Sync() // or what the build has written is written to the disk while rates are measured
}

// grant makes a token.
func (s *siege) grant(name, role string) {
	s.Helper()
	out, err := exec.CommandContext(s.Context(), s.binary, "token", "new", name, "--role", role, "--file", filepath.Join(s.folder, "tokens")).Output()
	require.NoError(s, err)
	s.tokens[name] = strings.TrimSpace(string(out))
}

// certify makes a certificate of this machine.
func (s *siege) certify() {
	s.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), crand.Reader)
	require.NoError(s, err)
	about := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost"}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(crand.Reader, about, about, &key.PublicKey, key)
	require.NoError(s, err)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(s, err)
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	require.NoError(s, os.WriteFile(filepath.Join(s.folder, "cert.pem"), cert, 0o600))
	require.NoError(s, os.WriteFile(filepath.Join(s.folder, "key.pem"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), 0o600))
	s.roots = x509.NewCertPool()
	require.True(s, s.roots.AppendCertsFromPEM(cert))
}

// serve starts the server, and ends it with the test.
func (s *siege) serve(store string) {
	s.Helper()
	in := func(name string) string { return filepath.Join(s.folder, name) }
	cmd := exec.Command(s.binary, "serve", "--store", store, "--addr", "127.0.0.1:0", "--tokens", in("tokens"),
		"--tls-cert", in("cert.pem"), "--tls-key", in("key.pem"), "--recover-every", "1s")
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "GOMEMLIMIT=") || strings.HasPrefix(v, "GOGC=") })
	said, err := cmd.StderrPipe()
	require.NoError(s, err)
	require.NoError(s, cmd.Start())
	lines := bufio.NewScanner(said)
	for lines.Scan() {
		if rest, ok := strings.CutPrefix(lines.Text(), "serving on "); ok {
			s.url, _, _ = strings.Cut(rest, ";")
			break
		}
		s.Logf("serve: %s", lines.Text())
	}
	require.NotEmpty(s, s.url, "the server starts")
	s.server = cmd
	var reading sync.WaitGroup
	log, err := os.Create(in("server.log"))
	require.NoError(s, err)
	reading.Go(func() { _, _ = io.Copy(log, said) })
	s.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		late := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
		defer late.Stop()
		reading.Wait()
		assert.NoError(s, cmd.Wait(), "the server ends as it is told to")
		_ = log.Close()
		if text, err := os.ReadFile(log.Name()); err == nil && s.Failed() {
			s.Logf("the end of what the server said:\n%s", text[max(0, len(text)-4000):])
		}
	})
}
