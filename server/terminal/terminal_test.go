package terminal //nolint:testpackage // it reads command lines without a server

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// lines are command lines of run, with what becomes of them.
func lines() map[string]given {
	return map[string]given{
		"date":                                   {arguments: []string{"date"}},
		"'-a 3' date":                            {arguments: []string{"date"}, options: map[string][]string{"after_sort_key": {"3"}}},
		"-a 3 date":                              {arguments: []string{"date"}, options: map[string][]string{"after_sort_key": {"3"}}},
		"-n x --request-cpus 2 date":             {arguments: []string{"date"}, options: map[string][]string{"name": {"x"}, "request-cpus": {"2"}}},
		"--request-n date":                       {arguments: []string{"date"}, options: map[string][]string{"request-network": {"true"}}},
		"--request-network=false date":           {arguments: []string{"date"}, options: map[string][]string{"request-network": {"false"}}},
		"date --exclude-patterns '*.o' b -n x":   {arguments: []string{"date"}, options: map[string][]string{"exclude-patterns": {"*.o", "b"}, "name": {"x"}}},
		"-- --date":                              {arguments: []string{"--date"}},
		"'--verbose is a word of a command' -2 ": {arguments: []string{"--verbose is a word of a command", "-2"}},
	}
}

func TestOptionsAreReadAsByArgparse(t *testing.T) {
	t.Parallel()
	known := append(metadataOptions(), option{name: "after_sort_key", short: "a", kind: isValue})
	for line, want := range lines() {
		words, err := codalab.SplitWords(line)
		if err != nil {
			t.Fatal(err)
		}
		got, err := read(known, words)
		if want.options == nil {
			want.options = map[string][]string{}
		}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(given{})); diff != "" || err != nil {
			t.Errorf("%s: %v %s", line, err, diff)
		}
	}
	for _, line := range []string{"--nothing date", "-z date", "--name", "--request-network=maybe date", "-n"} {
		words, _ := codalab.SplitWords(line)
		if got, err := read(known, words); err == nil {
			t.Errorf("%s is %+v", line, got)
		}
	}
}

func TestTagsOfThePageAreWords(t *testing.T) {
	t.Parallel()
	if diff := cmp.Diff([]string{"x", "y z", "plain", "it's"}, listed([]string{"'x','y z'", "", "plain", "it's"})); diff != "" {
		t.Error(diff)
	}
}
