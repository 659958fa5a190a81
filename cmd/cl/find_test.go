package main

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/cmd/internal/repaint"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
)

// describe is a search as text.
func (s localSearch) describe() string {
	out := strings.Join(s.words, " ")
	for _, c := range s.conds {
		out += fmt.Sprintf(" [%s%s%s]", c.Key, c.Op, c.Value)
	}
	if s.sort != "" {
		out += fmt.Sprintf(" by %s", s.sort)
	}
	if s.descending {
		out += " down"
	}
	if s.count {
		out += " counted"
	}
	return strings.TrimSpace(fmt.Sprintf("%s %d+%d", out, s.offset, s.limit))
}

// A server that knows no values gets the keywords that it knows, and cl does the rest.
func TestSearchIsSplitBetweenServerAndClient(t *testing.T) {
	t.Parallel()
	for words, want := range map[string]string{
		".mine /s.json:acc":                                ".mine [/s.json:acc] 0+10",
		"/s.json:acc=.sort- .limit=3 .offset=2":            "[/s.json:acc] by /s.json:acc down 2+3",
		"/s.json:acc=.sort- /s.json:loss=.sort":            "[/s.json:acc] [/s.json:loss] by /s.json:loss 0+10",
		"/s.json:acc=.sort created=.sort-":                 "created=.sort- [/s.json:acc] 0+10",
		"/s.json:acc=.sort .last":                          ".last [/s.json:acc] 0+10",
		"created=.sort- /s.json:acc=.sort":                 "created=.sort- [/s.json:acc] by /s.json:acc 0+10",
		"/s.json:loss<0.3 time>3600 .count":                "[/s.json:loss<0.3] [time>3600] counted 0+10",
		"/s.json:opt=ad.* name=x":                          "name=x [/s.json:opt=ad%] 0+10",
		"/s.json:opt!=adam,sgd state!=ready .limit=1":      "[/s.json:opt!=adam,sgd] [state!=ready] 0+1",
		"/log.csv:-1:loss>=-1e-3 /a=b.csv:-1:x .limit=0":   "[/log.csv:-1:loss>=-1e-3] [/a=b.csv:-1:x] 0+0",
		"/s.json:acc=.sum":                                 "UsageError: CodaLab's own server does not know values in files, and cl adds none up; cl search --csv -f /s.json:acc prints them",
		"/s.json:acc .limit=-1":                            "UsageError: .limit must be a number of at least 0, not '-1'",
		"/s.json:acc .offset=x":                            "UsageError: .offset must be a number of at least 0, not 'x'",
		"/s.json:acc<NaN":                                  "UsageError: /s.json:acc< needs a number, not 'NaN'",
		"time>lots":                                        "UsageError: time> needs a number, not 'lots'",
		".mine /s.json:acc .limit=5 .limit=7 /s.json:acc>": "UsageError: /s.json:acc> needs a number, not ''",
	} {
		s, err := splitSearch(strings.Fields(words))
		got := ""
		if err != nil {
			got = err.Error()
		} else {
			got = s.describe()
		}
		if got != want {
			t.Errorf("%s: %s\nwant %s", words, got, want)
		}
	}
}

// The order is that of cl-server: numbers, then texts, and the older one of two with equal values; upside down from the end,
// but texts stay behind numbers.
func TestValuesAreSortedAsTheServerSortsThem(t *testing.T) {
	t.Parallel()
	values := map[string]any{"a": "NaN", "b": float64(2), "c": "10", "d": "sgd", "e": float64(2), "f": "-1e3", "g": nil}
	created := map[string]float64{"b": 20, "e": 10}
	for descending, want := range map[bool]string{false: "febc" + "gad", true: "cbef" + "dag"} {
		var bundles []client.BundleInfo
		for uuid := range values {
			bundles = append(bundles, client.BundleInfo{Bundle: codalab.Bundle{UUID: uuid, Metadata: codalab.Metadata{"created": created[uuid]}}})
		}
		sortByValue(bundles, descending, func(b client.BundleInfo) any { return values[b.UUID] })
		if got := strings.Join(uuidsOf(bundles), ""); got != want {
			t.Errorf("descending %v: %s, want %s", descending, got, want)
		}
	}
}

// withoutValues makes a site answer as CodaLab's own server does, which has neither queues nor values.
func (s *transferSite) withoutValues() {
	s.on("GET", "/rest/queues", func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		http.Error(w, "Not found: '/queues'", http.StatusNotFound)
	})
	s.on("GET", "/rest/bundles", func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		for _, word := range r.URL.Query()["keywords"] {
			if _, isNew := codalab.ParseComparison(word); isNew {
				http.Error(w, "a keyword that CodaLab's own server takes for a name: "+word, http.StatusTeapot)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// Whatever is searched for, a server without values finds the same as one with them.
func TestSearchByValuesFindsTheSameOnAServerWithoutThem(t *testing.T) {
	t.Parallel()
	s := newTransferSite(t, 1<<40)
	for name, files := range map[string]map[string]string{
		"a":    {"stats.json": `{"acc": 0.8, "opt": "adam"}`, "log.jsonl": "{\"loss\": 3}\n{\"loss\": 0.5}\n"},
		"b":    {"stats.json": `{"acc": "0.90", "opt": "sgd"}`, "log.jsonl": "{\"loss\": 0.25, \"train/acc\": 7}\n"},
		"c":    {"stats.json": `{"acc": 12}`, "log.csv": "step,loss\n1,2\n"},
		"d":    {"stats.json": `{"acc": NaN}`, "log.csv": "step,loss\n1,2,3\n"},
		"e":    {"stats.json": `{"acc": "many"}`, "log.jsonl": "{\"loss\": \"" + strings.Repeat("x", 100_000) + "\"}\n"},
		"f":    {"stats.json": `{"acc": [1]}`, "log.jsonl": ""},
		"none": {"readme": "nothing"},
	} {
		for file, text := range files {
			s.file(t, name+"/"+file, []byte(text))
		}
		s.ends(t, 0, "upload", s.dir+"/"+name)
	}
	queries := []string{
		"search /stats.json:acc -f name --csv", "search /stats.json:acc=.sort -f name", "search /stats.json:acc=.sort- -f name --csv",
		"ls /stats.json:acc=.sort -f name,/stats.json:acc --csv", "ls /stats.json:acc>0.8 /stats.json:acc<=12 -f name,/log.jsonl:-1:loss --csv",
		"search /stats.json:opt=AD% -f name --csv", "search /stats.json:opt!=adam -f name --csv", "search /stats.json:acc .count",
		"search /log.jsonl:-1:loss=.sort -f name --csv", "search /log.csv:-1:loss -f name --csv", "search /log.jsonl:-1:train/acc>=7 -f name --csv",
		"search /stats.json:acc=.sort .limit=2 .offset=1 -f name --csv", "search name=a,b,c /stats.json:acc>0 .count", "search /stats.json:nosuch",
		"search /stats.json:acc<NaN", "search data_size>0 /stats.json:acc -f name --csv", "best /stats.json:acc -f name", "best /log.jsonl:-1:loss --top 9 -f name",
		"best e f none /stats.json:acc", "ls /stats.json:acc=.sort -f name", "search statee=ready /stats.json:acc",
	}
	run := func() map[string]string {
		got := map[string]string{}
		for _, q := range queries {
			r := s.cl(t.Context(), nil, strings.Fields(q)...)
			got[q] = fmt.Sprint(r.code, "\n", r.stdout, r.stderr)
		}
		return got
	}
	want := run()
	if got, text := want["ls /stats.json:acc=.sort -f name"], "2 of 7 bundles are left out: they have no value at /stats.json:acc.\n"; !strings.HasSuffix(got, text) {
		t.Errorf("%s, want %s", got, text)
	}
	s.withoutValues()
	if diff := cmp.Diff(want, run()); diff != "" {
		t.Errorf("(-with values +without):\n%s", diff)
	}
}

func TestSumOfValuesIsRefusedWhereTheServerKnowsNone(t *testing.T) {
	t.Parallel()
	s := newTransferSite(t, 1<<40)
	s.withoutValues()
	if r := s.ends(t, 1, "search", "/stats.json:acc=.sum"); !strings.Contains(r.stderr, "cl adds none up") {
		t.Error(r.stderr)
	}
}

// What does not count for the best is told with its reason.
func TestBestTellsWhatDoesNotCount(t *testing.T) {
	t.Parallel()
	s := newTransferSite(t, 1<<40)
	for name, text := range map[string]string{"a": `{"acc": 1}`, "b": `{"acc": NaN}`, "c": `{"acc": "many words"}`, "d": `{"other": 1}`} {
		s.file(t, name+"/stats.json", []byte(text))
		s.ends(t, 0, "upload", s.dir+"/"+name)
	}
	s.aRun(t, "waits", "true")
	r := s.ends(t, 0, "best", "a", "b", "c", "d", "waits", "/stats.json:acc", "-f", "name")
	if want := "4 of 5 bundles are left out: 1 not ready, 1 without a value there, 2 with one that is no finite number (\"NaN\").\n"; !strings.HasSuffix(r.stderr, want) {
		t.Errorf("%s, want %s", r.stderr, want)
	}
	if r := s.ends(t, 1, "best", "name=nosuch", "/stats.json:acc"); !strings.Contains(r.stderr, "There is no bundle to choose from") {
		t.Error(r.stderr)
	}
}

// A server that reads one file after another gets small questions, and a few at a time.
func TestValuesAreReadAFewAtATime(t *testing.T) {
	t.Parallel()
	s := newTransferSite(t, 1<<40)
	s.ends(t, 0, "run", "--sweep", "many", "--each", "seed=1..300", "train {seed}", "-n", "run{seed}")
	var mu sync.Mutex
	calls, now, most := 0, 0, 0
	s.on("POST", "/interpret/file-genpaths", func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		mu.Lock()
		calls++
		now++
		most = max(most, now)
		mu.Unlock()
		next.ServeHTTP(w, r)
		mu.Lock()
		now--
		mu.Unlock()
	})
	s.now = leaping() // each answer takes minutes
	r := s.ends(t, 1, "best", "many", "/stats.json:acc", "--all")
	if want := "UsageError: None of 300 bundles has a number at /stats.json:acc: 300 without a value there"; !strings.Contains(r.stderr, want) {
		t.Errorf("%s, want %s", r.stderr, want)
	}
	if calls < 300/firstBatch || most > readAtOnce {
		t.Errorf("%d calls, %d at a time", calls, most)
	}
}

// The files that were read are counted once that takes long, and the count goes away.
func TestFilesThatWereReadAreCounted(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	var screen strings.Builder
	r := reading{line: &repaint.Line{To: &screen, Width: func() int { return 80 }}, now: func() time.Time { return now }, begun: now, all: 1000}
	if r.add(16); screen.Len() > 0 {
		t.Errorf("a quick read is counted: %q", screen.String())
	}
	now = now.Add(2 * showAfter)
	r.add(16)
	r.end()
	if got := screen.String(); got != "\r\x1b[K32 of 1000 files read\r\x1b[K" {
		t.Errorf("%q", got)
	}
}

func TestQuestionsGrowOnAQuickServer(t *testing.T) {
	t.Parallel()
	size := batchSize(firstBatch)
	for range 10 {
		size = size.after(time.Millisecond)
	}
	if size != mostBatch {
		t.Errorf("a quick server gets questions for %d files", size)
	}
	for range 12 {
		size = size.after(time.Minute)
	}
	if size != 1 || size.after(500*time.Millisecond) != 1 {
		t.Errorf("a slow server gets questions for %d files", size)
	}
}
