package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

// disk is the shared disk. The file server decides at once which process takes an attempt; package spool
// tests its link protocol itself. The bridge sees a worker's records some seconds later.
type disk struct {
	w       *world
	bundles map[dirKey]*bundleDir
	members map[string]spool.Members // by their names
	slots   map[string][]spool.Slot  // of those lists; the n-th is slot n+1
	rang    []spool.Ring
	low     bool // less is free than the low water
}

// bundleDir has a bundle's files on the disk, and the true history of its attempts.
type bundleDir struct {
	dirKey
	attempts []*attempt // the n-th is attempt n+1
	// overQuota is set if its results have exceeded their owner's disk quota. A restored server does not know that.
	overQuota bool
	// leftThere is set if its verdict tells that its results stay on the disk, because they exceed that quota.
	leftThere bool
}

// attempt is one attempt of a bundle.
type attempt struct {
	bundle string
	number int
	there  bool // its directory exists
	// command and submission are from its specification.
	command, submission string
	started             written[spool.Started]
	status              written[spool.Status]
	exit                written[spool.Exit]
	dir                 runDir
	resumed             bool            // its specification says that its directory has the files of an earlier one
	timeLimits          []time.Duration // of its jobs, in whole minutes, in their order

	// The true history, which no purge removes.
	begun         int           // the number of workers that began it
	beganAt       time.Duration // the time of the last of them
	known         bool          // the bridge has saved its begin, and the job's time of submission before any requeue since (noteKnown)
	commandBegan  time.Duration // the start of its command; 0 for never
	alive         int           // the number of those that still run
	leftAt        time.Time     // the end of the last of those; zero for none
	cut           bool          // a worker runs, or ran, on a node that Slurm has given up
	cause         string        // the first fault that struck it; empty for none
	platformCause string        // the first of those that is the platform's
	ended         *spool.Exit   // the end of its command by itself
	unrecorded    bool          // only Slurm has its exit status: the exit record could not be written, or is gone
	followed      bool          // the bundle was rightly sent back after it had begun
	refused       bool          // Slurm refused its job
	unplaced      bool          // Slurm refused its job, which excluded nodes
	unclear       bool          // sbatch made no job, and its answer was unclear
	foreign       bool          // it was another bridge's, which is gone
	job           sbatch.JobID  // the first job that was made of it
	ran           sbatch.JobID  // the job that ran the command last; 0 for none
	name          string        // the name of its jobs, as the bridge submitted them
	unnamed       bool          // a plugin of the site, or an administrator, has rewritten the name and the comment of a job of it
	cancelled     sbatch.JobID  // the job of it that an administrator has cancelled; 0 for none
	outOfMemory   bool          // the kernel has killed it for memory
	limited       bool          // Slurm has told its worker to stop, or the kernel has killed it for memory
	metLimit      bool          // its worker has ended it at a limit of its own
	failedStart   time.Duration // the time at which a worker could not start its command; 0 for never
	doubtful      bool          // the bridge may have missed its job
	hidden        bool          // squeue did not list its job for a while
	vanished      bool          // squeue does not list its job any more
	fencingFailed bool          // the bridge got a failure of its fencing
	shownEnded    bool          // a snapshot showed the end of its job
	packed        bool          // its job is a pack, which it shares with others
	stopped       bool          // the bridge has told its worker to end it
	purged        bool          // a clean-up of the site removed its records
	released      bool          // the bridge removed them
}

// written is a record on the disk. The bridge sees it from seen on.
type written[T any] struct {
	record *T
	seen   time.Duration
}

// number returns an attempt's number from its name on the disk.
func number(name string) int {
	digits, _, _ := strings.Cut(name, "-")
	n, _ := strconv.Atoi(digits)
	return n
}

// dirKey is the key of a bundle's attempts of one bridge.
type dirKey struct{ uuid, bridge string }

// keyOf returns the key of a bundle's attempts of this bridge.
func (d *disk) keyOf(uuid string) dirKey { return dirKey{uuid, d.w.policy.Bridge} }

func (d *disk) bundle(uuid string) *bundleDir { return d.bundleAt(d.keyOf(uuid)) }

func (d *disk) bundleAt(at dirKey) *bundleDir {
	b := d.bundles[at]
	if b == nil {
		b = &bundleDir{dirKey: at}
		d.bundles[at] = b
	}
	return b
}

func (d *disk) attempt(uuid string, n int) *attempt { return d.bundle(uuid).attempt(n) }

// attempt returns the n-th attempt.
func (b *bundleDir) attempt(n int) *attempt {
	for len(b.attempts) < n {
		b.attempts = append(b.attempts, &attempt{bundle: b.uuid, number: len(b.attempts) + 1})
	}
	return b.attempts[n-1]
}

// failsSince returns the time of the first failed start of the bundle's command.
func (b *bundleDir) failsSince() time.Duration {
	for _, a := range b.attempts {
		if a.failedStart > 0 {
			return a.failedStart
		}
	}
	return horizon
}

// seen returns the time from which the bridge sees a record that is written now.
func (d *disk) seen() time.Duration {
	if d.w.fault(RecordLate) {
		return d.w.now + d.w.dice.faultDuration(RecordLate, 0, settle-time.Second)
	}
	return d.w.now
}

// ring rings the doorbell for a worker.
func (d *disk) ring(at dirKey, n int) {
	if d.w.fault(BellLost) {
		return
	}
	d.rang = append(d.rang, spool.Ring{Bundle: at.uuid, Attempt: spool.NameAttempt(n, at.bridge)})
	d.w.at(d.w.dice.duration(ofDisk, 50*time.Millisecond, 3*time.Second), func() {
		for _, l := range d.w.lives {
			l.listen()
		}
	})
}

// purge removes the records of a bundle's newest attempt, like a site's clean-up of old files.
func (d *disk) purge(b *bundleDir) {
	if len(b.attempts) == 0 {
		return
	}
	a := b.attempts[len(b.attempts)-1]
	if !a.there || a.vanished { // then nothing would show that it runs
		return
	}
	d.w.logf("disk", "%s.%d purged", shortID(b.uuid), a.number)
	recorded := a.exit.record != nil
	a.remove()
	a.purged, a.unrecorded = true, a.ended != nil
	row, _ := d.w.ledger.row(b.uuid)
	switch a.noteCause("purged"); {
	case a.failedStart > 0:
		a.notePlatformCause("the record of a command that did not start was purged")
	case row.Exit != nil:
	case a.ended != nil && (a.packed || *a.ended.ExitCode != 0), a.packed && recorded: // to the bridge, the node could not write the record
		a.notePlatformCause("the record of a command was purged before the bridge had it")
	}
}

func (a *attempt) remove() {
	a.there, a.started, a.status, a.exit = false, written[spool.Started]{}, written[spool.Status]{}, written[spool.Exit]{}
}

// notePlatformCause notes a fault of the platform that struck an attempt.
func (a *attempt) notePlatformCause(what string) {
	a.noteCause(what)
	a.platformCause = cmp.Or(a.platformCause, what)
}

// noteCause notes any fault that struck an attempt.
func (a *attempt) noteCause(what string) { a.cause = cmp.Or(a.cause, what) }

// mount is one life's view of the disk.
type mount struct {
	*life
}

var errFull = &diskError{syscall.ENOSPC}

type diskError struct{ errno syscall.Errno }

func (e *diskError) Error() string { return e.errno.Error() }

func (e *diskError) Unwrap() error { return e.errno }

// Space measures the disk.
func (m mount) Space() (spool.Space, error) {
	if m.dead {
		return spool.Space{}, &diskError{syscall.ESTALE}
	}
	free := int64(2 * lowWater)
	if m.w.disk.low {
		free = lowWater - 1
	}
	return spool.Space{Free: free, Total: 10 * lowWater}, nil
}

// lowWater is the bridge's low water.
const lowWater = 50 << 30

// Prepare makes an attempt's directory.
func (m mount) Prepare(_ spool.AttemptName, s spool.Spec) error {
	w := m.w
	if m.crashes() {
		return errCrashed
	}
	if w.fault(PrepareSlow) {
		m.extra += w.dice.faultDuration(PrepareSlow, time.Second, 3*time.Minute)
	}
	if w.fault(PrepareFails) {
		return errFull
	}
	a := w.disk.attempt(s.Bundle, s.Attempt)
	if a.command != "" && a.command != s.Command && w.isUnknown(a.command) {
		w.ledger.unknown[s.Command] = true // this bundle finds the records of an earlier one, which the ledger has lost
	}
	a.command, a.submission, a.resumed = s.Command, s.Submission, s.Resumed
	if w.fault(PrepareLost) && !a.there {
		a.notePlatformCause("its directory was not made")
		return nil
	}
	a.there, a.dir.there = true, true
	if m.crashes() {
		return errCrashed
	}
	return nil
}

// WriteMembers writes the list of a submission's members.
func (m mount) WriteMembers(members spool.Members) error {
	w := m.w
	if m.crashes() {
		return errCrashed
	}
	if w.fault(PrepareFails) {
		return errFull
	}
	w.disk.members[members.Name()] = members
	if m.crashes() {
		return errCrashed
	}
	return nil
}

// Join adds members to the list of a pack.
func (m mount) Join(_ context.Context, list string, n int, s spool.Slot) (bool, error) {
	w := m.w
	if m.crashes() {
		return false, errCrashed
	}
	w.checkJoin(list, n, s, m.life)
	if w.fault(FenceFails) {
		return false, &diskError{syscall.EIO}
	}
	joined := w.slurm.joinPack(list, n, s)
	if w.fault(FenceLost) {
		return false, &diskError{syscall.EIO}
	}
	if m.crashes() {
		return false, errCrashed
	}
	return joined, nil
}

// Members returns the lists of members of submissions.
func (m mount) Members(of func(submission string) bool) ([]spool.Members, error) {
	var found []spool.Members
	for _, name := range slices.Sorted(maps.Keys(m.w.disk.members)) {
		if list := m.w.disk.members[name]; of(list.Submission) {
			for _, s := range m.w.disk.slots[name] {
				list.Joined = append(list.Joined, s.Attempts...)
			}
			found = append(found, list)
		}
	}
	return found, nil
}

// MembersFiles lists the lists of members.
func (m mount) MembersFiles() ([]spool.MembersFile, error) {
	var found []spool.MembersFile
	for _, name := range slices.Sorted(maps.Keys(m.w.disk.members)) {
		found = append(found, spool.MembersFile{Name: name, Submission: m.w.disk.members[name].Submission})
	}
	return found, nil
}

// RemoveMembers removes such a list.
func (m mount) RemoveMembers(f spool.MembersFile) error {
	delete(m.w.disk.members, f.Name)
	delete(m.w.disk.slots, f.Name)
	return nil
}

// ReadRecords reads an attempt's records.
func (m mount) ReadRecords(uuid string, name spool.AttemptName) (spool.Records, error) {
	w := m.w
	if m.dead || w.fault(ReadFails) {
		m.at(6*time.Second, m.readTurn) // the real bridge has a turn each second, and reads again after five
		return spool.Records{}, &diskError{syscall.ESTALE}
	}
	a := w.disk.attempt(uuid, number(string(name)))
	var rec spool.Records
	if a.started.seen <= w.now {
		rec.Started = a.started.record
	}
	if a.status.seen <= w.now {
		rec.Status = a.status.record
	}
	if a.exit.seen <= w.now {
		rec.Exit = a.exit.record
	}
	return rec, nil
}

// Fence takes an attempt for the bridge.
func (m mount) Fence(_ context.Context, uuid string, name spool.AttemptName, at time.Time) (spool.Started, error) {
	w := m.w
	if m.crashes() {
		return spool.Started{}, errCrashed
	}
	a := w.disk.attempt(uuid, number(string(name)))
	switch {
	case !a.there:
		return spool.Started{}, fmt.Errorf("close: %w", spool.ErrGone)
	case w.fault(FenceFails):
		a.fencingFailed = true
		return spool.Started{}, &diskError{syscall.EIO}
	}
	if a.started.record == nil {
		a.started = written[spool.Started]{&spool.Started{Token: "bridge", Fenced: true, At: at}, w.now}
	}
	if w.fault(FenceLost) {
		a.fencingFailed = true
		return spool.Started{}, &diskError{syscall.EIO}
	}
	if m.crashes() {
		return spool.Started{}, errCrashed
	}
	return *a.started.record, nil
}

// TellTimeLimit tells the worker of an attempt the time limit of its job.
func (m mount) TellTimeLimit(uuid string, name spool.AttemptName, l spool.TimeLimit) error {
	if m.crashes() {
		return errCrashed
	}
	a := m.w.disk.attempt(uuid, number(string(name)))
	if !a.there {
		return &diskError{syscall.ENOENT}
	}
	m.w.checkTimeLimit(a, l)
	return nil
}

// StopAttempt tells the worker of a pack to end an attempt.
func (m mount) StopAttempt(uuid string, name spool.AttemptName) error {
	if m.crashes() {
		return errCrashed
	}
	w := m.w
	a := w.disk.attempt(uuid, number(string(name)))
	if !a.there {
		return &diskError{syscall.ENOENT}
	}
	w.checkStop(a, m.life)
	a.stopped = true
	w.slurm.heedStop(a)
	return nil
}

// TakeRings reads the doorbell.
func (m mount) TakeRings() ([]spool.Ring, error) {
	rang := m.w.disk.rang
	m.w.disk.rang = nil
	return rang, nil
}

// Release removes a bundle's files.
func (m mount) Release(uuid string) error {
	w := m.w
	if m.crashes() {
		return errCrashed
	}
	w.checkRelease(uuid)
	if w.fault(ReleaseFails) {
		return &diskError{syscall.EBUSY}
	}
	for _, a := range w.disk.bundle(uuid).attempts {
		a.remove()
		a.released, a.dir = true, runDir{}
	}
	if m.crashes() {
		return errCrashed
	}
	return nil
}

// stager has nothing to stage. It fails if a fault strikes.
type stager struct {
	*life
}

// Stage returns inputs. life.start adds the time that it takes.
func (s stager) Stage(context.Context, codalab.RunBundle, string, string, func(string)) (spool.Inputs, error) {
	if s.crashes() {
		return spool.Inputs{}, errCrashed
	}
	if s.w.fault(StageFails) {
		if s.w.dice.coin(StageFails) {
			return spool.Inputs{}, errFull
		}
		return spool.Inputs{}, errUnreachable
	}
	return spool.Inputs{SIF: "/shared/cache/x.sif", PinnedReference: "sha256:0"}, nil
}

// Changed returns "": no data is used in place.
func (stager) Changed(context.Context, spool.Inputs) string { return "" }

// collector sends results to the server.
type collector struct {
	*life
}

// Open fails: no user reads files.
func (collector) Open(codalab.RunBundle, string) (*os.Root, error) { return nil, fs.ErrNotExist }

// Measure reports whether the upload takes seconds.
func (c collector) Measure(_ context.Context, run codalab.RunBundle, _ string, _ spool.ResultsMode) spool.MeasuredResults {
	return spool.MeasuredResults{Small: !c.w.wants[run.Command].long}
}

// heldError is the error of results that exceed their owner's disk quota.
type heldError struct{ held spool.HeldResults }

func (heldError) Error() string { return errOverQuota.Error() }

// HeldResults returns the results, which stay.
func (e heldError) HeldResults() spool.HeldResults { return e.held }

var errOverQuota = errors.New("the disk quota has no room for the results")

func heldIn(runDir string) spool.HeldResults {
	return spool.HeldResults{Size: "12g in 40 entries", Dir: runDir}
}

// GiveUp sends the end of an attempt's output.
func (c collector) GiveUp(_ context.Context, run codalab.RunBundle, runDir string, _ spool.ResultsMode) (*spool.HeldResults, error) {
	held := heldIn(runDir)
	err := c.send(run, runDir, true)
	if err != nil && !errors.Is(err, errOverQuota) {
		return nil, err
	}
	held.Output = err == nil
	return &held, nil
}

// Collect uploads an attempt's results. If the quota has no room for them, it may have room for the end of the output. It has
// none for that if an earlier upload has brought the results.
func (c collector) Collect(_ context.Context, run codalab.RunBundle, runDir string, _ spool.ResultsMode, _ func(string)) (string, error) {
	err := c.send(run, runDir, false)
	if !errors.Is(err, errOverQuota) {
		return "", err
	}
	held, there := heldIn(runDir), c.w.server.bundleByID(run.UUID).upload
	if held.Output = c.w.dice.coin(OverQuota) && (there == nil || there.onlyOutput); held.Output {
		c.arrive(run, runDir, true)
	}
	return "", heldError{held}
}

// send uploads an attempt's results, or the end of its output in their place.
func (c collector) send(run codalab.RunBundle, runDir string, onlyOutput bool) error {
	w, srv := c.w, &c.w.server
	b := srv.bundleByID(run.UUID)
	if c.crashes() {
		srv.mayBreakOff(b)
		return errCrashed
	}
	if srv.isDown() {
		return errUnreachable
	}
	fails := w.fault(UploadFails)
	switch {
	case !fails:
	case w.dice.coin(UploadFails):
		srv.mayBreakOff(b)
		return errUnreachable
	case w.dice.below(ofServer, 2) == 0:
		return &codalab.Error{Status: http.StatusForbidden, Message: "not now"}
	}
	if b == nil {
		return notFound(run.UUID)
	}
	if err := srv.takesResults(b); err != nil {
		return err
	}
	if w.fault(OverQuota) { // what an earlier upload has brought stays at the server
		b.held, w.disk.bundle(run.UUID).overQuota = true, true
		row, _ := w.ledger.row(run.UUID)
		b.noRoom = b.upload == nil && !row.Times.Finalizing.IsZero()
		return errOverQuota
	}
	c.arrive(run, runDir, onlyOutput)
	if fails {
		return errUnreachable
	}
	if c.crashes() {
		return errCrashed
	}
	return nil
}

// arrive makes an upload the bundle's contents at the server.
func (c collector) arrive(run codalab.RunBundle, runDir string, onlyOutput bool) {
	w, b := c.w, c.w.server.bundleByID(run.UUID)
	n := number(filepath.Base(runDir))
	w.checkUpload(b, run, n)
	a := w.disk.attempt(run.UUID, n)
	w.checkCounted(a)
	b.noRoom = false
	b.upload = &upload{attempt: n, complete: a.alive == 0, missing: !a.dir.there, onlyOutput: onlyOutput}
}
