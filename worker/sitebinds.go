package worker

import (
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/spool"
)

// planBinds plans the binds of the site's directories. A directory that is not there is the node's fault. A dependency
// must not have the path of one.
func planBinds(spec spool.Spec) ([]container.Bind, error) {
	var binds []container.Bind
	for _, b := range spec.Binds {
		for _, d := range spec.Dependencies {
			if path.IsAbs(d.ChildPath) && nested(path.Clean(d.ChildPath), b.Target) {
				return nil, &userError{fmt.Sprintf("The dependency %q has the path of a directory of this queue, or one lies inside the other: give it another key.", d.ChildPath)}
			}
		}
		if _, err := os.Stat(b.Source); err != nil {
			return nil, &container.HostError{Err: fmt.Errorf("a directory of the queue (binds in the bridge's configuration) is not there: %w", err), AnyRuntime: true}
		}
		binds = append(binds, container.Bind{Source: b.Source, Target: b.Target, ReadOnly: true, OfOthers: true})
	}
	return binds, nil
}

// siteVariables returns the site's variables without those that the bundle has as a secret.
func siteVariables(spec spool.Spec) []string {
	return slices.DeleteFunc(slices.Clone(spec.Environment), func(variable string) bool {
		name, _, _ := strings.Cut(variable, "=")
		return slices.Contains(spec.Secrets, name)
	})
}
