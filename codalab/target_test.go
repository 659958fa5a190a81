package codalab

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDependenciesAreReadAsCodaLabReadsThem(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		specs   []string
		command string
		want    []Input
		wantCmd string
	}{
		{nil, "date", nil, "date"},
		{[]string{"data:mydata"}, "cat data", []Input{{"data", "mydata"}}, "cat data"},
		{[]string{":mydata"}, "x", []Input{{"mydata", "mydata"}}, "x"},
		{[]string{":mydata/sub/f"}, "x", []Input{{"sub/f", "mydata/sub/f"}}, "x"},
		{[]string{":ws//mydata"}, "x", []Input{{"mydata", "ws//mydata"}}, "x"},
		{[]string{"mydata", "other"}, "x", []Input{{"b1", "mydata"}, {"b2", "other"}}, "x"},
		{[]string{"k:a", "k:a"}, "x", []Input{{"k", "a"}}, "x"},
		{[]string{"k:^2/f"}, "x", []Input{{"k", "^2/f"}}, "x"},
		{nil, "cat %a.txt% > out", []Input{{"b1", "a.txt"}}, "cat b1 > out"},
		{nil, "%corenlp%/run %:a.txt% %corenlp%", []Input{{"b1", "corenlp"}, {"a.txt", "a.txt"}}, "b1/run a.txt b1"},
		{nil, "date +100%", nil, "date +100%"},
		{nil, "cat %a% %a% 50%%", []Input{{"b1", "a"}}, "cat b1 b1 50%"},
		{[]string{":w//f"}, "100%", []Input{{"f", "w//f"}}, "100%"},
	} {
		got, command, err := RunInputs(test.specs, test.command)
		if err != nil || command != test.wantCmd {
			t.Errorf("%q %q: command %q, %v, want %q", test.specs, test.command, command, err, test.wantCmd)
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%q %q: %s", test.specs, test.command, diff)
		}
	}
}

func TestContradictoryDependenciesAreRefused(t *testing.T) {
	t.Parallel()
	for _, specs := range [][]string{{"k:a", "k:b"}, {":"}, {"k:"}, {":/f"}, {"k:a", "k/b:c"}, {"a/../../b"}} {
		if got, _, err := RunInputs(specs, "x"); err == nil {
			t.Errorf("%q was read as %v", specs, got)
		}
	}
	if CheckKeys([]Input{{"a/b", "x"}, {"a", "y"}}) == nil {
		t.Error("a key below another was accepted")
	}
	if err := CheckKeys([]Input{{"ab", "x"}, {"a", "y"}}); err != nil {
		t.Error(err)
	}
}

func TestTargetsAreReadAsCodaLabReadsThem(t *testing.T) {
	t.Parallel()
	for spec, want := range map[string]TargetSpec{
		"a":                    {Bundle: "a"},
		"a/b/c":                {Bundle: "a", Subpath: "b/c"},
		"^2/stdout":            {Bundle: "^2", Subpath: "stdout"},
		"ws//a/b":              {Worksheet: "ws", Bundle: "a", Subpath: "b"},
		"http://h:2900::a":     {Instance: "http://h:2900", Bundle: "a"},
		"http://h::ws//a/b":    {Instance: "http://h", Worksheet: "ws", Bundle: "a", Subpath: "b"},
		"0x01c8d0/":            {Bundle: "0x01c8d0"},
		"home-anna//name^3/f ": {Worksheet: "home-anna", Bundle: "name^3", Subpath: "f "},
	} {
		got, err := ParseTarget(spec)
		if err != nil || got != want {
			t.Errorf("%q: got %+v, %v, want %+v", spec, got, err, want)
		}
	}
	for _, spec := range []string{"", "ws//", "/x"} {
		if got, err := ParseTarget(spec); err == nil {
			t.Errorf("%q was read as %+v", spec, got)
		}
	}
}

func TestMistakeBetweenPercentSignsTellsWhatTheyMean(t *testing.T) {
	t.Parallel()
	_, _, err := RunInputs(nil, "date +%/x%")
	wrong, ok := errors.AsType[*SpecError](err)
	want := `"/x" names no bundle. %/x% in the command names a bundle: write %% for a percent sign`
	if !ok || wrong.Marked != "/x" || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
