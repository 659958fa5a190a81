// Package pilottest tests the promises of [pilot.Backend] on any batch system. Each backend runs the suite on its real
// batch system, or on a double that has the rules of the real one.
package pilottest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/background"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/pilot"
)

// The lines that a worker of a site prints when it begins and before it ends. A worker with a token prints a line of
// HasToken and the token, too.
const (
	Begun    = "pilottest: the worker has begun"
	HasToken = "pilottest: the worker has the token "
	Done     = "pilottest: the worker ends"
)

// Site is a batch system for the suite. Its workers print HasToken and Begun, and go on until Finish, or until TERM; then
// they print Done. A site belongs to one test.
type Site interface {
	// Open returns a new backend of the manager of this name, as after a restart of the manager. If the batch system
	// answers in pages, a page has at most PageSize pilots.
	Open(manager string) pilot.Backend
	// LoseAnswer makes the next request that starts a pilot lose its answer: the pilot starts, and the backend
	// sees a broken connection.
	LoseAnswer()
	// Vanish removes a pilot without a word to the backend, as a person or the loss of a machine does.
	Vanish(t *testing.T, name string)
	// Finish lets the worker of a running pilot end by itself.
	Finish(t *testing.T, name string)
}

// Troubled is a Site with pilots that cannot start.
type Troubled interface {
	// OpenTroubled returns a backend whose pilots cannot start, and a part of the batch system's words about it.
	OpenTroubled(manager string) (b pilot.Backend, words string)
}

// Cutter is a Site whose backends can lose the batch system in the middle of a start, as a killed manager does.
type Cutter interface {
	// Cut lets the batch system answer n further requests of backends that change something. The next such request
	// takes effect, but its answer is lost, and then no request arrives until Mend.
	Cut(n int)
	Mend()
}

// mostRequests is more than the number of requests by which any backend starts a pilot.
const mostRequests = 4

// PageSize is the number of pilots on a page of a site's answers.
const PageSize = 2

// Token returns the token with which the suite starts the pilot of this name.
func Token(name string) string { return "token-of-" + pilot.WorkerID(name) }

// NewToken gives a pilot its Token.
func NewToken(_ context.Context, name string) (string, error) { return Token(name), nil }

// Run runs the suite. open makes a site for one test, and ends it with the test.
func Run(t *testing.T, open func(t *testing.T) Site) {
	t.Helper()
	for name, test := range map[string]func(t *testing.T, s Site){
		"started pilots are shown at once and by the next manager": showsStarted,
		"pilots of another manager are not shown":                  showsNoOthers,
		"lost answer leaves one pilot":                             adoptsLostStart,
		"vanished pilot is not live":                               forgetsVanished,
		"stop ends running and waiting pilots":                     stops,
		"answers of several pages are complete":                    readsAllPages,
		"log is followed and stays after the end":                  writesLogs,
		"worker has the token of its start":                        passesToken,
		"start without a token has another login or is refused":    needsLogin,
		"token ends with its pilot":                                endsTokens,
		"pilot of a killed manager starts or is not there":         survivesKills,
		"trouble is told in the words of the batch system":         tellsTrouble,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open(t))
		})
	}
}

// start starts pilots.
func start(t *testing.T, b pilot.Backend, n int) []string {
	t.Helper()
	var names []string
	for range n {
		name := b.NewName()
		if p, err := b.Start(t.Context(), name, Token(name)); err != nil || p.Name != name || p.Phase == pilot.Ended {
			t.Fatalf("start: %+v, %v", p, err)
		}
		names = append(names, name)
	}
	return names
}

// live returns the sorted names of the pilots that have not ended.
func live(t *testing.T, b pilot.Backend) []string {
	t.Helper()
	pilots, err := b.Pilots(t.Context())
	testenv.Must(t, err)
	var names []string
	for _, p := range pilots {
		if p.Phase != pilot.Ended {
			names = append(names, p.Name)
		}
	}
	slices.Sort(names)
	return names
}

func sorted(names []string) []string { return slices.Sorted(slices.Values(names)) }

// find returns a pilot as the backend shows it; an ended one if it does not.
func find(t *testing.T, b pilot.Backend, name string) pilot.Pilot {
	t.Helper()
	pilots, err := b.Pilots(t.Context())
	testenv.Must(t, err)
	for _, p := range pilots {
		if p.Name == name {
			return p
		}
	}
	return pilot.Pilot{Name: name, Phase: pilot.Ended}
}

func await(t *testing.T, b pilot.Backend, name string, phase pilot.Phase) pilot.Pilot {
	t.Helper()
	var p pilot.Pilot
	testenv.Await(t, name+" is "+string(phase), func() bool {
		p = find(t, b, name)
		return p.Phase == phase
	}, &p)
	return p
}

func showsStarted(t *testing.T, s Site) {
	t.Helper()
	b := s.Open("a")
	names := sorted(start(t, b, PageSize))
	for _, b := range []pilot.Backend{b, s.Open("a")} {
		if got := live(t, b); !slices.Equal(got, names) {
			t.Errorf("shown are %q, want %q", got, names)
		}
	}
}

func showsNoOthers(t *testing.T, s Site) {
	t.Helper()
	a, b := s.Open("a"), s.Open("a-2")
	of, other := start(t, a, 1), start(t, b, 1)
	if got := live(t, a); !slices.Equal(got, of) {
		t.Errorf("the pilots of a are %q, want %q", got, of)
	}
	if got := live(t, b); !slices.Equal(got, other) {
		t.Errorf("the pilots of a-2 are %q, want %q", got, other)
	}
}

func adoptsLostStart(t *testing.T, s Site) {
	t.Helper()
	b := s.Open("a")
	s.LoseAnswer()
	name := b.NewName()
	_, err := b.Start(t.Context(), name, Token(name))
	var doubt pilot.Uncertain
	if err != nil && (!errors.As(err, &doubt) || !doubt.Uncertain()) {
		t.Fatalf("the error is certain: %v", err)
	}
	var got []string
	testenv.Await(t, "the pilot is shown", func() bool {
		got = live(t, b)
		return len(got) > 0
	}, &got)
	if !slices.Equal(got, []string{name}) {
		t.Errorf("shown are %q, want %q", got, name)
	}
}

func forgetsVanished(t *testing.T, s Site) {
	t.Helper()
	b := s.Open("a")
	names := start(t, b, 2)
	await(t, b, names[0], pilot.Active)
	s.Vanish(t, names[0])
	await(t, b, names[0], pilot.Ended)
	if got := live(t, b); !slices.Equal(got, names[1:]) {
		t.Errorf("shown are %q, want %q", got, names[1:])
	}
}

func stops(t *testing.T, s Site) {
	t.Helper()
	b := s.Open("a")
	names := start(t, b, 2)
	first := await(t, b, names[0], pilot.Active)
	for _, p := range []pilot.Pilot{first, first, find(t, b, names[1])} {
		if err := b.Stop(t.Context(), p); err != nil {
			t.Errorf("stop %+v: %v", p, err)
		}
	}
	for _, name := range names {
		await(t, b, name, pilot.Ended)
	}
	if err := b.Stop(t.Context(), first); err != nil {
		t.Errorf("stop an ended pilot: %v", err)
	}
}

func readsAllPages(t *testing.T, s Site) {
	t.Helper()
	b := s.Open("a")
	names := sorted(start(t, b, 2*PageSize+1))
	if got := live(t, s.Open("a")); !slices.Equal(got, names) {
		t.Errorf("shown are %q, want %q", got, names)
	}
}

// log is a writer that several goroutines may use.
type log struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *log) Write(data []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.Write(data) // a strings.Builder takes all
	return len(data), nil
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func writesLogs(t *testing.T, s Site) {
	t.Helper()
	b := s.Open("a")
	name := start(t, b, 1)[0]
	p := await(t, b, name, pilot.Active)
	var followed log
	reader := s.Open("a")
	var followErr error
	done := background.Go(func() { followErr = reader.WriteLog(t.Context(), &followed, p, true) })
	var text string
	testenv.Await(t, "the log has the first line", func() bool {
		text = followed.String()
		return strings.Contains(text, Begun)
	}, &text)
	select {
	case <-done:
		t.Fatalf("the log ends before the worker: %v", followErr)
	default:
	}
	s.Finish(t, name)
	if <-done; followErr != nil {
		t.Errorf("follow: %v", followErr)
	}
	await(t, b, name, pilot.Ended)
	logged, err := s.Open("a").Logged(t.Context())
	testenv.Must(t, err)
	p, err = pilot.Find(logged, pilot.WorkerID(name))
	testenv.Must(t, err)
	var whole log
	if err := b.WriteLog(t.Context(), &whole, p, false); err != nil {
		t.Error(err)
	}
	for _, text := range []string{followed.String(), whole.String()} {
		if strings.Count(text, Begun) != 1 || strings.Count(text, Done) != 1 {
			t.Errorf("the log is %q", text)
		}
	}
	gone := p
	gone.Name = b.NewName()
	gone.Job = ""
	if err := b.WriteLog(t.Context(), &log{}, gone, false); !errors.Is(err, pilot.ErrNoLog) {
		t.Errorf("the log of a pilot that never was: %v", err)
	}
}

func tellsTrouble(t *testing.T, s Site) {
	t.Helper()
	troubled, ok := s.(Troubled)
	if !ok {
		t.Skip("the pilots of this site have no trouble")
	}
	b, words := troubled.OpenTroubled("a")
	name := start(t, b, 1)[0]
	var p pilot.Pilot
	testenv.Await(t, "the trouble is told", func() bool {
		p = find(t, b, name)
		return strings.Contains(p.Trouble, words)
	}, &p)
	if p.Phase != pilot.Pending || p.Patience <= 0 {
		t.Errorf("the pilot is %+v", p)
	}
	testenv.Must(t, b.Stop(t.Context(), p))
	await(t, b, name, pilot.Ended)
}

func survivesKills(t *testing.T, s Site) {
	t.Helper()
	cutter, ok := s.(Cutter)
	if !ok {
		t.Skip("the requests of this site's backends are not cut: one request starts a pilot")
	}
	for n := range mostRequests {
		killed := s.Open("a")
		name := killed.NewName()
		cutter.Cut(n)
		_, err := killed.Start(t.Context(), name, Token(name))
		cutter.Mend()
		next := s.Open("a")
		shown := []string{}
		testenv.Await(t, fmt.Sprintf("the pilot whose manager was killed after %d requests runs, or is not there", n), func() bool {
			shown = live(t, next)
			testenv.Must(t, next.Tidy(t.Context(), NewToken))
			return len(shown) == 0 && err != nil || len(shown) == 1 && find(t, next, shown[0]).Phase == pilot.Active
		}, &shown, &err)
		for _, shown := range shown {
			if shown != name {
				t.Errorf("%s is shown, want %s", shown, name)
			}
			testenv.Must(t, next.Stop(t.Context(), find(t, next, shown)))
			await(t, next, shown, pilot.Ended)
		}
		testenv.Must(t, next.Tidy(t.Context(), NewToken))
	}
}
