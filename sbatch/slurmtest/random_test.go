package slurmtest_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/sbatch/slurmtest"
)

// day is a controller with random events, and with nodes that carry out its orders.
type day struct {
	model
	rand    *rand.Rand
	running []slurmtest.Order // launches with live processes
	begun   map[string]bool
}

// id returns the number of a job, of an array or of a task, or the id of a task. There may be none.
func (d *day) id() sbatch.JobID {
	id := sbatch.JobID(1 + d.rand.IntN(40))
	if d.rand.IntN(3) == 0 {
		return id.Task(d.rand.IntN(6))
	}
	return id
}

// happens makes a random event.
func (d *day) happens() {
	nodes := []string{"n1", "n2", "n3", "n4"}
	switch n := d.rand.IntN(114); {
	case n < 30:
		d.submits()
	case n < 55 && len(d.running) > 0:
		o := d.running[d.rand.IntN(len(d.running))]
		d.ends(o, slurmtest.End{Code: d.rand.IntN(2)})
	case n < 65:
		_ = d.Cancel(d.now, ann, d.id(), "") // there may be none
	case n < 70:
		_ = d.Requeue(d.now, d.id()) // it may not be allowed
	case n < 73:
		d.Preempt(d.now, d.id(), n%2 == 0)
	case n < 76:
		_ = d.SetNode(d.now, nodes[d.rand.IntN(4)], slurmtest.NodeDown) // they are known
	case n < 79:
		_ = d.SetNode(d.now, nodes[d.rand.IntN(4)], slurmtest.NodeLost) // they are known
	case n < 85:
		_ = d.SetNode(d.now, nodes[d.rand.IntN(4)], slurmtest.NodeResume) // it may be there
	case n < 88:
		d.FailBoot(d.now, d.id())
	case n < 90:
		d.Release(d.now, d.id())
	case n < 91:
		d.Hold(d.now, d.id())
	case n < 96:
		d.Suspend(d.now, d.id())
	case n < 99:
		d.Resume(d.now, d.id())
	case n < 100:
		d.Stop(d.now)
	case n < 103:
		d.Start(d.now)
	case n < 105:
		_ = d.Update(d.now, d.id(), slurmtest.Change{Partition: []string{"", "gpu", "cpu"}[d.rand.IntN(3)], Time: time.Duration(d.rand.IntN(3)) * time.Minute, Requeue: n%2 == 0}) // it may have ended
	case n < 106:
		_ = d.RequeueHold(d.now, d.id()) // it may not be allowed
	default:
		d.now = d.now.Add(time.Duration(d.rand.IntN(100)) * time.Second)
	}
}

func (d *day) submits() {
	r := request("a", [][]string{nil, {"--hold"}, {"--requeue"}}[d.rand.IntN(3)]...)
	r.Tasks = max(0, d.rand.IntN(9)-3)
	r.CPUs, r.Partition = int64(1+d.rand.IntN(40)), []string{"", "gpu", "short"}[d.rand.IntN(3)]
	if r.Partition == "gpu" {
		r.GPUs = int64(d.rand.IntN(4))
	}
	_, _ = d.Submit(d.now, ann, r) // the controller may be away
}

func (d *day) ends(o slurmtest.Order, end slurmtest.End) {
	for i, r := range d.running {
		if r.Job == o.Job && r.Restart == o.Restart {
			d.running = append(d.running[:i], d.running[i+1:]...)
			d.Ended(d.now, o.Job, o.Restart, end)
			return
		}
	}
}

// obeys executes the orders.
func (d *day) obeys() {
	d.now = d.now.Add(time.Duration(d.rand.IntN(2000)) * time.Millisecond)
	var killed []slurmtest.Order
	for _, o := range d.Advance(d.now) {
		switch o.Kind {
		case slurmtest.Start:
			once := fmt.Sprint(o.Job, o.Restart)
			if d.begun[once] {
				d.Fatalf("job %s was begun twice", once)
			}
			d.begun[once] = true
			d.running = append(d.running, o)
		case slurmtest.Kill:
			killed = append(killed, o)
		case slurmtest.Terminate, slurmtest.Suspend, slurmtest.Resume: // these processes ignore TERM, and use no time
		}
	}
	for _, o := range killed {
		d.ends(o, slurmtest.End{Signal: 9})
	}
}

// fits checks that no node runs more than it has room for.
func (d *day) fits() {
	s, err := d.Observe(d.now, ann)
	if err != nil {
		return // it is away
	}
	state := map[sbatch.JobID]sbatch.State{}
	for _, j := range s.Jobs {
		state[j.ID] = j.State
		onNode := j.State == sbatch.StateRunning || j.State == sbatch.StateSuspended
		if onNode != (j.Nodes != "" && !j.State.Ended() && j.State != sbatch.StateCompleting) {
			d.Fatalf("%+v", j)
		}
	}
	cpus, gpus := map[string]int64{}, map[string]bool{}
	for _, o := range d.running {
		if s := state[o.Job]; s != sbatch.StateRunning && s != sbatch.StateSuspended {
			continue
		}
		if cpus[o.Node] += o.Request.CPUs; cpus[o.Node] > 64 {
			d.Fatalf("%s runs %d CPUs", o.Node, cpus[o.Node])
		}
		for _, g := range o.GPUs {
			if id := fmt.Sprint(o.Node, g); gpus[id] {
				d.Fatalf("GPU %s was given twice", id)
			} else {
				gpus[id] = true
			}
		}
	}
}

func TestWhateverHappensNoJobBeginsTwiceAndNothingIsLeftOccupied(t *testing.T) {
	t.Parallel()
	for seed := range uint64(60) {
		d := &day{model: *newModel(t), rand: rand.New(rand.NewPCG(seed, 1)), begun: map[string]bool{}}
		for range 300 {
			d.happens()
			d.obeys()
			d.fits()
		}
		d.Start(d.now)
		for id := range sbatch.JobID(5000) {
			if err := d.Cancel(d.now, ann, id, ""); err != nil {
				t.Fatal(err)
			}
		}
		for _, node := range []string{"n1", "n2", "n3", "n4"} {
			_ = d.SetNode(d.now, node, slurmtest.NodeResume) // it may be there
		}
		for end := d.now.Add(time.Hour); len(d.running) > 0 || d.now.Before(end); d.obeys() {
			if d.now.After(end.Add(time.Hour)) {
				t.Fatalf("seed %d: not killed: %+v", seed, d.running)
			}
		}
		d.begun = map[string]bool{}
		for range 4 {
			r := request("whole node")
			r.CPUs, r.Partition = 64, "short"
			d.submit(r)
		}
		d.now = d.now.Add(time.Second)
		d.obeys()
		if len(d.running) != 4 {
			s, _ := d.Observe(d.now, ann)
			t.Fatalf("seed %d: %d of 4 nodes are free at last; %+v", seed, len(d.running), s.Jobs)
		}
		if s, err := d.Observe(d.now, ann); err != nil || len(s.Jobs) != 4 {
			t.Fatalf("seed %d: %d jobs at last, %v", seed, len(s.Jobs), err)
		}
	}
}
