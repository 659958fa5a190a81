package staging

import (
	"context"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// Dependency brings one dependency in, as Stage does.
func (s *Stager) Dependency(ctx context.Context, d codalab.Dependency) (string, error) {
	s.begin()
	return s.copied(ctx, codalab.RunBundle{}, d, &part{name: d.ChildPath})
}
