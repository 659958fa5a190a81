package codalab_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/codalab"
)

const aSweep = "0x0123456789abcdef0123456789abcdef"

func TestSettingsComeBackFromTags(t *testing.T) {
	t.Parallel()
	settings := []codalab.Setting{{"lr", "0.1"}, {"prompt", "a b,c 100%\n"}, {"none", ""}, {"word", "größe=1"}}
	m := codalab.Metadata{"tags": append([]string{"mine", "x=1"}, codalab.SweepTags(aSweep, settings)...)}
	m.SetResumes(3) // it appends its tag
	if got := m.Sweep(); got != aSweep {
		t.Errorf("belongs to %q", got)
	}
	if diff := cmp.Diff(settings, m.Settings()); diff != "" {
		t.Errorf("settings (-want +got):\n%s", diff)
	}
	for _, tag := range m.Strings("tags") {
		if strings.ContainsAny(tag, " ,\n") {
			t.Errorf("tag %q is no word", tag)
		}
	}
}

func TestBundleWithoutSweepHasNoSettings(t *testing.T) {
	t.Parallel()
	for _, tags := range [][]string{nil, {"lr=0.1"}, {"sweep=train", "lr=0.1"}, {"sweep"}} {
		m := codalab.Metadata{"tags": tags}
		if m.Sweep() != "" || m.Settings() != nil {
			t.Errorf("%q: %q, %v", tags, m.Sweep(), m.Settings())
		}
	}
}

func TestSettingCannotTakeATagThatMeansSomethingElse(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"sweep", "resume", "max-parallel", "copy-of", "git-commit", "git-branch", "", "1", "a b", "a=b", "{x}"} {
		if codalab.CheckSettingName(name) == nil {
			t.Errorf("%q may name a setting", name)
		}
	}
}

func TestBoundOfASweepIsReadFromItsTags(t *testing.T) {
	t.Parallel()
	tags := codalab.WithMaxParallel([]string{"sweep", "paper"}, 8)
	if got := codalab.MaxParallel(tags); got != 8 {
		t.Errorf("%q: %d", tags, got)
	}
	if tags = codalab.WithMaxParallel(tags, 0); codalab.MaxParallel(tags) != 0 || len(tags) != 2 {
		t.Errorf("without a bound: %q", tags)
	}
	for _, tag := range []string{"max-parallel=", "max-parallel=-1", "max-parallel=0", "max-parallel=9999999999999", "max-parallel=x"} {
		if got := codalab.MaxParallel([]string{tag}); got != 0 {
			t.Errorf("%q: %d", tag, got)
		}
	}
}
