package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/cmd/internal/grid"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
)

// sweepArgs makes a sweep of four.
var sweepArgs = []string{"run", "-n", "scan", "--each", "lr=0.1,0.01", "--each", "seed=1..2", "train {lr} {seed}"}

// breakOn lets the call with a number break, before or after the server has carried it out, and all later calls too if
// the laptop has closed. It returns the number of calls.
func (s *transferSite) breakOn(number int, carriedOut, closed bool) (calls func() int) {
	n := 0
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handle = func(_ http.ResponseWriter, r *http.Request, next http.Handler) bool {
		s.mu.Lock()
		n++
		this := n
		s.mu.Unlock()
		if this < number || this > number && !closed {
			return false
		}
		if this == number && carriedOut {
			next.ServeHTTP(httptest.NewRecorder(), r)
		}
		panic(http.ErrAbortHandler)
	}
	return func() int {
		s.mu.Lock()
		defer s.mu.Unlock()
		return n
	}
}

// mustRun runs cl, which must succeed.
func (s *transferSite) mustRun(t *testing.T, args ...string) string {
	t.Helper()
	r := s.cl(t.Context(), nil, args...)
	if r.err != nil {
		t.Fatalf("cl %q: %v\n%s", args, r.err, r.stderr)
	}
	return r.stdout
}

// sweepName returns the name of the only sweep.
func (s *transferSite) sweepName(t *testing.T) string {
	t.Helper()
	sheets, err := s.api.SearchWorksheets(t.Context(), "tag=sweep")
	if err != nil || len(sheets) != 1 {
		t.Fatalf("%d sweeps, %v", len(sheets), err)
	}
	return sheets[0].Name
}

// checkSweep checks that there is one sweep with one run of each member, and that the home worksheet shows it once.
func (s *transferSite) checkSweep(t *testing.T, members int) {
	t.Helper()
	sheets, err := s.api.SearchWorksheets(t.Context(), "tag=sweep")
	if err != nil || len(sheets) != 1 {
		t.Fatalf("%d sweeps, %v", len(sheets), err)
	}
	found, _, err := s.api.SearchBundles(t.Context(), "", []string{".mine", ".limit=1000"})
	if err != nil || len(found) != members {
		t.Errorf("%d runs in all, want %d, %v", len(found), members, err)
	}
	sheet, err := s.api.WorksheetItems(t.Context(), sheets[0].UUID)
	if err != nil {
		t.Fatal(err)
	}
	keys := map[string]bool{}
	for _, b := range sweepRuns(sheet) {
		keys[strings.Join(b.Metadata.Strings("tags"), " ")] = true
	}
	if len(keys) != members || len(sheet.Items) != members+1 {
		t.Errorf("%d members and %d items, want %d and one definition", len(keys), len(sheet.Items), members)
	}
	home, err := s.api.FindWorksheet(t.Context(), "", client.HomeWorksheet)
	if err != nil {
		t.Fatal(err)
	}
	if home, err = s.api.WorksheetItems(t.Context(), home.UUID); err != nil || len(home.Items) != 1 {
		t.Errorf("the home worksheet has %d items, %v", len(home.Items), err)
	}
}

// leastCalls is fewer than the calls of each of the commands.
const leastCalls = 6

// forEachCall runs a test for each call that a command makes: the connection breaks before or after the server has
// carried the call out, and all later ones do too where closed is set.
func forEachCall(t *testing.T, ends []bool, test func(t *testing.T, number int, carriedOut, closed bool) (calls int)) {
	t.Helper()
	for _, carriedOut := range []bool{false, true} {
		for _, closed := range ends {
			number := 1
			for ; test(t, number, carriedOut, closed) >= number; number++ {
				if t.Failed() {
					t.Fatalf("call %d, carried out %v, closed %v", number, carriedOut, closed)
				}
			}
			if number < leastCalls {
				t.Errorf("only %d calls broke", number-1)
			}
		}
	}
}

func TestSweepThatIsInterruptedAtAnyCallIsCompletedByTheSameCommand(t *testing.T) {
	t.Parallel()
	forEachCall(t, []bool{false, true}, func(t *testing.T, number int, carriedOut, closed bool) int {
		t.Helper()
		s := newTransferSite(t, 1<<40)
		calls := s.breakOn(number, carriedOut, closed)
		s.cl(t.Context(), nil, sweepArgs...) // it may fail
		n := calls()
		s.heal()
		s.mustRun(t, sweepArgs...)
		s.checkSweep(t, 4)
		return n
	})
}

func TestSweepThatIsInterruptedAtAnyCallIsCompletedFromAnotherMachine(t *testing.T) {
	t.Parallel()
	forEachCall(t, []bool{true}, func(t *testing.T, number int, carriedOut, closed bool) int {
		t.Helper()
		s := newTransferSite(t, 1<<40)
		s.mustRun(t, sweepArgs...)
		name := s.sweepName(t)
		more := []string{"sweep", "add", name, "--each", "seed=3..5"}
		calls := s.breakOn(number, carriedOut, closed)
		s.cl(t.Context(), nil, more...) // it may fail
		n := calls()
		s.heal()
		s.mustRun(t, more...) // whether or not the definition has come
		s.mustRun(t, "sweep", "add", name, "--missing")
		s.checkSweep(t, 10)
		return n
	})
}

// A request may be carried out long after its connection broke: here, when cl has sent it again.
func TestRequestThatIsCarriedOutAfterItsConnectionBrokeMakesNothingTwice(t *testing.T) {
	t.Parallel()
	s := newTransferSite(t, 1<<40)
	var late *http.Request
	s.on(http.MethodPost, "/rest/bundles", func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		if late == nil {
			late = r.Clone(context.WithoutCancel(r.Context()))
			late.Body = io.NopCloser(bytes.NewReader(body))
			panic(http.ErrAbortHandler)
		}
		next.ServeHTTP(httptest.NewRecorder(), late)
		next.ServeHTTP(w, r)
	})
	s.mustRun(t, sweepArgs...)
	s.checkSweep(t, 4)
}

// The other machine begins and ends while the request of this one is under way.
func TestTwoMachinesMakeNothingTwice(t *testing.T) {
	t.Parallel()
	s := newTransferSite(t, 1<<40)
	other := false
	s.on(http.MethodPost, "/rest/bundles", func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if !other {
			other = true
			s.mustRun(t, sweepArgs...)
		}
		next.ServeHTTP(w, r)
	})
	s.mustRun(t, sweepArgs...)
	s.checkSweep(t, 4)
}

// Its runs were deleted, and no uuid can be had again.
func TestDeletedMembersAreMadeAgain(t *testing.T) {
	t.Parallel()
	s := newTransferSite(t, 1<<40)
	name := strings.TrimSpace(s.mustRun(t, sweepArgs...))
	for range 3 {
		s.mustRun(t, "kill", name)
		s.mustRun(t, "rm", name)
		s.mustRun(t, "sweep", "add", name, "--missing")
		s.checkSweep(t, 4)
	}
}

func TestSweepThatTheServerRefusesLeavesNothing(t *testing.T) {
	t.Parallel()
	s := newTransferSite(t, 1<<40)
	r := s.cl(t.Context(), nil, "run", "--each", "x=1..3", "--secret", "NONE", "echo {x}")
	if r.err == nil || !strings.Contains(r.err.Error(), "NONE") {
		t.Errorf("%v, %s", r.err, r.stderr)
	}
	sheets, err := s.api.SearchWorksheets(t.Context(), ".mine")
	if err != nil || len(sheets) != 1 { // the home worksheet
		t.Errorf("%d worksheets, %v", len(sheets), err)
	}
}

// CodaLab's own server writes a line for each wrong run, and takes no title with other characters than ASCII.
func TestRefusalOfManyRunsIsOneSentence(t *testing.T) {
	t.Parallel()
	s := newTransferSite(t, 1<<40)
	s.on(http.MethodPost, "/rest/bundles", func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		http.Error(w, strings.Repeat("Unsupported character detected, use ascii characters\n", 3), http.StatusBadRequest)
	})
	title := ""
	s.on(http.MethodPatch, "/rest/worksheets", func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		title = string(body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		next.ServeHTTP(w, r)
	})
	r := s.cl(t.Context(), nil, "run", "--each", "x=1..3", "echo größe 𝔸 {x}")
	if want := "UsageError: Unsupported character detected, use ascii characters"; r.err == nil || r.err.Error() != want {
		t.Errorf("%v, %s", r.err, r.stderr)
	}
	if !strings.Contains(title, `"Sweep: echo gr??e ? {x}"`) {
		t.Errorf("the title is set by %s", title)
	}
}

// A definition that is too long for one item is in several.
func TestLongDefinitionIsKeptInPieces(t *testing.T) {
	t.Parallel()
	var lines [][]string
	for i := range 3000 {
		lines = append(lines, []string{fmt.Sprintf("%d it's größe 𝔸 %s", i, strings.Repeat("a ", 20))})
	}
	d := sweepDefinition{
		Command: "echo '{line}'", Metadata: codalab.Metadata{"name": "x", "request_gpus": "{line}"},
		Grids: []grid.Grid{{Tables: []grid.Table{{Names: []string{"line"}, Rows: lines}}}},
	}
	items, err := d.items(7)
	if err != nil || len(items) < 3 {
		t.Fatalf("%d items, %v", len(items), err)
	}
	for i := range items {
		items[i].ID = strconv.Itoa(i)
		if n := len(items[i].Value); n > 65535 {
			t.Errorf("an item has %d bytes", n)
		}
	}
	slices.Reverse(items)
	older, err := d.items(6)
	if err != nil {
		t.Fatal(err)
	}
	got := readDefinition(append(items, older[0], client.Item{WorksheetItem: codalab.WorksheetItem{Type: codalab.ItemDirective, Value: "% //"}}))
	if got.revision != 7 || len(got.items) != len(items) || len(got.stale) != 1 || !reflect.DeepEqual(got.sweepDefinition, d) {
		t.Errorf("revision %d of %d items, %d stale", got.revision, len(got.items), len(got.stale))
	}
	if incomplete := readDefinition(items[1:]); incomplete.revision != 0 {
		t.Error("an incomplete definition is read")
	}
}

// CodaLab's own server starts all runs.
func TestBoundOnCodaLabsOwnServerIsRefusedBeforeAnythingIsMade(t *testing.T) {
	t.Parallel()
	s := newTransferSite(t, 1<<40)
	s.on(http.MethodGet, "/rest/queues", func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		http.Error(w, "Not found: '/queues'", http.StatusNotFound)
	})
	name := strings.TrimSpace(s.mustRun(t, sweepArgs...))
	for _, args := range [][]string{
		{"run", "--max-parallel", "2", "--sweep", "other", "--each", "x=1..3", "echo {x}"}, {"sweep", "edit", name, "--max-parallel", "2"},
	} {
		r := s.cl(t.Context(), nil, args...)
		want := " is CodaLab's own server, or an old cl-server: it starts all runs of a sweep, and knows no --max-parallel"
		if r.err == nil || !strings.HasSuffix(r.err.Error(), want) {
			t.Errorf("%q: %v", args, r.err)
		}
	}
	s.checkSweep(t, 4)
}
