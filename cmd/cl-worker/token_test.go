package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/apptainer/imagetest"
	"github.com/cl-slurm/cl-slurm/bridge"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/server"
)

// renew plays a renewal whose tries have the given outcomes, and returns the times of all tries. It ends at the
// first try that has none.
func renew(t *testing.T, first client.TokenLife, outcomes ...any) (tries []time.Duration, log string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		began := time.Now()
		var text strings.Builder
		r := renewal{life: first, log: slog.New(slog.NewTextHandler(&text, nil)), renew: func(context.Context) (client.TokenLife, error) {
			tries = append(tries, time.Since(began))
			if len(tries) > len(outcomes) {
				cancel()
				return client.TokenLife{}, context.Canceled
			}
			if err, failed := outcomes[len(tries)-1].(error); failed {
				return client.TokenLife{}, err
			}
			return outcomes[len(tries)-1].(client.TokenLife), nil
		}}
		r.Run(ctx)
		log = text.String()
	})
	return tries, log
}

func TestTokenIsRenewedAtHalfOfItsLifeUntilTheLast(t *testing.T) {
	t.Parallel()
	const month = 30 * 24 * time.Hour
	tries, log := renew(t, client.TokenLife{Left: 10 * time.Hour, Latest: month},
		client.TokenLife{Left: 10 * time.Hour, Latest: month}, client.TokenLife{Left: 2 * time.Hour, Latest: 3 * time.Hour}, client.TokenLife{Left: time.Hour, Latest: time.Hour})
	if diff := cmp.Diff([]time.Duration{5 * time.Hour, 10 * time.Hour, 11 * time.Hour}, tries); diff != "" || log != "" {
		t.Errorf("%s%s", diff, log)
	}
}

func TestRenewalIsTriedLessAndLessWhileTheServerIsAway(t *testing.T) {
	t.Parallel()
	away := errors.New("no answer")
	long := client.TokenLife{Left: 10 * time.Hour, Latest: 1000 * time.Hour}
	outcomes := slices.Repeat([]any{away}, 12)
	tries, log := renew(t, long, append(outcomes, long)...)
	for i := 1; i <= 12; i++ {
		least := min(time.Second<<(i-1), 5*time.Minute)
		if pause := tries[i] - tries[i-1]; pause < least || pause > least*5/4 {
			t.Errorf("the pause after %d failures is %v, want %v", i, pause, least)
		}
	}
	if after := tries[13] - tries[12]; after != 5*time.Hour {
		t.Errorf("the next one after %v", after)
	}
	if strings.Count(log, "no answer") != 1 || strings.Count(log, "the worker's token was renewed") != 1 {
		t.Error(log)
	}
	short, _ := renew(t, client.TokenLife{Left: 16 * time.Second, Latest: time.Hour}, away, away, away, away)
	if last := short[4] - short[0]; last > 8*time.Second {
		t.Errorf("the fifth try comes %v after the first, which has half of the token's life left", last)
	}
}

// frontDesk stands before a server. Once it is open, it makes the worker renew its token soon, answers some renewals
// in place of the server, and notes the tokens of check-ins.
type frontDesk struct {
	mu      sync.Mutex
	open    bool
	later   time.Duration // how much later it is at the server
	last    float64       // the seconds until the last renewal ends; 0 for those of the server
	away    int           // so many renewals do not reach the server
	renewed int
	checked map[string]int // successful check-ins, by token
	refused int            // requests with an ended token
}

func (f *frontDesk) now() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return time.Now().Add(f.later)
}

// change changes the desk, and returns the number of renewals so far.
func (f *frontDesk) change(by func()) (renewed int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	by()
	return f.renewed
}

// awaitRenewals waits for renewals that begin after this call, and one before.
func (f *frontDesk) awaitRenewals(t *testing.T, change func()) {
	t.Helper()
	before := f.change(change)
	testenv.Await(t, "the token is renewed twice", func() bool { return f.change(func() {}) >= before+2 })
}

func (f *frontDesk) before(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		renewal := r.Method+r.URL.Path == "POST/rest/workers/w/token"
		passes, away := true, false
		f.change(func() {
			passes = !f.open || !renewal && !strings.HasSuffix(r.URL.Path, "/checkin")
			if !passes && renewal && f.away > 0 {
				f.away--
				away = true
			}
		})
		switch {
		case passes:
			h.ServeHTTP(w, r)
			return
		case away:
			http.Error(w, "away", http.StatusBadGateway)
			return
		}
		answer := httptest.NewRecorder()
		h.ServeHTTP(answer, r)
		body := answer.Body.Bytes()
		f.change(func() {
			switch {
			case answer.Code == http.StatusUnauthorized:
				f.refused++
			case answer.Code == http.StatusOK && renewal:
				f.renewed++
				var given codalab.TokenAnswer
				_ = json.Unmarshal(body, &given) // the worker says what is wrong
				given.Seconds = 0.2
				if f.last > 0 {
					given.LatestSeconds = f.last
				}
				body, _ = json.Marshal(given)
			case answer.Code == http.StatusOK:
				f.checked[strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")]++
			}
		})
		w.WriteHeader(answer.Code)
		_, _ = w.Write(body)
	})
}

// TestWorkerOutlivesItsTokenUntilTheTokensAreEnded runs a worker for longer than the token in its environment is
// valid at a real server, whose clock the test moves.
func TestWorkerOutlivesItsTokenUntilTheTokensAreEnded(t *testing.T) {
	t.Parallel()
	testenv.Containers(t) // here, because only the goroutine of the test may skip it
	ctx, cancel := context.WithTimeout(t.Context(), testenv.WaitLimit)
	defer cancel()
	desk := &frontDesk{checked: map[string]int{}}
	address, stop := startChangedServer(t, t.TempDir(), server.Config{Now: desk.now, Hold: 50 * time.Millisecond}, desk.before)
	t.Cleanup(stop)
	api, err := client.New(address, client.Options{
		Credentials: func(context.Context) (string, string, error) { return "ann", scriptPassword, nil },
	})
	must(t, err)
	first, err := api.WorkerToken(ctx, "w", time.Hour)
	must(t, err)
	desk.change(func() { desk.open = true })

	working, stopWork := context.WithCancel(ctx)
	var worker sync.WaitGroup
	worker.Go(func() {
		code, err := workWith(working, t, map[string]string{loginVariable: first + "\n"}, address, time.Now, "--id", "w")
		if code != 0 && code != program.ExitInterrupted {
			t.Errorf("%d, %v", code, err)
		}
	})
	defer worker.Wait()
	defer stopWork()
	desk.awaitRenewals(t, func() { desk.away = 1 }) // the first one comes before the worker has begun
	desk.awaitRenewals(t, func() { desk.away = 2 })
	for range 3 {
		desk.awaitRenewals(t, func() { desk.later += 40 * time.Minute })
	}
	late, err := client.New(address, client.Options{Token: func(context.Context) (string, error) { return first, nil }})
	must(t, err)
	if _, err := late.User(ctx); !errors.Is(err, client.ErrToken) {
		t.Errorf("two hours later the token of an hour is valid: %v", err)
	}
	desk.change(func() { clear(desk.checked) })
	testenv.Await(t, "the worker checks in with a renewed token", func() bool {
		found := false
		desk.change(func() { found = len(desk.checked) > 0 && desk.checked[first] == 0 })
		return found
	})
	must(t, api.EndWorkerTokens(ctx, "w"))
	for range 2 { // the first one may be of a check-in that began before
		desk.change(func() { desk.refused, desk.checked = 0, map[string]int{} })
		testenv.Await(t, "the worker's requests are refused", func() bool {
			enough := false
			desk.change(func() { enough = desk.refused >= 3 })
			return enough
		})
	}
	desk.change(func() {
		if len(desk.checked) > 0 {
			t.Errorf("the worker checks in with an ended token: %v", desk.checked)
		}
	})
}

// A manager starts another worker then.
func TestWorkerEndsBeforeItsLastTokenDoes(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), testenv.WaitLimit)
	defer cancel()
	desk := &frontDesk{checked: map[string]int{}, last: 1}
	address, stop := startChangedServer(t, t.TempDir(), server.Config{Now: desk.now}, desk.before)
	t.Cleanup(stop)
	api, err := client.New(address, client.Options{
		Credentials: func(context.Context) (string, string, error) { return "ann", scriptPassword, nil },
	})
	must(t, err)
	token, err := api.WorkerToken(ctx, "w", time.Hour)
	must(t, err)
	desk.change(func() { desk.open = true })
	if code, err := workWith(ctx, t, map[string]string{loginVariable: token}, address, time.Now, "--id", "w"); code != 0 || err != nil {
		t.Errorf("%d, %v", code, err)
	}
}

func TestTokenOfAnotherWorkerEndsTheWorkerAtOnce(t *testing.T) {
	t.Parallel()
	address := startTestServer(t, t.TempDir())
	api, err := client.New(address, client.Options{
		Credentials: func(context.Context) (string, string, error) { return "ann", scriptPassword, nil },
	})
	must(t, err)
	token, err := api.WorkerToken(t.Context(), "w", time.Hour)
	must(t, err)
	for variable, words := range map[string]string{
		token:               "refuses the token in CODALAB_WORKER_TOKEN: ",
		token + " " + token: "CODALAB_WORKER_TOKEN has to have one token",
		"x":                 "the token has ended or was revoked",
	} {
		code, err := workWith(t.Context(), t, map[string]string{loginVariable: variable}, address, time.Now, "--id", "other")
		if code != program.ExitDenied && code != program.ExitUsage || err == nil || !strings.Contains(err.Error(), words) || strings.Contains(err.Error(), token) {
			t.Errorf("%d, %v, want %q", code, err, words)
		}
	}
}

func TestNoProgramInheritsTheToken(t *testing.T) {
	t.Parallel()
	p, token := takeToken(program.Process{
		Getenv:  func(name string) string { return map[string]string{loginVariable: " secret\n", "A": "b"}[name] },
		Environ: []string{"A=b", loginVariable + "=secret", loginVariable + "S=c"},
	})
	if diff := cmp.Diff([]string{"A=b", loginVariable + "S=c"}, p.Environ); diff != "" || token != "secret" {
		t.Errorf("%q %s", token, diff)
	}
}

// A batch system begins a worker's job again while the first program still lives, on a node that was only cut off. Or two
// programs have got one token by mistake.
func TestSecondWorkerWithOneTokenReplacesTheFirst(t *testing.T) {
	t.Parallel()
	testenv.Containers(t) // here, because only the goroutine of the test may skip it
	address := startTestServer(t, t.TempDir())
	api, err := client.New(address, client.Options{
		Credentials: func(context.Context) (string, string, error) { return "ann", scriptPassword, nil },
	})
	must(t, err)
	token, err := api.WorkerToken(t.Context(), "w", time.Hour)
	must(t, err)
	image := imagetest.Start(t).Push(t, "lab/tools:1", scriptImage(t))
	uuid := createRunOf(t, api, image, "cat /proc/sys/kernel/random/uuid > start; sleep 100000")
	begun := func(before string) (id string) {
		testenv.Await(t, "the run has begun", func() bool {
			f, err := api.OpenLines(t.Context(), codalab.Target{BundleUUID: uuid, Subpath: "start"}, 1, 0)
			if err != nil {
				return false
			}
			text, err := io.ReadAll(f)
			id = string(text)
			return errors.Join(err, f.Close()) == nil && id != "" && id != before
		}, &before)
		return id
	}
	type end struct {
		code int
		err  error
	}
	start := func() (ended chan end, stop func()) {
		ctx, stop := context.WithCancel(t.Context())
		ended = make(chan end, 1)
		go func() {
			code, err := workWith(ctx, t, map[string]string{loginVariable: token}, address, time.Now, "--id", "w", "--preemptible", "--pass-down-termination", "--fetch-private", "127.0.0.1")
			ended <- end{code, err}
		}()
		return ended, stop
	}
	first, stopFirst := start()
	defer stopFirst()
	id := begun("")
	second, stop := start()
	defer stop()
	got := testenv.Receive(t, "the end of the first worker", first)
	if got.code != program.ExitFailure || got.err == nil || !strings.Contains(got.err.Error(), "another program is this worker now: ") || !strings.Contains(got.err.Error(), "has begun again elsewhere with the same token") {
		t.Errorf("the first ends with %d, %v", got.code, got.err)
	}
	begun(id)
	stop()
	if got := testenv.Receive(t, "the end of the second worker", second); got.code != 0 {
		t.Errorf("the second ends with %d, %v", got.code, got.err)
	}
}

// The server's refusal of the check-in is not a refusal of --group.
func TestReplacedWorkerOfAGroupSaysThatItIsReplaced(t *testing.T) {
	t.Parallel()
	var w standalone
	w.group = "lab"
	refusal := &codalab.Error{Method: http.MethodPost, Path: "/workers/w/checkin", Status: http.StatusGone, Message: "Worker 'w' has begun again elsewhere."}
	got := w.explain(fmt.Errorf("%w: %w", bridge.ErrReplaced, refusal))
	var coded *program.Error
	if errors.As(got, &coded) || !errors.Is(got, bridge.ErrReplaced) || strings.Contains(got.Error(), "--group") {
		t.Errorf("it says %v", got)
	}
}

// TestGuesserDelaysNoWorkerThatHasSignedInBefore uses up the tries of ann's name on the worker's own network.
func TestGuesserDelaysNoWorkerThatHasSignedInBefore(t *testing.T) {
	t.Parallel()
	address := startTestServer(t, t.TempDir())
	home := t.TempDir()
	signIn := func(password, home string) error {
		env := map[string]string{"HOME": home, "CODALAB_USERNAME": "ann", "CODALAB_PASSWORD": password}
		w := &standalone{Process: program.Process{Getenv: func(name string) string { return env[name] }, Now: time.Now}, log: slog.New(slog.DiscardHandler)}
		w.server = address
		testenv.Must(t, w.connect(t.Context()))
		_, err := w.client.User(t.Context())
		return err
	}
	testenv.Must(t, signIn(scriptPassword, home))
	for range 11 {
		if err := signIn("wrong", ""); err == nil {
			t.Fatal("a wrong password is taken")
		}
	}
	if err := signIn(scriptPassword, ""); !codalab.IsStatus(err, http.StatusTooManyRequests) {
		t.Errorf("an unknown program gets %v", err)
	}
	testenv.Must(t, signIn(scriptPassword, home))
}
