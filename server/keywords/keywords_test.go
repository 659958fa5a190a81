package keywords_test

import (
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/server/keywords"
)

func TestParse(t *testing.T) {
	t.Parallel()
	term := func(key string, values ...keywords.Value) keywords.Query {
		return keywords.Query{Terms: []keywords.Term{{Key: key, Values: values}}, Limit: 10}
	}
	for words, want := range map[string]keywords.Query{
		"":                         {Limit: 10},
		"train":                    term(keywords.Word, "%train%"),
		"a.*b":                     term(keywords.Word, "%a%b%"),
		"=secret":                  term(keywords.Any, "%secret%"),
		"=":                        {Limit: 10},
		"name=x":                   term("name", "x"),
		"name=":                    term("name", ""),
		"name=x.*y%":               term("name", "x%y%"),
		"command=a=b":              term("command", "a=b"),
		"state=ready,failed":       term("state", "ready", "failed"),
		"dependency/in/put=0x1":    term("dependency/in/put", "0x1"),
		"a-b=c":                    term(keywords.Word, "%a-b=c%"),
		".mine":                    term(".mine"),
		".notmine":                 term(".notmine"),
		".shared":                  term(".shared"),
		".floating":                term(".floating"),
		".before=2026-01-02":       term(".before", "2026-01-02"),
		".last":                    {Sort: &keywords.Sort{Key: "id", Descending: true}, Limit: 10},
		"size=.sort":               {Sort: &keywords.Sort{Key: "size"}, Limit: 10},
		"size=.sort-":              {Sort: &keywords.Sort{Key: "size", Descending: true}, Limit: 10},
		"size=.sort name=.sort":    {Sort: &keywords.Sort{Key: "name"}, Limit: 10},
		"size=.sum":                {Sum: "size", Limit: 10},
		".count":                   {Count: true, Limit: 10},
		".limit=3 .offset=4":       {Limit: 3, Offset: 4},
		"/s.json:a/b=.sort-":       {Sort: &keywords.Sort{Key: "/s.json:a/b", Descending: true}, Limit: 10},
		"/s.json:a.*b":             term("/s.json:a.*b"),
		"/s.json:a=b.*":            term("/s.json:a", "b%"),
		"/ckpt-e=3.json:a-b=7":     term("/ckpt-e=3.json:a-b", "7"),
		"/a=b:c":                   term("/a", "b:c"),
		"/log.jsonl:-1:loss<=-1e3": {Terms: []keywords.Term{{Key: "/log.jsonl:-1:loss", Op: "<=", Bound: -1000}}, Limit: 10},
		"time>3.5":                 {Terms: []keywords.Term{{Key: "time", Op: ">", Bound: 3.5}}, Limit: 10},
		"state!=ready,failed":      {Terms: []keywords.Term{{Key: "state", Op: "!=", Values: []keywords.Value{"ready", "failed"}}}, Limit: 10},
		"a-b<c":                    term(keywords.Word, "%a-b<c%"),
		".format=s/.*/x/ .count":   {Count: true, Format: "s/.*/x/", Limit: 10},
		"train .mine state=ready .limit=0": {Terms: []keywords.Term{
			{Key: keywords.Word, Values: []keywords.Value{"%train%"}}, {Key: ".mine"}, {Key: "state", Values: []keywords.Value{"ready"}},
		}},
	} {
		want.Words = strings.Split(words, " ")
		got, err := keywords.Parse(want.Words)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v %s", words, err, diff)
		}
	}
}

func TestSearchesThatAreRefused(t *testing.T) {
	t.Parallel()
	for sentence, words := range map[string][]string{
		".limit must be a number of at least 0, not '-1'":               {".limit=-1"},
		".offset must be a number of at least 0, not '-9'":              {".offset=-9"},
		"/s.json:acc< needs a number, not 'many'":                       {"/s.json:acc<many"},
		"/s.json:acc>= needs a number, not 'NaN'":                       {"/s.json:acc>=NaN"},
		"time< needs a number, not ''":                                  {"time<"},
		".limit must be a number of at least 0, not 'many'":             {".limit=many"},
		".limit must be a number of at least 0, not '9%'":               {".limit=9.*"},
		"A search may have at most 100 keywords":                        make([]string, 101),
		"A search may have at most 1000 values":                         {"uuid=" + strings.Repeat("x,", 1000)},
		"A search may have at most 100 words and values with wildcards": {"name=" + strings.Repeat("%,", 101)},
		"A keyword may have at most 10000 bytes":                        {strings.Repeat("x", 10_001)},
		"A keyword must be UTF-8 text without null characters":          {"a\x00b"},
		"A keyword must be UTF-8 text without null characters, too.":    {"\xff"},
	} {
		_, err := keywords.Parse(words)
		var no *keywords.Error
		if !errors.As(err, &no) || !strings.HasPrefix(sentence, no.Error()) {
			t.Errorf("%.50q: %v, want %s", words, err, sentence)
		}
	}
}

func TestParseTime(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Time{
		"2026":                      time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
		"2026-03":                   time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC),
		"2026-03-14":                time.Date(2026, 3, 14, 0, 0, 0, 0, time.UTC),
		"20260314":                  time.Date(2026, 3, 14, 0, 0, 0, 0, time.UTC),
		"2026-03-14 15":             time.Date(2026, 3, 14, 15, 0, 0, 0, time.UTC),
		"2026-03-14T15:09:26.5":     time.Date(2026, 3, 14, 15, 9, 26, 500_000_000, time.UTC),
		"2026-03-14T15:09:26Z":      time.Date(2026, 3, 14, 15, 9, 26, 0, time.UTC),
		"2026-03-14T00:00:00-08":    time.Date(2026, 3, 14, 8, 0, 0, 0, time.UTC),
		"2026-03-14T00:00:00+01:30": time.Date(2026, 3, 13, 22, 30, 0, 0, time.UTC),
	} {
		if got, err := keywords.ParseTime(text); err != nil || !got.Equal(want) {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "soon", "2026-13-01", "2026-02-30", "14.3.2026"} {
		if got, err := keywords.ParseTime(text); err == nil {
			t.Errorf("%s: %v", text, got)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{"name=a,b .mine", ".limit=9 .format=%d", "=x", "a\x00", "size=.sort-", ".before=2026-01-01T00:00", ".format=[1:-1] | s/a/b/ | key x"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		q, err := keywords.Parse(strings.Split(text, " "))
		var no *keywords.Error
		if err != nil {
			if !errors.As(err, &no) || !utf8.ValidString(no.Error()) {
				t.Errorf("%q", err)
			}
			return
		}
		if q.Limit < 0 || q.Offset < 0 {
			t.Errorf("%+v", q)
		}
		for _, term := range q.Terms {
			for _, v := range term.Values {
				_, _ = keywords.ParseTime(string(v))
				if strings.Contains(string(v), "\x00") || strings.Count(v.Pattern(), `\`) < strings.Count(string(v), "_") {
					t.Errorf("%q", v)
				}
			}
		}
	})
}
