package worker

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/spool"
)

func TestMissingDirectoryOfTheSiteIsTheNodesFaultAndATakenPathTheBundles(t *testing.T) {
	t.Parallel()
	here := t.TempDir()
	spec := spool.Spec{Binds: []spool.Bind{{Source: here, Target: "/hf"}}}
	want := []container.Bind{{Source: here, Target: "/hf", ReadOnly: true, OfOthers: true}}
	if got, err := planBinds(spec); err != nil || !cmp.Equal(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	for _, key := range []string{"/hf", "/hf/x", "/hf/../hf/", "//hf"} {
		taken := spec
		taken.Dependencies = []spool.Dependency{{ChildPath: key}}
		if _, err := planBinds(taken); !errors.As(err, new(*userError)) {
			t.Errorf("dependency %q: %v", key, err)
		}
	}
	spec.Dependencies = []spool.Dependency{{ChildPath: "hf"}, {ChildPath: "/hfx"}}
	if _, err := planBinds(spec); err != nil {
		t.Error(err)
	}
	spec.Binds[0].Source = filepath.Join(here, "missing")
	var host *container.HostError
	if _, err := planBinds(spec); !errors.As(err, &host) || !host.AnyRuntime || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

func TestSecretHasPriorityOverAVariableOfTheSite(t *testing.T) {
	t.Parallel()
	spec := spool.Spec{Environment: []string{"A=1", "B=x=y", "C="}, Secrets: []string{"B"}}
	if got, want := siteVariables(spec), []string{"A=1", "C="}; !cmp.Equal(got, want) {
		t.Errorf("%q", got)
	}
}
