package staging

import (
	"context"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// Dependency brings one dependency in, as Stage does.
func (s *Stager) Dependency(ctx context.Context, d codalab.Dependency) (string, error) {
	s.begin()
	found, err := s.dependency(ctx, codalab.RunBundle{}, codalab.RunDependency{Dependency: d}, &part{name: d.ChildPath})
	return found.Source, err
}
