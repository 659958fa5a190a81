package sim

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/sbatch/slurmtest"
	"github.com/cl-slurm/cl-slurm/spool"
)

// epoch is the beginning of simulated time.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

const (
	// calm is the time after which no fault strikes.
	calm = 8 * time.Minute
	// horizon is the time at which everything must have come to its end.
	horizon = 9 * time.Hour
)

// Options change how a seed runs.
type Options struct {
	// Only has the faults that may strike; nil for all.
	Only []Fault
	// Log receives a line for each event; nil for none.
	Log io.Writer
	// Policy changes the bridge's policy; nil for no change.
	Policy func(*plan.Policy)
	// Large makes a world of two thousand bundles, two hundred nodes and five owners, which takes a
	// minute or two.
	Large bool
	// Ledger, if not nil, opens a real ledger for each life of the bridge. Its answers have to agree with
	// the simulated one's, and the bridge gets its rows. The caller closes the ledgers. No old copy is
	// restored then.
	Ledger func() (bridge.Ledger, error)
	// Leases is the directory for the leases of shared directories, on a fast disk; empty for the directory
	// of temporary files. Unleased starts bridges without a lease.
	Leases   string
	Unleased bool
}

// Result is the outcome of a seed.
type Result struct {
	Seed uint64
	// Violations is empty for a seed that kept all promises.
	Violations []Violation
	// Faults are the faults that struck, in their order.
	Faults []Fault
	// Bundles, Attempts and Steps count the seed's bundles, attempts and steps; Simulated is the time that
	// passed on the site's clock.
	Bundles, Attempts, Steps int
	// Tasks counts the tasks of the arrays that were submitted, Packed the members of packs, and Joined those that joined one that ran.
	Tasks, Packed, Joined int
	// Stops counts the members that a pack's worker has ended because the bridge told it to.
	Stops     int
	Simulated time.Duration
}

// Run runs a seed to its end.
func Run(ctx context.Context, seed uint64, o Options) Result {
	w := newWorld(ctx, seed, o)
	w.live()
	if w.rivalry != nil {
		w.rivalry.remove()
	}
	return Result{
		Seed: seed, Violations: w.violations, Faults: w.dice.struck, Bundles: len(w.server.bundles),
		Attempts: w.attempts, Tasks: w.tasks, Packed: w.packed, Joined: w.joined, Stops: w.stops, Steps: w.steps, Simulated: w.now,
	}
}

// live runs the site to its end. A panic breaks a promise.
func (w *world) live() {
	defer func() {
		if p := recover(); p != nil {
			w.violate(Panicked, "%v", p)
		}
	}()
	w.begin()
	for len(w.events.heap) > 0 && len(w.violations) == 0 {
		e := w.events.next()
		if e.at > horizon {
			break
		}
		w.now = e.at
		e.do()
		if w.finished() {
			break
		}
	}
	w.checkEnd()
}

// world is the simulated site.
type world struct {
	ctx    context.Context
	dice   dice
	log    io.Writer
	now    time.Duration // since epoch
	events events

	policy plan.Policy
	queues []plan.Queue // the policy's, in the order of their names
	crowd  crowd
	ledger *ledgerDisk
	slurm  slurm
	server server
	disk   disk
	lives  []*life // the running ones
	// rivalry is the present one; nil for none. leases and unleased are as in Options.
	rivalry  *rivalry
	leases   string
	unleased bool

	// The users' requests, by command, including those that the server has lost.
	wants  map[string]wants
	killed map[string]bool
	// stopping has the bundles that are being stopped before they have begun.
	stopping map[string]*stop

	violations []Violation
	verdicts   map[string]reported
	requests   []time.Duration
	passed     map[lane]map[string]*turns // the turns of others since each lane's last one, by their owner
	steps      int
	attempts   int
	tasks      int
	packed     int
	joined     int
	tokens     int
	stops      int
	// lists has the list of members that a submission was first made with, by the name of its jobs.
	lists       map[string][]spool.Member
	nextLife    int
	hampered    time.Duration   // the last time at which all reports were kept from the server
	offeredLate map[string]bool // the bundles, by command, of which an offer came late
	offset      time.Duration   // of the newest life's clock
	clockSet    time.Duration   // the time of its last change
	rushed      time.Duration
	rush        int
}

func newWorld(ctx context.Context, seed uint64, o Options) *world {
	w := &world{
		ctx: ctx, dice: newDice(seed), log: o.Log, leases: o.Leases, unleased: o.Unleased,
		wants: map[string]wants{}, killed: map[string]bool{}, stopping: map[string]*stop{}, verdicts: map[string]reported{}, offeredLate: map[string]bool{}, lists: map[string][]spool.Member{},
	}
	if o.Only != nil {
		w.dice.only = make(map[Fault]bool, len(o.Only))
		for _, f := range o.Only {
			w.dice.only[f] = true
		}
	}
	w.crowd = w.newCrowd(o.Large)
	w.policy = w.newPolicy()
	if o.Policy != nil {
		o.Policy(&w.policy)
	}
	for _, name := range slices.Sorted(maps.Keys(w.policy.Queues)) {
		w.queues = append(w.queues, w.policy.Queues[name])
	}
	w.slurm = slurm{
		w: w, Controller: slurmtest.New(w.crowd.site), hidden: map[sbatch.JobID]bool{}, attempts: map[sbatch.JobID][]*attempt{}, packs: map[string][]sbatch.JobID{}, shortened: map[sbatch.JobID]bool{}, cancelled: map[sbatch.JobID]bool{}, invalid: map[sbatch.JobID]string{},
		revoked: map[sbatch.JobID]*revocation{}, sickUntil: map[string]time.Duration{}, refusedUntil: map[string]time.Duration{},
	}
	w.server = server{w: w, repeats: w.dice.happen[ServerRepeats], stock: map[string]*stock{}}
	for _, q := range w.queues {
		w.server.stock[q.Name] = &stock{}
	}
	w.disk = disk{w: w, bundles: map[dirKey]*bundleDir{}, members: map[string]spool.Members{}, slots: map[string][]spool.Slot{}}
	w.ledger = &ledgerDisk{w: w, contents: emptyContents(), open: o.Ledger}
	return w
}

// newPolicy returns the seed's policy.
func (w *world) newPolicy() plan.Policy {
	retry := plan.RetryNever
	if w.dice.below(ofUsers, 2) == 0 {
		retry = plan.RetryOnPlatform
	}
	var extra []string
	if w.dice.below(ofUsers, 2) == 0 {
		extra = requeueable
	}
	queues := map[string]plan.Queue{}
	for _, name := range []string{"cpu", "gpu", "idle"}[:w.howManyQueues()] {
		q := plan.Queue{
			Name: name, Tag: name, Partition: map[string]string{"gpu": "gpu"}[name], DefaultTime: memberLimit, TimeGrace: 2 * time.Minute,
			MaxInFlight: int(w.dice.below(ofUsers, 3)) * w.crowd.flying, RetryBegun: retry, Extra: extra, ArrayTasks: w.dice.arrayTasks(),
		}
		w.dice.givePacks(&q)
		queues[name] = q
	}
	keep := 2 * time.Minute // longer than the server takes to apply a check-in that failed
	if w.dice.happen[ServerRestored] || w.dice.happen[Restaged] {
		keep = 12 * time.Minute // longer than the server takes to offer a bundle again
	}
	return plan.Policy{
		Bridge: firstBridge, Owner: "ann", Layout: "/shared", Worker: sbatch.Program{Path: "/shared/bin/0/cl-worker"},
		Queues: queues, SubmitGrace: submitBound + 20*time.Second, OrphanGrace: 4 * time.Minute,
		CancelOrphans: true, RecordAge: slurmSite.MinJobAge, Accounting: w.dice.below(ofUsers, 4) > 0, Settle: settle, StuckFor: 30 * time.Second,
		StagePatience: time.Hour, OutagePatience: 2 * time.Hour, CollectPatience: 72 * time.Hour, QuotaPatience: 2 * time.Hour, LongestAckPause: 3 * time.Minute, MaxAttempts: 3,
		MaxArraySize: maxArraySize, KeepAfterAck: keep, LowWater: plan.LowWater{Bytes: lowWater},
	}
}

// HasArrays reports whether bundles go to Slurm as arrays in a seed. They do in about a fifth of the seeds.
func HasArrays(seed uint64) bool {
	d := newDice(seed)
	return d.arrayTasks() > 0
}

// arrayTasks returns the largest number of tasks of an array; 0 in the seeds without arrays.
func (d *dice) arrayTasks() int {
	if d.throw(ofSeed, 0, 9)%4 > 0 || d.packs() {
		return 0
	}
	return 2 + int(d.throw(ofSeed, 0, 10)%8)
}

// maxArraySize bounds the tasks of the site's arrays.
const maxArraySize = 7

// howManyQueues returns the number of the site's queues: mostly one, and more for a crowd.
func (w *world) howManyQueues() uint64 {
	if w.crowd.pace.Burst > 0 {
		return 2 + w.dice.below(ofQueues, 2)
	}
	switch w.dice.below(ofQueues, 6) {
	case 0:
		return 3
	case 1:
		return 2
	}
	return 1
}

// pickQueue, pickOwner and pickPriority return random parts of a request.
func (w *world) pickQueue() string {
	return w.queues[w.dice.below(ofQueues, uint64(len(w.queues)))].Name
}

func (w *world) pickOwner() string {
	return strconv.FormatUint(1+w.dice.below(ofQueues, w.crowd.owners), 10)
}

func (w *world) pickPriority() int64 { return int64(w.dice.below(ofQueues, 3)/2) * 100 }

var requeueable = []string{"--requeue"}

const (
	// submitBound is the longest life of an sbatch.
	submitBound = 70 * time.Second
	// settle is the longest time until the disk shows the bridge a record.
	settle = 10 * time.Second
)

// begin starts the site.
func (w *world) begin() {
	for range 1 + w.dice.below(ofUsers, 6)*w.dice.below(ofUsers, 3)/4 { // one, seldom two or three
		w.at(w.dice.duration(ofUsers, 0, time.Minute), w.server.create)
	}
	if w.fault(CheckInTooLarge) {
		// One run in a check-in is enough for a few bundles, but not for the six hundred live ones of a large
		// world: CodaLab's own server holds each check-in for 5 s.
		w.server.mostRuns = int(w.dice.faultDuration(CheckInTooLarge, 1, 3)) + w.crowd.bundles/25
		switch { // many bundles live at once
		case w.dice.packs():
			w.server.mostRuns += 3
		case w.dice.arrayTasks() > 0:
			w.server.mostRuns = max(w.server.mostRuns, 2)
		}
		for range 3 {
			w.at(w.dice.faultDuration(CheckInTooLarge, 0, time.Minute), w.server.create)
		}
	}
	for range w.crowd.bundles {
		w.at(w.dice.duration(ofQueues, 0, w.crowd.within), w.server.create)
	}
	if w.dice.arrayTasks() > 0 || w.dice.packs() {
		for range 1 + w.dice.below(ofArrays, 2) {
			w.at(w.dice.duration(ofArrays, 0, time.Minute), w.server.createSweep)
		}
	}
	switch w.dice.below(ofUsers, 8) {
	case 0, 1:
		w.slurm.beginForeign()
	case 2:
		w.slurm.beginOrphan()
	}
	if w.killsMany() {
		w.killMany()
	}
	w.slurm.limited = w.fault(RequestsLimited)
	w.startLife()
	w.mishaps()
	if !w.server.repeats {
		w.server.manage()
	}
	if w.dice.happen[ServerRestored] {
		w.at(20*time.Second, w.server.backUp)
	}
}

// killsMany reports whether many bundles are killed at once in this seed. The controller then accepts few
// requests.
func (w *world) killsMany() bool { return w.dice.throw(ofSeed, 0, 8)%8 == 0 }

// pace returns the rate of requests that the site configures; zero for the default, and if the controller
// names its own limit.
func (w *world) pace() bridge.Pace {
	if w.slurm.limited {
		return bridge.Pace{}
	}
	if w.killsMany() && w.crowd.bundles == 0 {
		return bridge.Pace{PerSecond: 0.2, Burst: 2}
	}
	return w.crowd.pace
}

// killMany makes bundles so large that a node has room for only one, so that most of them wait. It kills them
// all at one moment.
func (w *world) killMany() {
	var doomed []*bundle
	for range 8 {
		w.at(w.dice.duration(ofKills, 0, 20*time.Second), func() {
			b := w.server.add(bundleID(w.server.made), wants{
				queue: w.pickQueue(), owner: w.pickOwner(), cpus: min(40, w.crowd.site.Nodes[0].CPUs), seconds: w.dice.duration(ofKills, 0, 5*time.Minute),
			})
			doomed = append(doomed, b)
			w.server.publish(b)
		})
	}
	w.at(w.dice.duration(ofKills, 20*time.Second, 4*time.Minute), func() {
		for _, b := range doomed {
			w.server.kill(b.uuid, b.command)
		}
	})
}

// at schedules an event.
func (w *world) at(after time.Duration, do func()) {
	w.events.add(w.now+after, do)
}

// wall returns simulated time, as a correct clock shows it.
func (w *world) wall() time.Time { return epoch.Add(w.now) }

// fault takes a chance for a fault.
func (w *world) fault(k Kind) bool {
	if w.now >= calm || !w.dice.strikes(k) {
		return false
	}
	if w.log != nil {
		w.logf("!", "%s", w.dice.struck[len(w.dice.struck)-1])
	}
	return true
}

// logf logs an event.
func (w *world) logf(who, format string, args ...any) {
	if w.log == nil {
		return
	}
	_, _ = fmt.Fprintf(w.log, "%9.3f %-8s %s\n", w.now.Seconds(), who, fmt.Sprintf(format, args...)) // for people
}

// finished reports whether nothing more can happen.
func (w *world) finished() bool {
	return w.now > time.Minute && len(w.ledger.rows) == 0 && w.server.settled() && !w.slurm.anyLive()
}

// event is a scheduled call.
type event struct {
	at time.Duration
	// number counts the events in the order in which they were scheduled.
	number int
	do     func()
}

func (e event) before(other event) bool {
	return e.at < other.at || e.at == other.at && e.number < other.number
}

// events are the coming events, as a binary heap. Of two events at the same time the one that was scheduled
// first comes first. Package container/heap allocates for each event, which is noticeably slower.
type events struct {
	heap      []event
	scheduled int
}

func (e *events) add(at time.Duration, do func()) {
	x := event{at, e.scheduled, do}
	e.scheduled++
	e.heap = append(e.heap, x)
	i := len(e.heap) - 1
	for i > 0 && x.before(e.heap[(i-1)/2]) {
		e.heap[i], i = e.heap[(i-1)/2], (i-1)/2
	}
	e.heap[i] = x
}

func (e *events) next() event {
	first, last := e.heap[0], len(e.heap)-1
	x := e.heap[last]
	e.heap[last], e.heap = event{}, e.heap[:last]
	if last == 0 {
		return first
	}
	i := 0
	for {
		child := 2*i + 1
		if child+1 < last && e.heap[child+1].before(e.heap[child]) {
			child++
		}
		if child >= last || x.before(e.heap[child]) {
			break
		}
		e.heap[i], i = e.heap[child], child
	}
	e.heap[i] = x
	return first
}
