package assembly

import (
	"context"

	"github.com/cl-slurm/cl-slurm/sbatch"
)

// SlurmLimits asks a site's Slurm for the limits on a user's jobs. It is a bridge.LimitSource.
type SlurmLimits struct {
	Slurm *sbatch.Client
	User  string
}

// Limits asks for the limits.
func (s SlurmLimits) Limits(ctx context.Context, cluster string) (sbatch.LimitTable, error) {
	return s.Slurm.Limits(ctx, cluster, s.User)
}

// Use asks for their use.
func (s SlurmLimits) Use(ctx context.Context, qos []string) (sbatch.LimitUse, error) {
	return s.Slurm.LimitUse(ctx, s.User, qos)
}
