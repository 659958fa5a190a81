package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/spelling"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
)

const (
	mostQueues = 20 // that a status names
	mostKinds  = 5  // of workers that a status names
)

// whyWaiting explains to the owner why no worker takes a run. It tells only of workers that the owner
// may use.
func (v *places) whyWaiting(run *Waiting, tag string, served []*Capacity) string {
	if len(served) == 0 {
		return v.whyUnserved(run, tag)
	}
	worker := "No worker"
	if tag != "" {
		worker += " of queue " + tag
	}
	largeEnough := func(c *Capacity) bool { return c.largeEnough(run) }
	if c := closed(run, served); c != nil && !slices.ContainsFunc(served, func(c *Capacity) bool { return largeEnough(c) && !c.Closed }) {
		if queue := cmp.Or(tag, c.Tag); queue != "" {
			return fmt.Sprintf("Queue %s takes no new bundles now: %s.", queue, c.WhyClosed)
		}
		return fmt.Sprintf("The workers take no new bundles now: %s.", c.WhyClosed)
	}
	large := slices.DeleteFunc(slices.Clone(served), func(c *Capacity) bool { return !largeEnough(c) && !c.mayBeLargeEnough(run) })
	if len(large) > 0 && !slices.ContainsFunc(large, func(c *Capacity) bool { return c.lasts(run) }) {
		return fmt.Sprintf("%s runs for as long as %s: they end before that.", worker, codalab.FormatDuration(time.Duration(run.Resources.Time)*time.Second))
	}
	if len(large) > 0 {
		return worker + " has room now; the bundle runs when one has."
	}
	why := fmt.Sprintf("%s is large enough for %s. Available resources: %s.", worker, formatResources(run.Resources), available(run, served))
	if others := v.queues(run, largeEnough); others != "" {
		why += " Queues with larger workers: " + others + "."
	}
	return why
}

// whyUnserved explains to the owner why no worker serves a run's queue.
func (v *places) whyUnserved(run *Waiting, tag string) string {
	of := ""
	if tag != "" {
		of = " of queue " + tag
	}
	if v.lacksSecrets(run, tag) {
		return fmt.Sprintf("No worker%s may have secrets: a run with secrets needs a worker of yours or of the site, and not CodaLab's own.", of)
	}
	tags := v.tags(run, func(*Capacity) bool { return true })
	now := cmp.Or(listed(tags), "none")
	if tag == "" {
		return fmt.Sprintf("No worker takes bundles that name no queue (queues now served: %s).", now)
	}
	if since := v.awaySince(run, tag); !since.IsZero() {
		return fmt.Sprintf("Queue %s is away since %s, and the bundle waits for it (queues now served: %s).", tag, since.UTC().Format("2006-01-02 15:04 UTC"), now)
	}
	if v.lacksPermission(run, tag) {
		return fmt.Sprintf("Queue %s takes those bundles of its group on which the user of its worker has all permissions, and this one is none of them (queues now served: %s).", tag, now)
	}
	why := fmt.Sprintf("No worker serves queue %s (queues now served: %s).", tag, now)
	if meant := spelling.Nearest(tag, tags); meant != "" {
		why += " Did you mean " + meant + "?"
	}
	return why
}

// lacksSecrets reports whether there would be workers for a run if it named no secrets.
func (v *places) lacksSecrets(run *Waiting, tag string) bool {
	open := *run
	open.Secrets = false
	return run.Secrets && len(v.serving(&open, tag)) > 0
}

// lacksPermission reports whether a worker of the queue takes runs of a group of which the run's owner is a member.
func (v *places) lacksPermission(run *Waiting, tag string) bool {
	return slices.ContainsFunc(v.all, func(c *Capacity) bool { return c.Tag == tag && c.Serves.Members[run.OwnerID] })
}

// closed returns one of these workers that may be large enough for a run, and takes none now for a reason that it gives; nil
// if there is none. Of several reasons it is always the same one, so that match need not write it at each pass.
func closed(run *Waiting, workers []*Capacity) *Capacity {
	var found *Capacity
	for _, c := range workers {
		if !c.mayBeLargeEnough(run) || c.WhyClosed == "" {
			continue
		}
		if found == nil || cmp.Or(strings.Compare(c.WhyClosed, found.WhyClosed), strings.Compare(c.Tag, found.Tag)) < 0 {
			found = c
		}
	}
	return found
}

// available spells what the best workers have. It leaves out a worker if another has at least as much of
// each resource (codalab/server/bundle_manager.py: _get_resource_recommendations). Free disk changes all
// the time, so it counts only for a run that requests disk.
func available(run *Waiting, workers []*Capacity) string {
	have := make([]codalab.Resources, 0, len(workers))
	for _, c := range workers {
		for _, size := range c.Sizes() {
			if run.Resources.Disk == 0 {
				size.Disk = 0
			}
			have = append(have, size)
		}
	}
	var words []string
	for n, r := range withoutSmaller(have) {
		if n == mostKinds {
			words = append(words, "and others")
			break
		}
		words = append(words, formatResources(r))
	}
	return strings.Join(words, "; ")
}

// withoutSmaller sorts sizes, those with the most GPUs first, and leaves out those that fit into another one.
func withoutSmaller(sizes []codalab.Resources) (best []codalab.Resources) {
	slices.SortFunc(sizes, func(a, b codalab.Resources) int { // so none has less than one behind it
		return cmp.Or(cmp.Compare(b.GPUs, a.GPUs), cmp.Compare(b.CPUs, a.CPUs), cmp.Compare(b.Memory, a.Memory), cmp.Compare(b.Disk, a.Disk))
	})
	for _, r := range sizes {
		if !slices.ContainsFunc(best, func(better codalab.Resources) bool { return fits(r, better) }) {
			best = append(best, r)
		}
	}
	return best
}

// awaySince returns the last check-in of the queue of this tag that takes a run and is away; zero for none.
func (v *places) awaySince(run *Waiting, tag string) (since time.Time) {
	for _, c := range v.away {
		if c.Tag == tag && c.Takes(run) && c.AwaySince.After(since) {
			since = c.AwaySince
		}
	}
	return since
}

// queues names the queues of those workers that take a run and suit.
func (v *places) queues(run *Waiting, suits func(*Capacity) bool) string {
	return listed(v.tags(run, suits))
}

// tags returns the tags of those workers that take a run and suit.
func (v *places) tags(run *Waiting, suits func(*Capacity) bool) []string {
	var tags []string
	for _, c := range v.all {
		if c.Tag != "" && suits(c) && c.Takes(run) {
			tags = append(tags, c.Tag)
		}
	}
	slices.Sort(tags)
	return slices.Compact(tags)
}

// listed joins tags. It counts those that are too many.
func listed(tags []string) string {
	if more := len(tags) - mostQueues; more > 0 {
		tags = append(slices.Clone(tags[:mostQueues]), fmt.Sprintf("and %d more", more))
	}
	return strings.Join(tags, ", ")
}

func formatResources(r codalab.Resources) string {
	words := fmt.Sprintf("%s, %s, %s memory", termtext.Count(r.CPUs, "CPU"), termtext.Count(r.GPUs, "GPU"), codalab.FormatSize(r.Memory))
	if r.Disk > 0 {
		words += ", " + codalab.FormatSize(r.Disk) + " disk"
	}
	return words
}
