package spool

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// racer, when set in the environment of this test program, is the number of
// attempts to begin in the directory that is given as its argument.
const racer = "CLTEST_SPOOL_RACER"

func TestMain(m *testing.M) {
	if n, err := strconv.Atoi(os.Getenv(racer)); err == nil {
		if err := race(os.Args[1], n); err != nil {
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

// temporaries lists what is in the attempt's directory besides the records.
func temporaries(t *testing.T, a Attempt) []string {
	t.Helper()
	entries, err := os.ReadDir(a.Dir)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, e := range entries {
		if strings.Contains(e.Name(), ".tmp-") {
			found = append(found, e.Name())
		}
	}
	return found
}

// unreliable is a file server that does, or does not do, what it is asked,
// and says whatever it likes about it.
func unreliable(a Attempt, r *rand.Rand) disk {
	lies := []error{nil, fs.ErrExist, syscall.EIO, syscall.ESTALE}
	return disk{
		link: func(oldname, newname string) error {
			err := syscall.ENOENT
			if r.IntN(2) == 0 {
				err, _ = errors.AsType[syscall.Errno](os.Link(oldname, newname))
			}
			if r.IntN(2) == 0 {
				return lies[r.IntN(len(lies))]
			}
			return err
		},
		read: func() (Started, error) {
			switch r.IntN(4) {
			case 0:
				return Started{}, ErrNone // as it was seconds ago
			case 1:
				return Started{}, syscall.ESTALE
			}
			return a.readFlushed()
		},
	}
}

func TestAttemptHasOneOwnerWhateverRepliesAreLost(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		a := attempt(t)
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			var owners []string
			seen := map[string]bool{}
			var wg sync.WaitGroup
			for i := range 6 {
				r := rand.New(rand.NewPCG(seed, uint64(i)))
				token := NewToken()
				wg.Go(func() {
					standing, own, err := a.take(t.Context(), Started{Token: token, Closed: i == 0}, unreliable(a, r))
					if err != nil {
						t.Errorf("seed %d: %v", seed, err)
						return
					}
					mu.Lock()
					defer mu.Unlock()
					seen[standing.Token] = true
					if own {
						owners = append(owners, token)
					}
				})
			}
			wg.Wait()
			if len(owners) != 1 || len(seen) != 1 || !seen[owners[0]] {
				t.Errorf("seed %d: owners %v, seen %v", seed, owners, seen)
			}
		})
		if left := temporaries(t, a); len(left) != 0 {
			t.Errorf("seed %d: left behind: %v", seed, left)
		}
	}
}

// Whoever gave up while the file server was unreliable is not the owner, even
// if it is its record that stands: nobody is.
func TestAttemptHasAtMostOneOwnerWhenSomeGiveUp(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		a := attempt(t)
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			var mu sync.Mutex
			gaveUp, owners := map[string]bool{}, 0
			var wg sync.WaitGroup
			for i := range 6 {
				r := rand.New(rand.NewPCG(seed, uint64(i)))
				token := NewToken()
				wg.Go(func() {
					_, own, err := a.take(ctx, Started{Token: token}, unreliable(a, r))
					mu.Lock()
					defer mu.Unlock()
					if own {
						owners++
					}
					if err != nil {
						gaveUp[token] = true
					}
				})
			}
			wg.Wait()
			standing, own, err := a.Close(t.Context(), time.Now())
			switch {
			case err != nil:
				t.Errorf("seed %d: %v", seed, err)
			case owners > 1, owners == 1 && (own || gaveUp[standing.Token]), owners == 0 && !own && !gaveUp[standing.Token]:
				t.Errorf("seed %d: %d owners, then closed %v, %d gave up", seed, owners, own, len(gaveUp))
			}
		})
	}
}

// verdict is what one process says of one attempt.
type verdict struct {
	Token, Standing string
	Own             bool
}

// race begins n attempts below dir when its standard input ends, and tells
// what came of it.
func race(dir string, n int) error {
	out := json.NewEncoder(os.Stdout)
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	for i := range n {
		token := NewToken()
		a := Attempt{Dir: filepath.Join(dir, strconv.Itoa(i))}
		standing, own, err := a.Begin(context.Background(), Started{Token: token})
		if err != nil {
			return err
		}
		if err := out.Encode(verdict{Token: token, Standing: standing.Token, Own: own}); err != nil {
			return err
		}
	}
	return nil
}

func TestSixtyFourProcessesHaveOneOwnerOfEachAttempt(t *testing.T) {
	t.Parallel()
	const processes, attempts = 64, 20
	dir := t.TempDir()
	for i := range attempts {
		if err := os.Mkdir(filepath.Join(dir, strconv.Itoa(i)), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	started, start, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	var outputs [processes]bytes.Buffer
	var children [processes]*exec.Cmd
	for i := range children {
		child := exec.CommandContext(t.Context(), os.Args[0], dir)
		child.Env = []string{racer + "=" + strconv.Itoa(attempts)}
		child.Stdin, child.Stdout, child.Stderr = started, &outputs[i], os.Stderr
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		children[i] = child
	}
	if err := errors.Join(started.Close(), start.Close()); err != nil { // go
		t.Fatal(err)
	}
	owners := make([][]string, attempts)
	standing := make([][]string, attempts)
	for i, child := range children {
		if err := child.Wait(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(&outputs[i])
		for n := 0; lines.Scan(); n++ {
			var v verdict
			if err := json.Unmarshal(lines.Bytes(), &v); err != nil {
				t.Fatal(err)
			}
			if v.Own {
				owners[n] = append(owners[n], v.Token)
			}
			standing[n] = append(standing[n], v.Standing)
		}
	}
	for n := range attempts {
		slices.Sort(standing[n])
		if len(owners[n]) != 1 || len(standing[n]) != processes || len(slices.Compact(standing[n])) != 1 || standing[n][0] != owners[n][0] {
			t.Errorf("attempt %d: %d owners, %d answers", n, len(owners[n]), len(standing[n]))
		}
		if left := temporaries(t, Attempt{Dir: filepath.Join(dir, strconv.Itoa(n))}); len(left) != 0 {
			t.Errorf("attempt %d: left behind: %v", n, left)
		}
	}
}

func TestClosedAttemptIsNeverBegun(t *testing.T) {
	t.Parallel()
	a := Attempt{Dir: filepath.Join(t.TempDir(), "0x1", "1")} // not made yet
	at := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	closed, own, err := a.Close(t.Context(), at)
	if err != nil || !own || !closed.Closed || !closed.At.Equal(at) {
		t.Fatalf("close: %+v, %v, %v", closed, own, err)
	}
	for range 2 {
		standing, own, err := a.Begin(t.Context(), Started{Token: NewToken(), Node: "n1"})
		if err != nil || own || standing != closed {
			t.Errorf("begin: %+v, %v, %v", standing, own, err)
		}
	}
	standing, own, err := a.Close(t.Context(), at.Add(time.Hour))
	if err != nil || own || standing != closed {
		t.Errorf("close again: %+v, %v, %v", standing, own, err)
	}
}

func TestBegunAttemptCannotBeClosed(t *testing.T) {
	t.Parallel()
	a := attempt(t)
	mine := Started{Token: NewToken(), Node: "n1", Job: "7", Restart: "1", At: time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)}
	begun, own, err := a.Begin(t.Context(), mine)
	mine.Format = Format
	if err != nil || !own || begun != mine {
		t.Fatalf("begin: %+v, %v, %v", begun, own, err)
	}
	standing, own, err := a.Close(t.Context(), time.Now())
	if err != nil || own || standing != mine {
		t.Errorf("close: %+v, %v, %v", standing, own, err)
	}
	standing, own, err = a.Begin(t.Context(), mine)
	if err != nil || !own || standing != mine {
		t.Errorf("the owner asks again: %+v, %v, %v", standing, own, err)
	}
}

func TestStartThatCannotBeReadIsAnErrorWhenTheTimeIsUp(t *testing.T) {
	t.Parallel()
	const patience = 10 * time.Second
	for name, fail := range map[string]func(Attempt) disk{
		"unreadable": func(Attempt) disk {
			return disk{link: os.Link, read: func() (Started, error) { return Started{}, syscall.EIO }}
		},
		"not shown": func(Attempt) disk {
			return disk{link: os.Link, read: func() (Started, error) { return Started{}, ErrNone }}
		},
		"never linked": func(a Attempt) disk {
			return disk{link: func(string, string) error { return nil }, read: a.readFlushed}
		},
		"another version": func(a Attempt) disk {
			write(t, a.path("started"), `{"format":99,"token":"x"}`)
			return a.disk()
		},
		"half a record": func(a Attempt) disk {
			write(t, a.path("started"), `{"format":1,"tok`)
			return a.disk()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := attempt(t)
			d := fail(a)
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				_, own, err := a.take(ctx, Started{Token: NewToken()}, d)
				if own || !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("own %v, error %v", own, err)
				}
				if waited := time.Since(began); waited != patience {
					t.Errorf("gave up after %v", waited)
				}
			})
			if left := temporaries(t, a); len(left) != 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

func TestBeginNeedsATokenAndADirectory(t *testing.T) {
	t.Parallel()
	a := attempt(t)
	if _, own, err := a.Begin(t.Context(), Started{}); own || err == nil {
		t.Errorf("no token: own %v, error %v", own, err)
	}
	if _, err := a.ReadStarted(); !errors.Is(err, ErrNone) {
		t.Errorf("it left a record: %v", err)
	}
	a.Dir = filepath.Join(a.Dir, "missing")
	if _, own, err := a.Begin(t.Context(), Started{Token: NewToken()}); own || err == nil {
		t.Errorf("no directory: own %v, error %v", own, err)
	}
}
