package draft

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/cl-slurm/cl-slurm/bridge/doctor"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// Slurm is what a survey asks. *sbatch.Client is one.
type Slurm interface {
	Partitions(ctx context.Context) ([]sbatch.Partition, error)
	Associations(ctx context.Context, user string) ([]sbatch.Association, error)
	Try(ctx context.Context, r sbatch.Request) error
}

// Queue is a queue for one partition.
type Queue struct {
	// Name is set by [Draft.Choose].
	Name      string
	Partition sbatch.Partition
	// Account is one that Slurm takes jobs for in the partition; empty where Slurm
	// chooses. Others are the user's other accounts there.
	Account string
	Others  []string
	// Default is set for the queue of bundles that name none.
	Default bool
}

// Survey returns a queue for each partition that a user may use, and a sentence for
// each other partition that says why not. It fails where Slurm does not list its
// partitions.
func Survey(ctx context.Context, slurm Slurm, user string) (usable []Queue, leftOut []string, err error) {
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
func queueFor(ctx context.Context, slurm Slurm, p sbatch.Partition, associations []sbatch.Association) (Queue, error) {
	switch {
	case !p.Up():
		return Queue{}, errors.New("it is " + p.State)
	case p.Nodes == 0:
		return Queue{}, errors.New("it has no nodes")
	}
	accounts := accountsFor(p, associations)
	var refused error
	for n, account := range accounts {
		_, err := doctor.Try(ctx, slurm, plan.Queue{Partition: p.Name, Account: account})
		if err == nil {
			return Queue{Partition: p, Account: account, Others: slices.Delete(accounts, n, n+1)}, nil
		}
		refused = cmp.Or(refused, err)
	}
	var said *sbatch.Error
	if errors.As(refused, &said) {
		refused = errors.New(said.Message)
	}
	return Queue{}, refused
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
