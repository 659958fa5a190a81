package codalab_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/codalab"
)

func TestTagsSayHowOftenARunMayBeResumed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		tags []string
		want int
		bad  bool
	}{
		{nil, 0, false},
		{[]string{"resume", "resumed=3", "vision"}, 0, false},
		{[]string{"resume=0"}, 0, false},
		{[]string{"vision", "resume=3"}, 3, false},
		{[]string{"resume=3", "resume=7"}, 7, false},
		{[]string{"resume=1000"}, 1000, false},
		{[]string{"resume=1001"}, 0, true},
		{[]string{"resume=99999999999999999999"}, 0, true},
		{[]string{"resume=-1"}, 0, true},
		{[]string{"resume=+1"}, 0, true},
		{[]string{"resume=abc"}, 0, true},
		{[]string{"resume="}, 0, true},
		{[]string{"resume= 3"}, 0, true},
		{[]string{"resume=3\n"}, 0, true},
		{[]string{"resume=abc", "resume=3"}, 0, true},
	} {
		m := codalab.Metadata{"tags": c.tags}
		n, err := m.Resumes()
		if n != c.want || (err != nil) != c.bad {
			t.Errorf("%q: %d times, %v", c.tags, n, err)
		}
		if err != nil && (!strings.HasSuffix(err.Error(), ".") || !strings.Contains(err.Error(), "a number from 0 to 1000, not ")) {
			t.Errorf("%q: %v", c.tags, err)
		}
	}
}

func TestRunAsksForOneNumberOfResumptions(t *testing.T) {
	t.Parallel()
	m := codalab.Metadata{"tags": []string{"resume=3", "vision"}}
	m.SetResumes(5)
	if want := []string{"vision", "resume=5"}; !slices.Equal(m.Strings("tags"), want) {
		t.Errorf("%q, want %q", m.Strings("tags"), want)
	}
	m.SetResumes(0)
	if want := []string{"vision"}; !slices.Equal(m.Strings("tags"), want) {
		t.Errorf("%q, want %q", m.Strings("tags"), want)
	}
}
