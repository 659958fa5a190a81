package bridge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

// strayArrays are the arrays in Slurm with tasks that no row has, and the packs without rows. The list of members tells their bundles: a
// row may take its task, or the pack, up. They are safe for concurrent use.
type strayArrays struct {
	mu sync.Mutex
	// noted is set once a snapshot was compared with the rows.
	noted bool
	// lists are the lists of each array or pack, by generation; nil until they are read.
	lists map[int64][]spool.Members
}

// note notes the arrays and packs of a snapshot's orphan jobs.
func (a *strayArrays) note(jobs []sbatch.Job, orphans plan.OrphanJobs) {
	a.mu.Lock()
	defer a.mu.Unlock()
	before := a.lists
	a.lists, a.noted = map[int64][]spool.Members{}, true
	for _, j := range jobs {
		if _, orphan := orphans[j.ID]; !orphan {
			continue
		}
		if stamp, ok := plan.SharedStampOf(j); ok {
			a.lists[stamp.Generation] = before[stamp.Generation]
		}
	}
}

// generations returns the generations of the arrays and packs; ok is false before the first snapshot.
func (a *strayArrays) generations() (generations map[int64]bool, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	generations = map[int64]bool{}
	for generation := range a.lists {
		generations[generation] = true
	}
	return generations, a.noted
}

// read notes the lists that were read.
func (a *strayArrays) read(lists map[int64][]spool.Members) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for generation := range a.lists {
		if found, ok := lists[generation]; ok {
			a.lists[generation] = found
		}
	}
}

// isUnread reports whether a job is of an array or a pack whose lists were not read yet.
func (a *strayArrays) isUnread(j sbatch.Job) bool {
	stamp, ok := plan.SharedStampOf(j)
	a.mu.Lock()
	defer a.mu.Unlock()
	return ok && a.lists[stamp.Generation] == nil
}

// found returns what rows may take up of an orphan job: that of one row, or those of all members of a pack. It returns none for a job
// whose bundles are not known for certain: an array or a pack without a list, or one of two of a generation that a restored
// ledger has given twice.
func (a *strayArrays) found(j sbatch.Job) []plan.Found {
	if stamp, ok := plan.StampOf(j); ok {
		return []plan.Found{{Stamp: stamp, Job: j}}
	}
	stamp, ok := plan.SharedStampOf(j)
	if _, index, isTask := j.ID.ArrayTask(); ok && isTask != stamp.Pack {
		members := a.membersOf(stamp)
		var found []plan.Found
		for i, m := range members {
			if (i == index || stamp.Pack) && m.Identity != "" {
				found = append(found, plan.Found{Stamp: stamp.Of(m), Job: j, Shared: true, Pack: stamp.Pack, Index: i})
			}
		}
		return found
	}
	return nil
}

// membersOf returns the members of a stray array or pack; nil if they are not known for certain.
func (a *strayArrays) membersOf(stamp plan.SharedStamp) []spool.Member {
	a.mu.Lock()
	defer a.mu.Unlock()
	var members []spool.Member
	for _, list := range a.lists[stamp.Generation] {
		if len(list.Attempts) != stamp.Members {
			continue
		}
		if members != nil {
			return nil
		}
		members = slices.Concat(list.Attempts, list.Joined)
	}
	return members
}

// memberWatch reads the lists of members of stray arrays and packs, and removes the lists of submissions that no row in flight and none
// of those has any more. The output of such a submission stays for as long after its last line as the files of a bundle after its end:
// it tells why a pack has left its members.
type memberWatch struct {
	spool   Spool
	inForce *inForce
	contact *contact
	stray   *strayArrays
	view    *view
	now     func() time.Time
	log     *slog.Logger
}

// membersEvery is the pause between two looks at the lists of members.
const membersEvery = time.Minute

// run looks every membersEvery until ctx ends.
func (w *memberWatch) run(ctx context.Context) error {
	return tryEvery(ctx, membersEvery, w.now, func(now time.Time) error { return errors.Join(w.find(), w.remove(now)) }, func(err error) {
		w.log.WarnContext(ctx, "cannot read lists of members, or remove those that no job needs", errorAttr(err))
	})
}

// find implements Bridge.FindMembers.
func (w *memberWatch) find() error {
	stray, _ := w.stray.generations()
	if len(stray) == 0 {
		return nil
	}
	bridge := w.inForce.now().Bridge
	found, err := w.spool.Members(func(submission string) bool {
		generation, ok := generationOf(submission, bridge)
		return ok && stray[generation]
	})
	if err != nil {
		return fmt.Errorf("read lists of members: %w", err)
	}
	lists := map[int64][]spool.Members{}
	for generation := range stray {
		lists[generation] = []spool.Members{} // it is read, if there is none
	}
	for _, list := range found {
		generation, _ := generationOf(list.Submission, bridge)
		lists[generation] = append(lists[generation], list)
	}
	w.stray.read(lists)
	return nil
}

// generationOf returns the generation of a submission of a bridge; ok is false for another bridge's.
func generationOf(submission, bridge string) (generation int64, ok bool) {
	of, digits, _ := strings.Cut(submission, ".")
	generation, err := strconv.ParseInt(digits, 10, 64)
	return generation, err == nil && of == bridge
}

// remove implements Bridge.RemoveMembers. It lists the files before it looks at the rows: a row is saved before the list of its
// submission is written. Until Slurm was seen, the ledger may be older than its jobs.
func (w *memberWatch) remove(now time.Time) error {
	needed, ok := w.stray.generations()
	if !ok {
		return nil
	}
	found, err := w.spool.MembersFiles()
	if err != nil || len(found) == 0 {
		return err
	}
	for _, r := range w.view.inFlight() {
		if r.Shared {
			needed[r.Generation] = true
		}
	}
	var errs []error
	policy := w.inForce.now()
	for _, f := range found {
		if now.Sub(f.Written) < policy.KeepAfterAck {
			continue
		}
		if generation, ok := generationOf(f.Submission, policy.Bridge); ok && generation <= w.contact.generation.Load() && !needed[generation] {
			errs = append(errs, w.spool.RemoveMembers(f))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("remove lists of members: %w", err)
	}
	return nil
}
