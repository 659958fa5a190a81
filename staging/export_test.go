package staging

import (
	"context"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// Dependency brings one dependency in, as Stage does.
func (s *Stager) Dependency(ctx context.Context, d codalab.Dependency) (string, error) {
	return s.RunDependency(ctx, codalab.RunDependency{Dependency: d})
}

// RunDependency is Dependency with what a run message says besides.
func (s *Stager) RunDependency(ctx context.Context, d codalab.RunDependency) (string, error) {
	s.begin()
	found, err := s.dependency(ctx, codalab.RunBundle{}, d, &part{name: d.ChildPath})
	return found.Source, err
}
