package grid_test

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/cmd/internal/grid"
)

// spell writes the members of a grid, or its refusal.
func spell(g grid.Grid) string {
	members, err := g.Members()
	if err != nil {
		return "error: " + err.Error()
	}
	texts := make([]string, len(members))
	for i, m := range members {
		texts[i] = m.String()
	}
	return strings.Join(texts, "; ")
}

func TestGridIsTheProductOfItsSettings(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		grid grid.Grid
		want string
	}{
		{grid.Grid{Each: []string{"lr=0.1,0.01", "seed=1..2"}}, "lr=0.1 seed=1; lr=0.1 seed=2; lr=0.01 seed=1; lr=0.01 seed=2"},
		{grid.Grid{Each: []string{"lr=0.1,0.01", "seed=1..2"}, Zip: true}, "lr=0.1 seed=1; lr=0.01 seed=2"},
		{grid.Grid{Each: []string{"n=3..1"}}, "n=3; n=2; n=1"},
		{grid.Grid{Each: []string{"n=-1..1"}}, "n=-1; n=0; n=1"},
		{grid.Grid{Each: []string{"n=1..10..4,100"}}, "n=1; n=5; n=9; n=100"},
		{grid.Grid{Each: []string{"n=08..10"}}, "n=08; n=09; n=10"},
		{grid.Grid{Each: []string{"p=0.1..0.5..0.1"}}, "p=0.1; p=0.2; p=0.3; p=0.4; p=0.5"},
		{grid.Grid{Each: []string{"p=1..0..-0.25"}}, "p=1.00; p=0.75; p=0.50; p=0.25; p=0.00"},
		{grid.Grid{Each: []string{"p=0..2e-3..1e-3"}}, "p=0.000; p=0.001; p=0.002"},
		{grid.Grid{Each: []string{"n=5..5"}}, "n=5"},
		{grid.Grid{Each: []string{"file=../a,b..c,nan,1..x"}}, "file=../a; file=b..c; file=nan; file=1..x"},
		{grid.Grid{Each: []string{"x=a=b"}}, "x=a=b"},
		{grid.Grid{Tables: []grid.Table{{Names: []string{"a", "b"}, Rows: [][]string{{"1", "x y"}, {"2", ""}}}}, Each: []string{"s=1,2"}}, "s=1 a=1 b=x y; s=1 a=2 b=; s=2 a=1 b=x y; s=2 a=2 b="},
		{grid.Grid{Tables: []grid.Table{{Names: []string{"a"}, Rows: [][]string{{"1"}, {"2"}}}}, Each: []string{"s=1,2"}, Zip: true}, "s=1 a=1; s=2 a=2"},
	} {
		if got := spell(test.grid); got != test.want {
			t.Errorf("%+v:\n got %s\nwant %s", test.grid, got, test.want)
		}
	}
}

func TestBadGridIsOneSentence(t *testing.T) {
	t.Parallel()
	each := func(list ...string) grid.Grid { return grid.Grid{Each: list} }
	for _, test := range []struct {
		grid grid.Grid
		want string
	}{
		{grid.Grid{}, "a sweep needs settings"},
		{each("lr"), "--each wants NAME=VALUES"},
		{each("=1"), "cannot name a setting"},
		{each("a b=1"), "cannot name a setting"},
		{each("sweep=1"), "the tag sweep= means something else"},
		{each("lr="), "the setting lr has no values"},
		{each("lr=1,,2"), "setting lr: there is an empty value in the list"},
		{each("lr=1", "lr=2"), "the setting lr is given twice"},
		{each("lr=0.1,0.2,0.1"), "the setting lr has the value 0.1 twice"},
		{each("n=1..5,3"), "the setting n has the value 3 twice"},
		{each("n=1..5..0"), "setting n: 1..5..0 never comes to its end"},
		{each("n=1..5..-1"), "never comes to its end"},
		{each("lr=0.1..0.5"), "lr is a range without end: --sample N"},
		{each("lr=log:1e-5..1e-1"), "lr is a range without end: --sample N"},
		{each("lr=log:1e-5..1e-1..1e-5"), "has a step, which a range with log: cannot have"},
		{each("lr=log:0..1"), "begins above 0"},
		{each("lr=log:x"), "log:x is no range of numbers"},
		{each("lr=0.5..0.1"), "is empty: the lower number comes first"},
		{each("lr=0.1..0.5,7"), "the range 0.1..0.5 has no end, so nothing can stand beside it"},
		{each("x=1..1000", "y=1..1000"), "the grid has 1000000 members, and a sweep may have 10000; --sample N takes N of them"},
		{each("x=1..1000000"), "the grid has 1000000 members"},
		{each("x=1..1000000000000000000", "y=1..1000000000000000000"), "the grid has more than 10^18 members"},
		{each("x=1..100000000000000000000000000000000"), "the grid has more than 10^18 members"},
		{each("x=0..1e300..1e-300"), "the grid has more than 10^18 members"},
		{grid.Grid{Each: []string{"a=1,2", "b=1..3"}, Zip: true}, "--zip pairs lists of the same length, and a has 2 values, b has 3"},
		{grid.Grid{Each: []string{"a=1,2", "b=0.1..0.2"}, Zip: true, Sample: 3}, "and a has 2 values, b has any number of"},
		{grid.Grid{Each: []string{"a=1,2"}, Sample: 3}, "--sample 3 takes more than the 2 members that there are"},
		{grid.Grid{Each: []string{"a=1,2"}, Sample: -1}, "--sample -1 takes no members"},
		{grid.Grid{Each: []string{"a=1..1000000"}, Sample: 1000000}, "--sample 1000000: a sweep may have 10000 members"},
		{grid.Grid{Each: []string{"a=1.0001..1.0004"}, Sample: 10}, "have only about"},
		{grid.Grid{Tables: []grid.Table{{Names: []string{"a"}}}}, "--each-line found no lines"},
		{grid.Grid{Tables: []grid.Table{{Names: []string{"a"}, Rows: [][]string{{"1"}, {"2"}, {"1"}}}}}, "lines 1 and 3 are the same"},
		{grid.Grid{Tables: []grid.Table{{Names: []string{"a", "b"}, Rows: [][]string{{"1"}}}}}, "line 1 has 1 values, and there are 2 settings: a, b"},
		{grid.Grid{Tables: []grid.Table{{Names: []string{"a", "a"}, Rows: [][]string{{"1", "2"}}}}}, "the setting a is given twice"},
		{grid.Grid{Tables: []grid.Table{{Names: []string{"a"}, Rows: [][]string{{"\xff"}}}}}, "is not UTF-8"},
		{grid.Grid{Tables: []grid.Table{{Names: []string{"a"}, Rows: [][]string{{"a\x00"}}}}}, "zero byte"},
		{each("a=" + strings.Repeat("x", 5000)), "a value has 5000 bytes, and may have 4096"},
	} {
		got := spell(test.grid)
		if !strings.HasPrefix(got, "error: ") || !strings.Contains(got, test.want) || strings.Contains(got, "\n") {
			t.Errorf("%.200s:\n got %.300s\nwant %s", fmt.Sprintf("%+v", test.grid), got, test.want)
		}
	}
}

// A grid of a billion billions is refused as fast as one of a million.
func TestHugeGridIsRefusedWithoutBeingMade(t *testing.T) {
	t.Parallel()
	var each []string
	for i := range 100 {
		each = append(each, fmt.Sprintf("x%d=1..1000000000", i))
	}
	begun := time.Now()
	if got := spell(grid.Grid{Each: each}); !strings.Contains(got, "more than 10^18 members") {
		t.Error(got)
	}
	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("the refusal took %v", took)
	}
}

func TestSampleIsTheSameEverywhereAndGrowsAtItsEnd(t *testing.T) {
	t.Parallel()
	g := grid.Grid{Each: []string{"lr=log:1e-5..1e-1", "seed=1..1000", "opt=adam,sgd"}, Sample: 4, Seed: 1}
	const want = "lr=0.000109 seed=175 opt=adam; lr=4.156e-05 seed=68 opt=sgd; lr=0.001754 seed=786 opt=sgd; lr=1.145e-05 seed=577 opt=adam"
	if got := spell(g); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	g.Sample = 40
	if got := spell(g); !strings.HasPrefix(got, want+"; ") {
		t.Errorf("a larger sample begins with %.120s", got)
	}
	g.Seed = 2
	if got := spell(g); strings.HasPrefix(got, want) {
		t.Error("another seed draws the same sample")
	}
}

func TestSampleStaysInItsRanges(t *testing.T) {
	t.Parallel()
	g := grid.Grid{Each: []string{"a=0.12345..0.9", "b=log:1..1000", "c=-1e-3..1e3"}, Sample: 2000, Seed: 7}
	members, err := g.Members()
	if err != nil {
		t.Fatal(err)
	}
	below := 0
	for _, m := range members {
		for i, bounds := range [][2]float64{{0.12345, 0.9}, {1, 1000}, {-1e-3, 1e3}} {
			value, err := strconv.ParseFloat(m[i].Value, 64)
			if err != nil || value < bounds[0] || value > bounds[1] {
				t.Fatalf("%s: %s is not within %v", m, m[i].Name, bounds)
			}
			if i == 1 && value < 32 { // half of the exponents
				below++
			}
		}
		if strings.ContainsAny(m[1].Value, ".e") {
			t.Fatalf("%s: %s is not whole", m, m[1].Value)
		}
	}
	if below < 900 || below > 1100 {
		t.Errorf("%d of 2000 values of log:1..1000 are below 32", below)
	}
}

// A sample of all members has each once.
func TestSampleHasNoMemberTwice(t *testing.T) {
	t.Parallel()
	g := grid.Grid{Each: []string{"a=1..20", "b=1..20"}, Sample: 400, Seed: 3}
	members, err := g.Members()
	if err != nil {
		t.Fatal(err)
	}
	checkDistinct(t, members)
	if got := len(members); got != 400 {
		t.Errorf("%d members", got)
	}
}

func checkDistinct(t *testing.T, members []grid.Member) {
	t.Helper()
	seen := map[string]bool{}
	for _, m := range members {
		if seen[m.Key()] {
			t.Fatalf("%s is there twice", m)
		}
		seen[m.Key()] = true
	}
}

// FuzzGrid checks the promises of every grid: members differ, there are not too many, and they are the same again.
func FuzzGrid(f *testing.F) {
	f.Add("lr=0.1,0.01", "seed=1..4", false, 0)
	f.Add("lr=log:1e-5..1e-1", "n=1..1000000000", false, 20)
	f.Add("a=01..10..3", "b=1..0..-0.5", true, 0)
	f.Add("a=1..5,7,x", "b=..,1..", false, 3)
	f.Fuzz(func(t *testing.T, a, b string, zip bool, n int) {
		g := grid.Grid{Each: []string{a, b}, Zip: zip, Sample: n, Seed: 1}
		members, err := g.Members()
		if err != nil {
			return
		}
		again, _ := g.Members()
		if !reflect.DeepEqual(members, again) || len(members) > grid.MaxMembers || len(members) == 0 {
			t.Fatalf("%d members, then %d", len(members), len(again))
		}
		checkDistinct(t, members)
		names, err := g.SettingNames()
		for _, m := range members {
			if err != nil || len(m) != len(names) {
				t.Fatalf("%s does not have the settings %s: %v", m, names, err)
			}
		}
	})
}

func TestRowsAreReadFromFiles(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		text   string
		format grid.Format
		names  []string
		want   string
	}{
		{"plain", "\ufeffa b\r\n\r\nc,d\n", grid.Plain, nil, "[line] [[a b] [c,d]]"},
		{"plain with a name", "a b\n", grid.Plain, []string{"x"}, "[x] [[a b]]"},
		{"plain with names", "1,2\n3,4", grid.Plain, []string{"x", "y"}, "[x y] [[1 2] [3 4]]"},
		{"tabs", "1\t2,5\n3\t4", grid.Plain, []string{"x", "y"}, "[x y] [[1 2,5] [3 4]]"},
		{"csv", "lr, seed\n0.1,\"1,5\"\n", grid.CSV, nil, "[lr seed] [[0.1 1,5]]"},
		{"csv with names", "0.1,1\n", grid.CSV, []string{"lr", "seed"}, "[lr seed] [[0.1 1]]"},
		{"tsv", "lr\tsay\n1\ta \"b\"\n", grid.TSV, nil, "[lr say] [[1 a \"b\"]]"},
		{"jsonl", `{"lr": 1e-3, "opt": "adam", "on": true, "net": [1, 2], "none": null}` + "\n" + `{"opt":"sgd","lr":2,"on":false,"net":{},"none":0}`, grid.JSONL, nil, "[lr opt on net none] [[1e-3 adam true [1,2] ] [2 sgd false {} 0]]"},
	} {
		table, err := grid.ReadRows(strings.NewReader(test.text), test.format, test.names)
		if got := fmt.Sprint(table.Names, " ", table.Rows); err != nil || got != test.want {
			t.Errorf("%s: got %s, %v\nwant %s", test.name, got, err, test.want)
		}
	}
}

func TestBadFileOfRowsIsOneSentence(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		text   string
		format grid.Format
		want   string
	}{
		{strings.Repeat("x", 2<<20), grid.Plain, "line 1 has more than 1048576 bytes"},
		{strings.Repeat("x\n", 10_002), grid.Plain, "the file has more than 10000 lines"},
		{"a,b\n1\n", grid.CSV, "read table: record on line 2: wrong number of fields"},
		{"x\n", grid.JSONL, "line 1: it is no object of JSON"},
		{"[1]\n", grid.JSONL, "line 1: it is no object of JSON"},
		{`{"a":1,"a":2}`, grid.JSONL, "line 1: it has the setting a twice"},
		{`{"a":1} {"a":2}`, grid.JSONL, "line 1: it is no object of JSON"},
		{"{\"a\":1}\n{\"b\":1}", grid.JSONL, "line 2 has other settings than line 1: a"},
		{"{\"a\":1}\n{\"a\":1,\"b\":1}", grid.JSONL, "line 2 has other settings than line 1: a"},
	} {
		_, err := grid.ReadRows(strings.NewReader(test.text), test.format, nil)
		if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%.40q: got %v\nwant %s", test.text, err, test.want)
		}
	}
}

// A file without an end is not read to its end.
func TestEndlessFileOfRowsIsRefused(t *testing.T) {
	t.Parallel()
	_, err := grid.ReadRows(endless{}, grid.Plain, nil)
	if err == nil || !strings.Contains(err.Error(), "more than 10000 lines") {
		t.Error(err)
	}
}

// endless is a file of the line y, over and over.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = "y\n"[i%2]
	}
	return len(p) / 2 * 2, nil
}

func TestSettingsStandInBraces(t *testing.T) {
	t.Parallel()
	m := grid.Member{{Name: "lr", Value: "0.1"}, {Name: "seed", Value: "3"}, {Name: "odd", Value: "{seed}"}}
	for text, want := range map[string]string{
		"train --lr {lr} --seed {seed}":     "train --lr 0.1 --seed 3",
		"{{lr}} is {lr}":                    "{lr} is 0.1",
		"awk '{print $1}' | sort {a,b}":     "awk '{print $1}' | sort {a,b}",
		`echo '{"lr":{lr},"x":{"y":1}}'`:    `echo '{"lr":0.1,"x":{"y":1}}'`,
		"for i in {1..3}; do ${lr}; done":   "for i in {1..3}; do ${lr}; done",
		"docker --format '{{.Name}}' {{x}}": "docker --format '{{.Name}}' {{x}}",
		"{odd}":                             "{seed}",
		"{{lrr}}":                           "{lrr}",
		"{}{lr}{":                           "{}0.1{",
		"{ lr }":                            "{ lr }",
	} {
		if got := grid.Fill(text, m); got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
}

func TestSettingThatIsMistypedOrUnusedIsAnError(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		text, want string
	}{
		{"train --lr {lr} --seed {seed}", ""},
		{"train --lr {lr} --seed {sed}", "there is no setting sed: did you mean {seed}? {{sed}} stands for the braces themselves"},
		{"train --lr {LR} --seed {seed}", "there is no setting LR: did you mean {lr}?"},
		{"train --lr {lr}", "the setting seed is used nowhere: write {seed} in the command, or in the name after -n"},
		{"train {lr} ${seed}", "the setting seed is used nowhere: ${seed} is a variable of the shell, and {seed} the setting"},
		{"train {lr} {{seed}}", "the setting seed is used nowhere"},
		{"awk '{print}' {lr} {seed} {{sed}}", ""},
	} {
		err := grid.CheckUse([]string{"lr", "seed"}, test.text)
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %s", test.text, err, test.want)
		}
	}
	if err := grid.CheckUse([]string{"lr", "rep"}, "train {lr}", "run-{rep}"); err != nil {
		t.Error(err)
	}
}

// FuzzFill checks that a text without settings stays as it is, and that nothing is filled in twice.
func FuzzFill(f *testing.F) {
	f.Add("a {lr} {{lr}} ${lr} {{{lr}}}", "{lr}")
	f.Add("{{{{lr}}}}", "x")
	f.Fuzz(func(t *testing.T, text, value string) {
		if got := grid.Fill(text, nil); got != text {
			t.Errorf("%q without settings becomes %q", text, got)
		}
		if !strings.Contains(text, "lr") {
			m := grid.Member{{Name: "lr", Value: value}}
			if got := grid.Fill("["+text+"]{lr}", m); !strings.HasSuffix(got, "]"+value) {
				t.Errorf("%q: %q", text, got)
			}
		}
	})
}

func TestMemberIsNamedAfterItsSettings(t *testing.T) {
	t.Parallel()
	m := grid.Member{{Name: "lr", Value: "0.1"}, {Name: "data", Value: "a b/ü"}}
	if got, want := grid.NameOf("train", m, 64), "train-lr0.1-dataa-b-"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := grid.NameOf("train", m, 9); got != "train-lr0" {
		t.Error(got)
	}
	if diff := cmp.Diff(m.Key(), grid.Member{m[1], m[0]}.Key()); diff != "" {
		t.Error(diff)
	}
}
