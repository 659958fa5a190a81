package bridge

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

// strayArray is a bridge whose ledger was restored from a copy that is older than the array 55: its rows still stage.
func strayArray(t *testing.T, tasks int) (a *arrays, disk spool.Disk, list spool.Members) {
	t.Helper()
	rows := several("1", 0, tasks)
	for i := range rows {
		rows[i].Staged = nil
		list.Attempts = append(list.Attempts, spool.Member{Bundle: rows[i].Bundle, Name: "1-b1b2b3", Identity: rows[i].Run.Identity().Digest()})
	}
	a = newArrays(t, rows...)
	a.b.decider.generation = 9 // as after "cl-bridge recover --accept"
	a.b.contact.generation.Store(9)
	for i := range tasks {
		a.jobs = append(a.jobs, sbatch.Job{
			ID: sbatch.JobID(55).Task(i), Name: "cl-1-000000000000.1-5-b1b2b3", Comment: fmt.Sprintf("codalab tasks=%d owner=1 bridge=b1b2b3 generation=5", tasks),
			State: sbatch.StatePending, Reason: "Priority", Submitted: a.now.Add(-time.Minute),
		})
	}
	dir := t.TempDir()
	if err := os.Mkdir(dir+"/spool", 0o700); err != nil {
		t.Fatal(err)
	}
	disk, list.Submission = spool.Disk{Layout: spool.Layout(dir)}, "b1b2b3.5"
	a.b.members.spool = membersDisk{disk: disk}
	return a, disk, list
}

// look lets time pass, and removes the lists of members that nobody needs in each minute.
func (a *arrays) look(minutes int) {
	a.t.Helper()
	for range minutes {
		if err := a.b.RemoveMembers(a.now); err != nil {
			a.t.Error(err)
		}
		passWithRecords(a.t, a, time.Minute)
	}
}

func TestTaskIsTakenUpByItsBundleAfterAnOldCopyOfTheLedger(t *testing.T) {
	t.Parallel()
	a, disk, list := strayArray(t, 5)
	list.Attempts[1].Identity = "0123456789abcdef" // an earlier bundle of this UUID
	list.Attempts[3].Bundle = "0xgone"
	if err := disk.WriteMembers(list); err != nil {
		t.Fatal(err)
	}
	a.begun[a.row(0).Bundle] = spool.Started{Token: "w", Node: "n1", Job: sbatch.JobID(55).Task(0).String(), At: a.now}
	a.jobs[0].State, a.jobs[0].Nodes = sbatch.StateRunning, "n1"
	a.look(9)
	for i, want := range map[int]plan.Phase{0: plan.Running, 1: plan.Staging, 2: plan.Queued, 3: plan.Staging, 4: plan.Queued} {
		a.want("phase", a.row(i).Phase, want)
		r, job := a.row(i), sbatch.JobID(0)
		if want != plan.Staging {
			job = sbatch.JobID(55).Task(i)
			if !r.Shared || r.Index != i || r.Attempt.Number != 1 || r.Generation != 5 || r.OnDisk != "1-b1b2b3" || r.SubmissionName != "cl-1-000000000000.1-5-b1b2b3" {
				t.Errorf("row %d has the attempt %+v", i, r.Attempt)
			}
		}
		a.want("job", r.Job.ID, job)
	}
	slices.Sort(a.cancelled)
	a.want("cancelled", slices.Compact(a.cancelled), []sbatch.JobID{sbatch.JobID(55).Task(1), sbatch.JobID(55).Task(3)})
	if _, err := os.Stat(disk.Layout.MembersPath(list.Name())); err != nil {
		t.Errorf("the list that the array's waiting tasks need: %v", err)
	}
	a.jobs = nil
	for i := range 5 {
		a.kill(i)
	}
	a.look(9)
	if _, err := os.Stat(disk.Layout.MembersPath(list.Name())); err == nil {
		t.Error("the list stays when nobody needs it")
	}
}

// A task whose bundle is not known for certain is an orphan, as before; while the disk does not tell, it is left alone.
func TestTaskOfAnUnknownBundleIsCancelled(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change    func(list *spool.Members)
		second    bool
		cancelled int
	}{
		"a list of an older bridge":    {change: func(list *spool.Members) { list.Attempts[0].Identity, list.Attempts[1].Identity = "", "" }, cancelled: 2},
		"a list of another array":      {change: func(list *spool.Members) { list.Attempts = list.Attempts[:1] }, cancelled: 2},
		"two arrays of one generation": {change: func(*spool.Members) {}, second: true, cancelled: 2},
		"no list":                      {cancelled: 2},
		"a list that cannot be read":   {change: func(list *spool.Members) { list.Attempts = nil }},
	} {
		a, disk, list := strayArray(t, 2)
		if c.change != nil {
			c.change(&list)
			if err := disk.WriteMembers(list); err != nil {
				t.Fatal(err)
			}
		}
		if c.second {
			list.Attempts[0], list.Attempts[1] = list.Attempts[1], list.Attempts[0]
			if err := disk.WriteMembers(list); err != nil {
				t.Fatal(err)
			}
		}
		if name == "a list that cannot be read" {
			if err := os.WriteFile(disk.Layout.MembersPath(list.Name()), []byte("{"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		a.look(8)
		slices.Sort(a.cancelled)
		a.want(name+": cancelled", len(slices.Compact(a.cancelled)), c.cancelled)
		a.want(name+": phases", a.phases(0, 2), all(2, plan.Staging))
	}
}

// The output of a pack tells why it has left its members, which may have gone to another one by then.
func TestOutputOfAPackStaysForAWhile(t *testing.T) {
	t.Parallel()
	a, disk, list := strayArray(t, 2)
	if err := disk.WriteMembers(list); err != nil {
		t.Fatal(err)
	}
	output := disk.Layout.ArrayOutputPath(list.Name())
	if err := os.WriteFile(output, []byte("the node is at fault\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(output, a.now, a.now); err != nil {
		t.Fatal(err)
	}
	policy := *a.b.inForce.now()
	policy.KeepAfterAck = 10 * time.Minute
	a.b.inForce.set(&policy)
	a.jobs = nil
	for i := range 2 {
		a.kill(i)
	}
	a.look(9)
	if _, err := os.Stat(disk.Layout.MembersPath(list.Name())); err == nil {
		t.Error("the list stays when nobody needs it")
	}
	if _, err := os.Stat(output); err != nil {
		t.Errorf("after 9 minutes: %v", err)
	}
	a.look(3)
	if _, err := os.Stat(output); err == nil {
		t.Error("it stays for longer than the files of a bundle")
	}
}
