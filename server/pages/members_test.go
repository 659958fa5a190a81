package pages

import (
	"fmt"
	"math"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
)

const testSweep = "0x000000000000000000000000000005ee"

// testRun is a ready run of a sweep. Its settings are written NAME=VALUE.
func testRun(name string, settings ...string) client.BundleInfo {
	tags := append([]string{"mine", "sweep=" + testSweep}, settings...)
	return client.BundleInfo{Bundle: codalab.Bundle{UUID: "0x" + name, Type: codalab.TypeRun, State: codalab.StateReady, Metadata: codalab.Metadata{"name": name, "tags": tags}}}
}

// testTable is a table of runs with a setting and a value; "-" stands for a missing one.
func testTable(pairs ...[2]string) members {
	var runs []client.BundleInfo
	found := map[string]any{}
	for i, p := range pairs {
		name := string(rune('a' + i%26))
		b := testRun(name)
		if p[0] != "-" {
			b = testRun(name, "x="+p[0])
		}
		b.UUID = fmt.Sprint("0x", i)
		if p[1] != "-" {
			found[b.UUID] = p[1]
		}
		runs = append(runs, b)
	}
	return newMembers(runs, []string{"/s:y"}, func(uuid, _ string) any { return found[uuid] })
}

func names(t members) string {
	var all []string
	for _, m := range t.Rows {
		all = append(all, m.Name())
	}
	return strings.Join(all, " ")
}

func TestTableOfASweepHasTheSettingsThatDiffer(t *testing.T) {
	t.Parallel()
	runs := []client.BundleInfo{testRun("a", "lr=0.1", "data=x"), testRun("b", "lr=0.2", "data=x"), testRun("c", "data=x", "seed=1")}
	table := newMembers(runs, []string{"/stats.json:acc"}, func(uuid, _ string) any { return map[string]any{"0xa": 0.5, "0xb": []any{}}[uuid] })
	if want := []string{"setting:lr", "setting:seed", "/stats.json:acc"}; !slices.Equal(table.Columns, want) {
		t.Errorf("the columns are %q", table.Columns)
	}
	if len(table.Same) != 1 || table.Same[0] != (codalab.Setting{Name: "data", Value: "x"}) {
		t.Errorf("the same are %v", table.Same)
	}
	got := ""
	for _, m := range table.Rows {
		for _, c := range m.Cells {
			got += fmt.Sprintf("%s:%v ", c.Text, c.There)
		}
	}
	if want := "0.1:true :false 0.5:true 0.2:true :false :false :false 1:true :false "; got != want {
		t.Errorf("the cells are %s", got)
	}
	if one := newMembers(runs[:1], nil, nil); len(one.Columns) != 2 {
		t.Errorf("a single run has the columns %q", one.Columns)
	}
	if none := newMembers(nil, []string{"/a:b"}, nil); len(none.Rows) != 0 || none.states() != "" || !none.started().IsZero() {
		t.Errorf("%+v", none)
	}
}

func TestNewestRunOfAMemberCounts(t *testing.T) {
	t.Parallel()
	again := testRun("d", "lr=0.1")
	other := testRun("e", "lr=0.1")
	other.Metadata["tags"] = []string{"sweep=0x00000000000000000000000000000001", "lr=0.1"}
	got := newest(testSweep, []client.BundleInfo{testRun("a", "lr=0.1"), testRun("b", "lr=0.2"), again, again, other})
	if len(got) != 2 || got[0].UUID != "0xd" || got[1].UUID != "0xb" {
		t.Errorf("%v", got)
	}
}

func TestRunsAreSortedByNumberThenTextAndMissingOnesAreLast(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		column     string
		descending bool
		want       string
	}{
		"numbers":        {"setting:x", false, "c a b d e"},
		"the other way":  {"setting:x", true, "b a c d e"},
		"a value":        {"/s:y", false, "b d e c a"},
		"unknown column": {"setting:none", false, "a b c d e"},
		"names":          {columnName, true, "e d c b a"},
	} {
		table := testTable([2]string{"9", "-"}, [2]string{"10", "1"}, [2]string{"1e-3", "NaN"}, [2]string{"text", "2"}, [2]string{"-", "3"})
		table.sort(test.column, test.descending)
		if got := names(table); got != test.want {
			t.Errorf("%s: %s instead of %s", name, got, test.want)
		}
	}
}

func TestBestRunIsReadyAndHasANumber(t *testing.T) {
	t.Parallel()
	for column, want := range map[string]int{"/s:acc": 1, "/s:loss": 2} {
		runs := []client.BundleInfo{testRun("a"), testRun("b"), testRun("c"), testRun("d")}
		runs[0].State = codalab.StateFailed
		table := newMembers(runs, []string{column}, func(uuid, _ string) any {
			return map[string]any{"0xa": 99.0, "0xb": 2.0, "0xc": 1.0, "0xd": "NaN"}[uuid]
		})
		if got := table.best(column); got != want {
			t.Errorf("%s: %d", column, got)
		}
	}
	if got := testTable([2]string{"1", "-"}).best("/s:y"); got != -1 {
		t.Errorf("a best one without values: %d", got)
	}
}

func TestHeadOfASortedColumnTurnsItAround(t *testing.T) {
	t.Parallel()
	for query, want := range map[string]string{
		"":                       "/p?sort=setting%3Alr ",
		"sort=setting:lr":        "/p?desc=1&sort=setting%3Alr ascending",
		"sort=setting:lr&desc=1": "/p?sort=setting%3Alr descending",
	} {
		q, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		h := readSorting(q).heading("/p", "setting:lr", "lr", true)
		if got := h.Address + " " + h.Sorted; got != want {
			t.Errorf("%s: %s instead of %s", query, got, want)
		}
	}
}

func TestColumnsAreValuesOfFiles(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                             "[]",
		" /a.json:x, /b.yaml:y/z\r\n":  "[/a.json:x /b.yaml:y/z]",
		"acc":                          `"acc" is no value of a file`,
		"/log.jsonl:-1:loss":           "[/log.jsonl:-1:loss]",
		"/a.json:x /a.json:x":          "[/a.json:x]",
		"/a /b /c /d /e /f /g /h /i":   "at most 8 values",
		"/" + strings.Repeat("a", 200): "at most 200 bytes",
	} {
		list, err := checkColumns(splitColumns(text))
		got := fmt.Sprint(list)
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, want) {
			t.Errorf("%q: %s", text, got)
		}
	}
}

func TestAxisFitsItsValues(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		values []string
		want   string
	}{
		"numbers":           {[]string{"0.1", "0.9"}, "0@0.00 0.2@0.20 0.4@0.40 0.6@0.60 0.8@0.80 1@1.00"},
		"one number":        {[]string{"3", "3"}, "3@0.50"},
		"negative":          {[]string{"-1", "1"}, "-1@0.00 -0.5@0.25 0@0.50 0.5@0.75 1@1.00"},
		"wide":              {[]string{"0.001", "1"}, "log 0.001@0.00 0.01@0.33 0.1@0.67 1@1.00"},
		"very wide":         {[]string{"1e-12", "1"}, "log 1e-12@0.00 1e-10@0.17 1e-08@0.33 1e-06@0.50 0.0001@0.67 0.01@0.83 1@1.00"},
		"wide with zero":    {[]string{"0", "1000"}, "0@0.00 200@0.20 400@0.40 600@0.60 800@0.80 1000@1.00"},
		"texts":             {[]string{"b", "a", "b"}, "a@0.00 b@1.00"},
		"one text":          {[]string{"a"}, "a@0.50"},
		"numbers and texts": {[]string{"adam", "10", "9"}, "9@0.00 10@0.50 adam@1.00"},
		"missing":           {[]string{"1", "-"}, "missing 1@0.50"},
		"all missing":       {[]string{"-"}, "missing"},
		"all floats":        {[]string{"-1.7e308", "1.7e308"}, "-1.7e+308@0.00 1.7e+308@1.00"},
		"a long text":       {[]string{strings.Repeat("é", 40)}, strings.Repeat("é", 15) + "…@0.50"},
	} {
		var list []cell
		for _, v := range test.values {
			c := textCell(v)
			c.There = v != "-"
			list = append(list, c)
		}
		a := newAxis("x", list)
		var got []string
		if a.Log {
			got = append(got, "log")
		}
		if a.Missing {
			got = append(got, "missing")
		}
		for _, m := range a.Ticks {
			got = append(got, fmt.Sprintf("%s@%.2f", m.Label, m.At))
		}
		if text := strings.Join(got, " "); text != test.want {
			t.Errorf("%s: %s instead of %s", name, text, test.want)
		}
		for i, c := range list {
			if at, there := a.at(c); there != c.There || at < 0 || at > 1 || math.IsNaN(at) {
				t.Errorf("%s: value %d is at %v", name, i, at)
			}
		}
	}
	var many []cell
	for i := range 40 {
		many = append(many, cell{Text: fmt.Sprintf("t%02d", i), There: true})
	}
	if a := newAxis("x", many); len(a.Ticks) != mostCategories+1 || a.Ticks[mostCategories].Label != "other" {
		t.Errorf("%v", a.Ticks)
	}
}

func TestPlotsShowEachRunAndBoundThem(t *testing.T) {
	t.Parallel()
	table := testTable([2]string{"1", "0"}, [2]string{"2", "1"}, [2]string{"-", "0.5"}, [2]string{"1.5", "-"})
	s := newScatter(table, "setting:x", "/s:y")
	got := ""
	for _, p := range s.Points {
		got += fmt.Sprintf("%s,%s,%v ", p.X, p.Y, p.Whole)
	}
	if want := "116,284,true 690,30,true 103,157,false 403,297,false "; got != want {
		t.Errorf("the points are %s", got)
	}
	if s.Points[2].Title != "c (ready), x missing, /s:y 0.5" || !s.X.Missing || !s.Y.Missing {
		t.Errorf("%+v", s.Points[2])
	}
	p := newParallel(table, []string{"setting:x", "/s:y"})
	best := p.Lines[len(p.Lines)-1]
	if len(p.Axes) != 2 || len(p.Lines) != 4 || !best.Best || best.UUID != "0x1" || best.Points != "60,50 660,50" {
		t.Errorf("%+v", p)
	}
	if newScatter(testTable([2]string{"1", "-"}), "setting:x", "/s:y") != nil || newScatter(members{}, columnRan, columnRan) != nil || newParallel(table, []string{"/s:y"}) != nil {
		t.Error("a plot of nothing")
	}
	var pairs [][2]string
	for i := range mostDrawn + 5 {
		pairs = append(pairs, [2]string{fmt.Sprint(i), fmt.Sprint(i)})
	}
	many := testTable(pairs...)
	many.Columns = append(many.Columns, slices.Repeat([]string{"/s:y"}, mostAxes+3)...)
	if s := newScatter(many, "setting:x", "/s:y"); len(s.Points) != mostDrawn || s.Left != 5 {
		t.Errorf("%d points, %d left", len(s.Points), s.Left)
	}
	if p := newParallel(many, many.Columns); len(p.Lines) != mostDrawn || p.Left != 5 || len(p.Axes) != mostAxes || p.LeftAxes != 5 {
		t.Errorf("%d lines, %d left, %d axes, %d left", len(p.Lines), p.Left, len(p.Axes), p.LeftAxes)
	}
}

func TestWayAfterAnActionStaysOnThePages(t *testing.T) {
	t.Parallel()
	for next, want := range map[string]string{
		"/runs?q=a":              "/runs?done=remove&n=2&q=a",
		"/sweeps/0x1?sort=name":  "/sweeps/0x1?done=remove&n=2&sort=name",
		"/bundles/0x1":           "/runs",
		"https://evil.example/":  "/runs",
		"//evil.example/sweeps/": "/runs",
		"":                       "/runs",
	} {
		if got := afterAction(url.Values{"next": {next}, "action": {"remove"}}, 2); got != want {
			t.Errorf("%q leads to %s", next, got)
		}
	}
}
