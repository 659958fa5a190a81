package spool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// racer, when set in the environment of this test program, is the number of attempts to take in the layout
// that is its argument. The program begins them or, if fencer is set, fences them.
const (
	racer  = "CLTEST_SPOOL_RACER"
	fencer = "CLTEST_SPOOL_FENCER"
)

func TestMain(m *testing.M) {
	if n, err := strconv.Atoi(os.Getenv(racer)); err == nil {
		if err := race(os.Args[1], n, os.Getenv(fencer) != ""); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if n, err := strconv.Atoi(os.Getenv(slotRacer)); err == nil {
		if err := raceForSlots(os.Args[1], n, os.Getenv(slotBundle)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func attempt(t *testing.T) Attempt {
	t.Helper()
	return Attempt{Dir: t.TempDir()}
}

// temporaries lists the entries of the attempt's directory without the records.
func temporaries(t *testing.T, a Attempt) []string {
	t.Helper()
	entries, err := os.ReadDir(a.Dir)
	must(t, err)
	var found []string
	for _, e := range entries {
		if strings.Contains(e.Name(), ".tmp-") {
			found = append(found, e.Name())
		}
	}
	return found
}

// verdict is the result of one process for one attempt.
type verdict struct {
	Attempt  int
	Standing Started
	Own      bool
}

// race takes n attempts of a bundle, in any order, when its standard input ends. It begins or fences them,
// and prints the results.
func race(dir string, n int, fences bool) error {
	out := json.NewEncoder(os.Stdout)
	if err := testenv.Ready(); err != nil {
		return err
	}
	take := func(a Attempt) (Started, bool, error) {
		return a.Begin(context.Background(), Started{Token: NewToken()})
	}
	if fences {
		take = func(a Attempt) (Started, bool, error) { return a.Fence(context.Background(), time.Now()) }
	}
	for _, i := range rand.Perm(n) {
		standing, own, err := take(Layout(dir).Attempt("0x1", NameAttempt(i, "b1")))
		if err != nil {
			return err
		}
		if err := out.Encode(verdict{Attempt: i, Standing: standing, Own: own}); err != nil {
			return err
		}
	}
	return nil
}

func TestSixtyFourProcessesHaveOneOwnerOfEachAttempt(t *testing.T) {
	t.Parallel()
	const processes, fencers, attempts = 64, 16, 20
	dir := t.TempDir()
	layout := mounted(t, dir).Layout
	for i := range attempts {
		must(t, os.MkdirAll(layout.Attempt("0x1", NameAttempt(i, "b1")).Dir, 0o700))
	}
	printed := testenv.Race(t, processes, dir, func(i int) []string {
		variables := []string{racer + "=" + strconv.Itoa(attempts)}
		if i < fencers {
			variables = append(variables, fencer+"=yes")
		}
		return variables
	})
	var owners, answers [attempts]int
	var standing [attempts]Started
	fenced := 0
	for i, lines := range printed {
		said := json.NewDecoder(strings.NewReader(lines))
		for range attempts {
			var v verdict
			must(t, said.Decode(&v))
			n := v.Attempt
			if answers[n]++; answers[n] == 1 {
				standing[n] = v.Standing
			}
			if v.Standing != standing[n] {
				t.Errorf("attempt %d: %+v is the start, and also %+v", n, standing[n], v.Standing)
			}
			if v.Own {
				owners[n]++
			}
			if v.Own && v.Standing.Fenced {
				fenced++
			}
			if fences := i < fencers; v.Own && v.Standing.Fenced != fences {
				t.Errorf("attempt %d: owned by process %d, a fencer: %v, by %+v", n, i, fences, v.Standing)
			}
		}
	}
	for n := range attempts {
		if owners[n] != 1 || answers[n] != processes {
			t.Errorf("attempt %d: %d owners, %d answers", n, owners[n], answers[n])
		}
		if left := temporaries(t, layout.Attempt("0x1", NameAttempt(n, "b1"))); len(left) != 0 {
			t.Errorf("attempt %d: left behind: %v", n, left)
		}
	}
	t.Logf("%d of %d attempts were fenced", fenced, attempts)
}

func TestFencedAttemptIsNeverBegun(t *testing.T) {
	t.Parallel()
	a := Attempt{Dir: t.TempDir()}
	at := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	fenced, own, err := a.Fence(t.Context(), at)
	if err != nil || !own || !fenced.Fenced || !fenced.At.Equal(at) {
		t.Fatalf("fence: %+v, %v, %v", fenced, own, err)
	}
	for range 2 {
		standing, own, err := a.Begin(t.Context(), Started{Token: NewToken(), Node: "n1"})
		if err != nil || own || standing != fenced {
			t.Errorf("begin: %+v, %v, %v", standing, own, err)
		}
	}
	standing, own, err := a.Fence(t.Context(), at.Add(time.Hour))
	if err != nil || own || standing != fenced {
		t.Errorf("fence again: %+v, %v, %v", standing, own, err)
	}
}

func TestBegunAttemptCannotBeFenced(t *testing.T) {
	t.Parallel()
	a := attempt(t)
	mine := Started{Token: NewToken(), Node: "n1", Job: "7", Restart: "1", At: time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)}
	begun, own, err := a.Begin(t.Context(), mine)
	mine.Format = Format
	if err != nil || !own || begun != mine {
		t.Fatalf("begin: %+v, %v, %v", begun, own, err)
	}
	standing, own, err := a.Fence(t.Context(), time.Now())
	if err != nil || own || standing != mine {
		t.Errorf("fence: %+v, %v, %v", standing, own, err)
	}
	standing, own, err = a.Begin(t.Context(), mine)
	if err != nil || !own || standing != mine {
		t.Errorf("the owner asks again: %+v, %v, %v", standing, own, err)
	}
}

func TestStartThatCannotBeReadIsAnErrorWhenTheTimeIsUp(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(path string) error{
		"unreadable":      func(path string) error { return os.Mkdir(path, 0o700) },
		"another version": func(path string) error { return os.WriteFile(path, []byte(`{"format":99,"token":"x"}`), 0o600) },
		"half a record":   func(path string) error { return os.WriteFile(path, []byte(`{"format":1,"tok`), 0o600) },
		"no directory":    func(path string) error { return os.Remove(filepath.Dir(path)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := Attempt{Dir: filepath.Join(t.TempDir(), "1")}
			must(t, errors.Join(os.Mkdir(a.Dir, 0o700), spoil(a.path("started"))))
			synctest.Test(t, func(t *testing.T) {
				const limit = 10 * time.Second
				began := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				defer cancel()
				_, own, err := a.Begin(ctx, Started{Token: NewToken()})
				if own || !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("own %v, error %v", own, err)
				}
				if waited := time.Since(began); waited != limit {
					t.Errorf("gave up after %v", waited)
				}
			})
		})
	}
}

func TestBeginNeedsAToken(t *testing.T) {
	t.Parallel()
	a := attempt(t)
	if _, own, err := a.Begin(t.Context(), Started{}); own || err == nil {
		t.Errorf("no token: own %v, error %v", own, err)
	}
	if _, err := a.ReadStarted(); !errors.Is(err, ErrNone) {
		t.Errorf("it left a record: %v", err)
	}
}
