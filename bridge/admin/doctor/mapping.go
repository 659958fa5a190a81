package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cl-slurm/cl-slurm/bridge/canary"
	"github.com/cl-slurm/cl-slurm/bridge/config"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab/client"
)

// mappings checks the tables [[map]]: what each gives its owners, on each of its queues that can run jobs at all.
func (e *Examination) mappings(ctx context.Context, site Site, gpus map[string]int64) {
	queues := e.Config.Plan()
	for i, m := range e.Config.Mappings() {
		if m.Billing.String() == "" {
			continue // there is nothing that Slurm could refuse
		}
		for _, name := range e.Config.QueueNames() {
			if _, healthy := gpus[name]; !healthy || len(m.Queues) > 0 && !slices.Contains(m.Queues, name) {
				continue
			}
			q := queues[name].Billed(m.Billing)
			check := Known(i, q, site)
			if check.Verdict == "" {
				_, err := canary.Ask(ctx, e.Slurm, q)
				check = TriedMapping(i, q, site, err)
			}
			e.add(check)
		}
	}
}

// Known judges the account and the QOS that the table [[map]] with this index gives the jobs of a queue, by the
// accounting database alone. The check is empty if the database does not decide.
func Known(i int, q plan.Queue, s Site) Check {
	known := accounts(s)
	if len(known) == 0 {
		return Check{}
	}
	if q.Account != "" && !slices.Contains(known, q.Account) {
		return failed(config.MappingKey(i, "account"), fmt.Sprintf("%s may not charge account %q", s.User, q.Account), advice("", "account", q.Account, s.User, known))
	}
	if of := qualities(q, s); q.QOS != "" && !slices.Contains(of, q.QOS) {
		return failed(config.MappingKey(i, "qos"), fmt.Sprintf("%s has no QOS %q there", s.User, q.QOS), advice("", "QOS", q.QOS, s.User, of))
	}
	return Check{}
}

// TriedMapping judges the error of [canary.Ask] for a queue with what the table [[map]] with this index gives its jobs.
func TriedMapping(i int, q plan.Queue, s Site, err error) Check {
	c := Tried(q, s, err)
	if err == nil {
		c.Found = fmt.Sprintf("Slurm takes jobs of %s in queue %s: %s", s.User, q.Name, charged(q, s))
		c.Name = config.MappingKey(i, "account")
		return c
	}
	if key, ok := strings.CutPrefix(c.Name, "queue."+q.Name+"."); ok {
		c.Name = config.MappingKey(i, key)
	} else {
		c.Name = fmt.Sprintf("map.%d", i+1)
	}
	return c
}

// groupsOfMap warns of groups in the tables [[map]] on a server that does not tell the groups of owners.
func (e *Examination) groupsOfMap(ctx context.Context, cl *client.Client) {
	i := slices.IndexFunc(e.Config.Map, func(m config.Mapping) bool { return len(m.Groups) > 0 })
	if i < 0 {
		return
	}
	if _, err := cl.Offers(ctx); errors.Is(err, errors.ErrUnsupported) { // a call of cl-server's
		e.add(warning(config.MappingKey(i, "groups"), "CodaLab's own server does not tell the groups of owners: the entry counts for its users alone",
			"name the users, by their ids"))
	}
}
