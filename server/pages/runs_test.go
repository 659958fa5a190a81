package pages

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/selfcall"
)

// manyRuns is an API of which a search finds 10,000 runs, or as many as it asks for. It counts what it is asked for.
type manyRuns struct {
	calls           []string
	asked, searched int
}

func (m *manyRuns) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.calls = append(m.calls, r.Method+" "+r.URL.Path)
	var answer any
	switch r.URL.Path {
	case "/rest/bundles":
		limit := 10_000
		for _, word := range r.URL.Query()["keywords"] {
			if n, ok := strings.CutPrefix(word, ".limit="); ok {
				_, _ = fmt.Sscan(n, &limit)
			}
		}
		data := make([]any, limit)
		for i := range data {
			data[i] = map[string]any{"type": "bundles", "id": fmt.Sprintf("0x%032x", i), "attributes": map[string]any{"uuid": fmt.Sprintf("0x%032x", i), "bundle_type": "run", "state": "running", "metadata": map[string]any{}}}
		}
		m.searched += limit
		answer = map[string]any{"data": data}
	case "/rest/interpret/values":
		var q codalab.ValueQuery
		if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
		}
		m.asked += len(q.Bundles) * len(q.Paths)
		answer = map[string]any{"data": codalab.Values{}}
	default:
		http.NotFound(w, r)
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer)
}

// However many runs somebody has, a page of them reads the values of its own rows, by one request, and asks no worker.
func TestValuesOfAListAreThoseOfItsPage(t *testing.T) {
	t.Parallel()
	paths := []string{"/stats.json:acc", "/stats.json:loss"}
	for address, want := range map[string]struct {
		columns     []string
		calls, read int
	}{
		"/runs?q=.mine": {nil, 1, 0}, "/runs?q=.mine&choose=1": {nil, 2, 0}, "/runs?q=.mine+type%3Drun": {paths, 2, rowsOfAPage * 2},
		"/runs?q=.mine&page=199": {paths, 2, rowsOfAPage * 2}, "/runs?q=" + url.QueryEscape(".mine /stats.json:acc=.sort-"): {paths, 2, rowsOfAPage * 2},
	} {
		m := &manyRuns{}
		r := httptest.NewRequest(http.MethodGet, address, nil)
		set := httptest.NewRecorder()
		setColumns(&visit{ResponseWriter: set, Request: r}, false, want.columns)
		for _, c := range set.Result().Cookies() {
			r.AddCookie(c)
		}
		api, err := selfcall.Transport{Handler: m, From: r}.Client()
		if err != nil {
			t.Fatal(err)
		}
		l, err := (&Pages{}).listed(&visit{ResponseWriter: httptest.NewRecorder(), Request: r, api: api})
		if err != nil || len(l.Rows) != rowsOfAPage || len(l.Rows[0].Cells) != len(want.columns) {
			t.Fatalf("%s: %d rows, %v", address, len(l.Rows), err)
		}
		if len(m.calls) != want.calls || m.asked != want.read || m.searched != rowsOfAPage {
			t.Errorf("%s: %d bundles and %d values by %q", address, m.searched, m.asked, m.calls)
		}
	}
}

// The address to which the form leads searches again.
func TestChoiceOfColumnsSearchesNothing(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{"/runs/columns?q=.mine&page=3": "/runs?page=3&q=.mine", "/runs/columns": "/runs?q=.mine+type%3Drun"} {
		m := &manyRuns{}
		r := httptest.NewRequest(http.MethodPost, address, strings.NewReader("column=%2Fstats.json%3Aacc"))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		api, err := selfcall.Transport{Handler: m, From: r}.Client()
		if err != nil {
			t.Fatal(err)
		}
		answer := httptest.NewRecorder()
		p := &Pages{config: Config{Encrypted: func(*http.Request) bool { return false }}}
		if err := p.chooseRunColumns(&visit{ResponseWriter: answer, Request: r, api: api, user: codalab.User{UserName: "alice"}}); err != nil {
			t.Fatal(err)
		}
		if to := answer.Header().Get("Location"); to != want || len(answer.Result().Cookies()) != 1 || len(m.calls) > 0 {
			t.Errorf("%s: to %s, want %s; it asks %q", address, to, want, m.calls)
		}
	}
}
