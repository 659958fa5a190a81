package heartbeat

import (
	"maps"
	"slices"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/config"
	"github.com/cl-slurm/cl-slurm/bridge/drain"
	"github.com/cl-slurm/cl-slurm/bridge/lease"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/spool"
)

// Status is the state of a bridge.
type Status struct {
	Ledger string `json:"ledger"`
	Bridge string `json:"bridge"`
	// Running is set while a bridge holds the lock of the ledger. Starting is set while that
	// bridge has not said anything of itself yet.
	Running  bool `json:"running"`
	Starting bool `json:"starting,omitempty"`
	// Old is set if the bridge's last heartbeat is more than a minute old.
	Old bool `json:"late,omitempty"`
	// WrittenAt is the time at which the bridge wrote this, if its ledger cannot be read on this host; zero
	// otherwise.
	WrittenAt time.Time `json:"written_at,omitzero"`
	// Drains are the operators' orders to take no new bundles.
	Drains []drain.Order `json:"drains,omitempty"`
	// Awaited says what a bridge that has just started waits for; empty if it has that, or has waited for too
	// long, which is a hold then.
	Awaited string `json:"awaited,omitempty"`
	// Holds are sentences, one for each cause that keeps bundles from going on.
	Holds []string `json:"holds"`
	// Waits are the causes for which bundles wait, the most frequent first.
	Waits []Wait `json:"waits"`
	Disk  Disk   `json:"disk"`
	// Queues are the configured queues, and others that still have bundles.
	Queues []Queue `json:"queues"`
	// Oldest is the bundle that has waited longest; nil where none waits.
	Oldest *Waiting `json:"oldest,omitempty"`
	// Last is the last heartbeat of the running bridge, or of the one before.
	Last *Heartbeat `json:"last,omitempty"`
	// Unknown is a sentence about the facts that the bridge does not learn, because the site has no accounting database;
	// empty where it has one, or while that is not known.
	Unknown string `json:"unknown,omitempty"`
}

// Disk is the room on the shared disk.
type Disk struct {
	Shared    string `json:"shared"`
	Free      int64  `json:"free_bytes"`
	Total     int64  `json:"total_bytes"`
	FreeFiles int64  `json:"free_files"`
	Files     int64  `json:"files"`
	// Low is the reason for which the bridge begins nothing new; empty where the disk has room.
	Low string `json:"low,omitempty"`
	// Trouble is the error of measuring the disk. Silent is set if the disk does not answer.
	Trouble string `json:"trouble,omitempty"`
	Silent  bool   `json:"silent,omitempty"`
}

// Queue is the number of a queue's bundles in each phase.
type Queue struct {
	Queue  string             `json:"queue"`
	Phases map[plan.Phase]int `json:"phases"`
}

// Waiting is a bundle that waits.
type Waiting struct {
	Bundle string     `json:"bundle"`
	Queue  string     `json:"queue"`
	Phase  plan.Phase `json:"phase"`
	// Claimed is the time of the server's offer, Since the begin of its phase.
	Claimed time.Time `json:"claimed"`
	Since   time.Time `json:"since"`
	Reason  string    `json:"reason"`
	Status  string    `json:"run_status"`
}

// oldAfter is the greatest age of a heartbeat that is not old.
const oldAfter = 6 * lease.RenewEvery

// OldAt reports whether the last heartbeat is old at a time.
func (s *Status) OldAt(now time.Time) bool { return s.Last != nil && now.Sub(s.Last.At) > oldAfter }

// OldSentence says that a heartbeat is too old; it has no full stop.
const OldSentence = "The bridge's last heartbeat is old: the bridge hangs, was killed, or cannot write to the shared directory"

// Add adds what the rows and the disk show. resting counts the rows of each queue that are done
// and not among the rows.
func (s *Status) Add(c config.Config, rows []*plan.Row, resting map[string]int) {
	s.countBundles(c, rows, resting)
	s.measureDisk(c, rows)
	s.addHolds()
	s.addWaits(rows)
	if s.Last != nil && s.Last.Settings != nil && !c.Slurm.HasAccounting(s.Last.Settings.Accounting) {
		s.Unknown = "The site has no accounting database, so these are not known: " + plan.UnknownWithoutAccounting + "."
	}
}

// countBundles counts the bundles of each queue, and finds the one that has waited longest.
func (s *Status) countBundles(c config.Config, rows []*plan.Row, resting map[string]int) {
	phases := map[string]map[plan.Phase]int{}
	for name := range c.Queue {
		phases[name] = map[plan.Phase]int{}
	}
	for name, n := range resting {
		phases[name] = map[plan.Phase]int{plan.Done: n}
	}
	var oldest *plan.Row
	for _, r := range rows {
		if phases[r.Queue] == nil {
			phases[r.Queue] = map[plan.Phase]int{}
		}
		phases[r.Queue][r.Phase]++
		switch r.Phase {
		case plan.Claiming, plan.Staging, plan.Submitting, plan.Queued:
			if oldest == nil || r.OfferedAt.Before(oldest.OfferedAt) {
				oldest = r
			}
		case plan.Running, plan.Stopping, plan.Collecting, plan.Finalizing, plan.Done:
		}
	}
	s.Queues = []Queue{}
	for _, name := range slices.Sorted(maps.Keys(phases)) {
		s.Queues = append(s.Queues, Queue{name, phases[name]})
	}
	if oldest != nil {
		s.Oldest = &Waiting{
			Bundle: oldest.Bundle, Queue: oldest.Queue, Phase: oldest.Phase, Claimed: oldest.OfferedAt, Since: oldest.PhaseSince,
			Reason: oldest.Reason, Status: oldest.RunStatus(),
		}
	}
}

// measureDisk measures the shared disk, and judges it by the rule of the bridge.
func (s *Status) measureDisk(c config.Config, rows []*plan.Row) {
	s.Disk.Shared = c.Shared
	if s.Disk.Silent {
		s.Disk.Trouble = "the disk of " + c.Shared + " does not answer"
		return
	}
	space, err := spool.Disk{Layout: spool.Layout(c.Shared)}.Space()
	if err != nil {
		s.Disk.Trouble = err.Error()
		return
	}
	s.Disk.Free, s.Disk.Total, s.Disk.FreeFiles, s.Disk.Files = space.Free, space.Total, space.FreeFiles, space.Files
	before := slices.ContainsFunc(rows, func(r *plan.Row) bool { return r.DiskLow != "" })
	if s.Running && s.Last != nil {
		before = s.Last.DiskLow != ""
	}
	s.Disk.Low = c.LowWater.Lack(space, before)
}
