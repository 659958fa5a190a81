package status

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/config"
	"github.com/cl-slurm/cl-slurm/bridge/ledger"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/internal/sqldb"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
	"github.com/cl-slurm/cl-slurm/spool"
)

// Status is the state of a bridge.
type Status struct {
	Ledger string `json:"ledger"`
	Bridge string `json:"bridge"`
	// Running is set while a bridge holds the lock of the ledger.
	Running bool `json:"running"`
	// Holds are sentences; each says what keeps bundles from going on.
	Holds []string `json:"holds"`
	Disk  Disk     `json:"disk"`
	// Queues are the configured queues, and others that still have bundles.
	Queues []Queue `json:"queues"`
	// Oldest is the bundle that has waited longest; nil where none waits.
	Oldest *Waiting `json:"oldest,omitempty"`
	// Last is the last heartbeat of the running bridge, or of the one before.
	Last *Heartbeat `json:"last,omitempty"`
}

// Disk is how much of the shared disk is free.
type Disk struct {
	Shared    string `json:"shared"`
	Free      int64  `json:"free_bytes"`
	Total     int64  `json:"total_bytes"`
	FreeFiles int64  `json:"free_files"`
	Files     int64  `json:"files"`
	// Low is why the bridge begins nothing new; empty where the disk has room.
	Low string `json:"low,omitempty"`
	// Trouble is why the disk could not be measured.
	Trouble string `json:"trouble,omitempty"`
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
	// Claimed is when the server offered it, Since when its phase began.
	Claimed time.Time `json:"claimed"`
	Since   time.Time `json:"since"`
	Reason  string    `json:"reason"`
	Status  string    `json:"run_status"`
}

// Collect gathers the status of the bridge of a configuration. heartbeat returns the
// [HeartbeatFile] of a bridge.
func Collect(ctx context.Context, c config.Config, heartbeat func(bridge string) (string, error)) (Status, error) {
	s := Status{Ledger: sqldb.Name(c.Ledger), Holds: []string{}, Queues: []Queue{}}
	r, err := ledger.OpenToRead(ctx, c.Ledger)
	if errors.Is(err, ledger.ErrAbsent) {
		return s, fmt.Errorf("no bridge has made a ledger at %s yet", s.Ledger)
	}
	if err != nil {
		return s, err
	}
	defer r.Close() //nolint:errcheck // it was only read
	if s.Bridge, err = r.Bridge(ctx); err != nil {
		return s, err
	}
	rows, err := r.Rows(ctx)
	if err != nil {
		return s, err
	}
	if s.Running, err = ledger.Locked(ctx, c.Ledger); err != nil {
		return s, err
	}
	if err := s.readHeartbeat(heartbeat); err != nil {
		s.Holds = append(s.Holds, "The bridge's heartbeat cannot be read: "+err.Error()+".")
	}
	s.countBundles(c, rows)
	s.measureDisk(c, rows)
	s.addHolds(rows)
	return s, nil
}

// readHeartbeat reads the last heartbeat, if there is one.
func (s *Status) readHeartbeat(file func(bridge string) (string, error)) error {
	path, err := file(s.Bridge)
	if err != nil {
		return err
	}
	switch h, err := ReadHeartbeat(path); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	default:
		s.Last = &h
	}
	return nil
}

// countBundles counts the bundles of each queue, and finds the one that has waited longest.
func (s *Status) countBundles(c config.Config, rows []plan.Row) {
	phases := map[string]map[plan.Phase]int{}
	for name := range c.Queue {
		phases[name] = map[plan.Phase]int{}
	}
	var oldest *plan.Row
	for i, r := range rows {
		if phases[r.Queue] == nil {
			phases[r.Queue] = map[plan.Phase]int{}
		}
		phases[r.Queue][r.Phase]++
		switch r.Phase {
		case plan.Claiming, plan.Staging, plan.Submitting, plan.Queued:
			if oldest == nil || r.OfferedAt.Before(oldest.OfferedAt) {
				oldest = &rows[i]
			}
		case plan.Running, plan.Stopping, plan.Collecting, plan.Finalizing, plan.Done:
		}
	}
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
func (s *Status) measureDisk(c config.Config, rows []plan.Row) {
	s.Disk.Shared = c.Shared
	space, err := spool.Disk{Layout: spool.Layout(c.Shared)}.Space()
	if err != nil {
		s.Disk.Trouble = err.Error()
		return
	}
	s.Disk.Free, s.Disk.Total, s.Disk.FreeFiles, s.Disk.Files = space.Free, space.Total, space.FreeFiles, space.Files
	before := slices.ContainsFunc(rows, func(r plan.Row) bool { return r.DiskLow != "" })
	if s.Running && s.Last != nil {
		before = s.Last.Low != ""
	}
	s.Disk.Low = c.LowWater.Low(space, before)
}

// addHolds says what keeps bundles from going on.
func (s *Status) addHolds(rows []plan.Row) {
	hold := func(format string, args ...any) { s.Holds = append(s.Holds, fmt.Sprintf(format, args...)) }
	last := s.Last
	switch {
	case !s.Running && last != nil && last.Failure != "":
		hold("No bridge runs on this ledger. The last one ended at %s: %s.", termtext.Clock(last.Ended), termtext.Line(last.Failure))
	case !s.Running:
		hold("No bridge runs on this ledger.")
	case last == nil:
	default:
		if last.Observed.IsZero() {
			hold("Slurm has not been seen as a whole since the bridge started: until then nothing is submitted, cancelled or removed.")
		}
		switch {
		case last.Slurm == "":
		case last.SlurmNext.IsZero():
			hold("Slurm does not answer: %s.", termtext.Line(last.Slurm))
		default:
			hold("Slurm has not answered since %s, and is asked again at %s: %s. Until then nothing is submitted or cancelled.",
				termtext.Clock(last.SlurmSince), termtext.Clock(last.SlurmNext), termtext.Line(last.Slurm))
		}
		for _, queue := range slices.Sorted(maps.Keys(last.Server)) {
			hold("The server does not take the check-ins of queue %s: %s.", queue, termtext.Line(last.Server[queue]))
		}
	}
	switch {
	case s.Disk.Trouble != "":
		hold("The shared disk is not there: %s.", termtext.Line(s.Disk.Trouble))
	case s.Disk.Low != "":
		hold("No bundle is claimed, and no inputs are brought in: %s.", s.Disk.Low)
	}
	s.addRefusals(rows)
}

// addRefusals says why bundles are tried again, the most frequent reasons first.
func (s *Status) addRefusals(rows []plan.Row) {
	type refusal struct {
		phase   plan.Phase
		trouble string
	}
	counts := map[refusal]int{}
	for _, r := range rows {
		if (r.Phase == plan.Submitting || r.Phase == plan.Staging || r.Phase == plan.Collecting) && r.FailedTries > 0 && r.LastFailure != "" {
			counts[refusal{r.Phase, termtext.Line(r.LastFailure)}]++
		}
	}
	order := slices.SortedFunc(maps.Keys(counts), func(a, b refusal) int {
		return cmp.Or(-cmp.Compare(counts[a], counts[b]), cmp.Compare(a.phase, b.phase), cmp.Compare(a.trouble, b.trouble))
	})
	const most = 5
	for i, o := range order {
		if i == most {
			s.Holds = append(s.Holds, fmt.Sprintf("There are %d other reasons for which bundles are tried again.", len(order)-most))
			return
		}
		s.Holds = append(s.Holds, fmt.Sprintf("%s: %s.", triedAgain(counts[o], o.phase), o.trouble))
	}
}

func triedAgain(n int, phase plan.Phase) string {
	if n == 1 {
		return fmt.Sprintf("1 bundle in %s is tried again", phase)
	}
	return fmt.Sprintf("%d bundles in %s are tried again", n, phase)
}
