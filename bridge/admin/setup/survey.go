package setup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/cl-slurm/cl-slurm/bridge/canary"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// slurmSite has the commands of Slurm that survey uses. *sbatch.Client is one.
type slurmSite interface {
	Partitions(ctx context.Context) ([]sbatch.Partition, error)
	Associations(ctx context.Context, user string) ([]sbatch.Association, error)
	Try(ctx context.Context, r sbatch.Request) error
}

// queue is a queue for one partition.
type queue struct {
	// Name is set by choose.
	Name      string
	Partition sbatch.Partition
	// Account is one that Slurm takes jobs for in the partition; empty where Slurm
	// chooses. Others are the user's other accounts there.
	Account string
	Others  []string
	// Default is set for the queue of bundles that name none.
	Default bool
}

// survey returns a queue for each partition that a user may use, and a sentence with the reason for each other
// partition. It fails where Slurm does not list its partitions.
func survey(ctx context.Context, slurm slurmSite, user string) (usable []queue, leftOut []string, err error) {
	partitions, err := slurm.Partitions(ctx)
	if err != nil {
		return nil, nil, err
	}
	associations, _ := slurm.Associations(ctx, user) // without a database nobody has accounts
	for _, p := range partitions {
		q, err := queueFor(ctx, slurm, p, associations)
		if err != nil {
			leftOut = append(leftOut, fmt.Sprintf("partition %s: %v", p.Name, err))
			continue
		}
		usable = append(usable, q)
	}
	return usable, leftOut, nil
}

// queueFor makes a queue for a partition, with the first account that Slurm takes
// there. It fails where Slurm would not run a job there.
func queueFor(ctx context.Context, slurm slurmSite, p sbatch.Partition, associations []sbatch.Association) (queue, error) {
	switch {
	case !p.Up():
		return queue{}, errors.New("it is " + p.State)
	case p.Nodes == 0:
		return queue{}, errors.New("it has no nodes")
	}
	accounts := accountsFor(p, associations)
	var refused error
	for n, account := range accounts {
		_, err := canary.Ask(ctx, slurm, plan.Queue{Partition: p.Name, Account: account})
		if err == nil {
			return queue{Partition: p, Account: account, Others: slices.Delete(accounts, n, n+1)}, nil
		}
		refused = cmp.Or(refused, err)
	}
	if said, ok := errors.AsType[*sbatch.Error](refused); ok {
		refused = errors.New(said.Message)
	}
	if p.Ready == 0 {
		return queue{}, fmt.Errorf("none of its %d nodes is up: %w", p.Nodes, refused)
	}
	return queue{}, refused
}

// accountsFor returns the accounts that jobs of a partition may be charged to, the
// default one first; an empty one where Slurm is to choose.
func accountsFor(p sbatch.Partition, associations []sbatch.Association) []string {
	var accounts []string
	for _, a := range associations {
		switch {
		case a.Partition != "" && a.Partition != p.Name || slices.Contains(accounts, a.Account):
		case a.Default:
			accounts = slices.Insert(accounts, 0, a.Account)
		default:
			accounts = append(accounts, a.Account)
		}
	}
	if len(accounts) == 0 {
		return []string{""}
	}
	return accounts
}
