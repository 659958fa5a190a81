package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/codalab/client"
)

// counted returns the number of calls since the last heal, by method, and the paths of those that change something.
func (s *transferSite) counted() (asked int, changes []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.calls {
		method, rest, _ := strings.Cut(c, " ")
		switch {
		case strings.Contains(rest, "/oauth2/"):
		case method == http.MethodGet:
			asked++
		default:
			changes = append(changes, method+" "+strings.Split(strings.TrimPrefix(rest, "/rest"), " ")[0])
		}
	}
	return asked, changes
}

// sweepOf makes a sweep with so many runs, and returns its name and their uuids.
func (s *transferSite) sweepOf(t *testing.T, runs int) (name string, uuids []string) {
	t.Helper()
	name = strings.TrimSpace(s.mustRun(t, "run", "--sweep", fmt.Sprint("of-", runs), "--each", fmt.Sprint("x=1..", runs), "echo {x}"))
	uuids = strings.Fields(s.mustRun(t, "ls", "-u", "-w", name))
	if len(uuids) != runs {
		t.Fatalf("%d runs", len(uuids))
	}
	return name, uuids
}

// Each command is about 1,000 bundles. A call that only asks takes some of them, as its address has room for these.
func TestCommandAboutManyBundlesMakesFewCalls(t *testing.T) {
	t.Parallel()
	const runs, inAddress = 1000, 80
	s := newTransferSite(t, 1<<40)
	s.heal()
	name, uuids := s.sweepOf(t, runs)
	if asked, changes := s.counted(); asked > 12 || slices.Index(changes, "POST /bundles") < 0 || len(changes) > 5 {
		t.Errorf("cl run: %d questions, changes %q", asked, changes)
	}
	on := func(args ...string) []string { return args }
	with := func(first string, more ...string) []string { return slices.Concat([]string{first}, uuids, more) }
	for _, test := range []struct {
		args []string
		// asks is the number of questions that name all the bundles.
		asks  int
		wants string
	}{
		{on("perm", name, "public", "read"), 2, "POST /bundle-permissions"},
		{with("perm", "public", "none"), 2, "POST /bundle-permissions"},
		{slices.Concat([]string{"add", "bundle"}, uuids), 1, "POST /worksheet-items"},
		{slices.Concat([]string{"detach"}, uuids), 0, "POST /worksheets/"},
		{slices.Concat([]string{"chown", userName}, uuids), 1, "PATCH /bundles"},
		{with("kill"), 1, "POST /bundle-actions"},
		{with("wait"), 2, ""},
		{with("rm", "--force"), 0, "DELETE /bundles"},
	} {
		s.heal()
		r := s.cl(t.Context(), nil, test.args...)
		if r.err != nil && test.args[0] != "wait" {
			t.Fatalf("cl %q: %v\n%s", test.args[:2], r.err, r.stderr)
		}
		asked, changes := s.counted()
		if most := 6 + test.asks*(runs/inAddress+1); asked > most {
			t.Errorf("cl %q asks %d times, want %d at most", test.args[:2], asked, most)
		}
		if len(changes) > 1 || test.wants != "" && (len(changes) == 0 || !strings.HasPrefix(changes[0], test.wants)) {
			t.Errorf("cl %q changes by %q, want one %q", test.args[:2], changes, test.wants)
		}
	}
}

func TestSweepIsKilledAndRemovedByOneCallEach(t *testing.T) {
	t.Parallel()
	s := newTransferSite(t, 1<<40)
	for _, kill := range [][]string{{"kill"}, {"sweep", "kill"}} {
		name, uuids := s.sweepOf(t, 120)
		s.heal()
		if got := strings.Fields(s.mustRun(t, append(kill, name)...)); !slices.Equal(got, uuids) {
			t.Errorf("%d of %d are killed, or in another order", len(got), len(uuids))
		}
		if asked, changes := s.counted(); asked > 5 || !slices.Equal(changes, []string{"POST /bundle-actions"}) {
			t.Errorf("cl %q: %d questions, changes %q", kill, asked, changes)
		}
		s.heal()
		s.mustRun(t, "sweep", "rm", name)
		if _, changes := s.counted(); len(changes) != 2 {
			t.Errorf("cl sweep rm changes by %q", changes)
		}
	}
}

// raceKills lets somebody else kill a run just before the first kill of others arrives. If inOrder is set, the server kills
// the bundles of a call one by one up to the first that it refuses, as CodaLab's own does.
func (s *transferSite) raceKills(t *testing.T, uuid string, inOrder bool) {
	t.Helper()
	raced := false
	s.on(http.MethodPost, "/bundle-actions", func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		var doc struct {
			Data []json.RawMessage `json:"data"`
		}
		body, err := io.ReadAll(r.Body)
		if err = errors.Join(err, json.Unmarshal(body, &doc)); err != nil {
			t.Error(err)
		}
		act := func(body []byte) *httptest.ResponseRecorder {
			answer := httptest.NewRecorder()
			one := r.Clone(r.Context())
			one.Body, one.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
			next.ServeHTTP(answer, one)
			return answer
		}
		if !raced {
			raced = true
			act(fmt.Appendf(nil, `{"data":[{"type":"bundle-actions","attributes":{"type":"kill","uuid":%q}}]}`, uuid))
		}
		calls := [][]byte{body}
		if inOrder {
			calls = nil
			for _, one := range doc.Data {
				calls = append(calls, fmt.Appendf(nil, `{"data":[%s]}`, one))
			}
		}
		var answer *httptest.ResponseRecorder
		for _, call := range calls {
			if answer = act(call); answer.Code != http.StatusOK {
				break
			}
		}
		maps.Copy(w.Header(), answer.Header())
		w.WriteHeader(answer.Code)
		_, _ = w.Write(answer.Body.Bytes()) // cl sees a failure itself
	})
}

// Of 100 runs one has ended and one is gone, and one ends before the call arrives.
func TestKillOfManyEndsThoseThatItCanAndNamesTheOthers(t *testing.T) {
	t.Parallel()
	for name, inOrder := range map[string]bool{"cl-server": false, "as CodaLab's own server": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newTransferSite(t, 1<<40)
			_, uuids := s.sweepOf(t, 100)
			ended, gone := uuids[7], uuids[50]
			if err := s.api.KillBundles(t.Context(), ended, gone); err != nil {
				t.Fatal(err)
			}
			if _, err := s.api.DeleteBundles(t.Context(), []string{gone}, client.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			s.heal()
			s.raceKills(t, uuids[20], inOrder)
			r := s.ends(t, 1, append([]string{"kill"}, uuids...)...)
			want := slices.DeleteFunc(slices.Clone(uuids), func(uuid string) bool { return uuid == ended || uuid == gone })
			if got := strings.Fields(r.stdout); !slices.Equal(got, want) {
				t.Errorf("%d are killed, want %d", len(got), len(want))
			}
			if !strings.Contains(r.stderr, ended+": UsageError: ") || !strings.Contains(r.stderr, gone+": ") || strings.Count(r.stderr, "0x") > 4 {
				t.Errorf("the reasons are %q", r.stderr)
			}
			if _, changes := s.counted(); len(changes) > 6 {
				t.Errorf("%d calls", len(changes))
			}
			found, _, err := s.api.SearchBundles(t.Context(), "", []string{".mine", "state=killed", ".limit=1000"})
			if err != nil || len(found) != len(want)+1 {
				t.Errorf("%d runs are killed, %v", len(found), err)
			}
		})
	}
}
