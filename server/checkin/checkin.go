package checkin

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
	"github.com/cl-slurm/cl-slurm/server/access"
	"github.com/cl-slurm/cl-slurm/server/contents"
	"github.com/cl-slurm/cl-slurm/server/failures"
	"github.com/cl-slurm/cl-slurm/server/hub"
	"github.com/cl-slurm/cl-slurm/server/plan"
	"github.com/cl-slurm/cl-slurm/server/present"
	"github.com/cl-slurm/cl-slurm/server/rest"
	"github.com/cl-slurm/cl-slurm/server/store"
	"github.com/cl-slurm/cl-slurm/server/usage"
)

// Config has what CheckIns needs. All fields are required.
type Config struct {
	Log    *slog.Logger
	Now    func() time.Time
	Store  *store.Store
	Access access.Access
	Hub    *hub.Hub
	Site   plan.Site
	Files  *contents.Files
	Usage  *usage.Keeper
	// Changed is told which bundles have changed, and without one that a worker may have room. It must not
	// block.
	Changed func(uuids ...string)
	// SharedDisk means that workers may share the store's disk.
	SharedDisk bool
	// Hold is the time for which a check-in waits for messages.
	Hold time.Duration
	// WorkerTimeout is the time after its last check-in at which a worker counts as gone.
	WorkerTimeout time.Duration
	// Address returns the address of a request's client.
	Address func(*http.Request) string
	// SignedIn refuses a request under way whose sign-in has ended.
	SignedIn func(ctx context.Context) error
}

// CheckIns serves workers: their check-ins, claims and doorbells.
type CheckIns struct {
	config Config
	walks  resultsWalks
}

// New returns CheckIns.
func New(c Config) *CheckIns {
	return &CheckIns{
		config: c,
		walks:  resultsWalks{byName: map[string]*resultsWalk{}, missing: map[string]time.Time{}},
	}
}

// Wait waits until no results are being counted. No check-in may begin after it is called.
func (s *CheckIns) Wait() { s.walks.wait() }

// Routes returns the routes for workers.
func (s *CheckIns) Routes() []rest.Route {
	return []rest.Route{
		{Pattern: "GET /workers/info", Serve: s.workersInfo, Manager: true, Differs: "a worker that has been silent for the worker timeout is not listed; socket_id is null; run_uuids has the runs that the user may read"},
		{Pattern: "POST /workers/{worker}/checkin", Serve: s.checkIn, Worker: true, WorkerToken: true, Differs: "one answer may hold several messages; an older check-in of the worker that still waits ends at once; a worker id belongs to one program (instance) at a time, with a worker token to the one that began last; the user of a worker for a group must be a member; a worker may tell the sizes of its nodes, of which a run has to fit one (nodes), name the job of a run (job_handle) and all its attempts (attempts), tell a run's cost (cost), what it runs on (platform) and the memory and GPUs that it uses (usage), take runs with secrets (secrets), and describe itself as a queue of a batch system (queue), which gets as many runs at once as it submits together (together), also those for which it has no room; it may say why it takes no runs (closed), and then has ten seconds to claim a run that was on its way; it is told the name of a run's owner, and those of the owner's groups that its user may know (owner_name, owner_groups)"},
		{Pattern: "POST /workers/{worker}/start_bundle/{uuid}", Serve: s.startBundle, Worker: true, WorkerToken: true},
		{Pattern: "POST /workers/{worker}/start_bundles", Serve: s.startBundles, Worker: true, WorkerToken: true, Differs: "only this server has it: a worker claims up to 1,000 runs in one call, each as by start_bundle; the answer has that call's answer for each, or the status and message of its refusal"},
		{Pattern: "POST /workers/{worker}/energy", Serve: s.energy, Worker: true, WorkerToken: true, Differs: "only this server has it: a worker tells the energy of runs that it has or had at their ends, because a batch system knows it only after the end; other workers' runs are ignored"},
	}
}

// checkIn applies a worker's reports and answers with messages, as soon as there are any, or
// with [null] after Config.Hold (codalab/rest/workers.py: checkin).
//
// A worker may check in again while a check-in is held. CodaLab's own server then answers the
// newer one with messages and holds the older one to its end. This server ends the older one
// at once. This server may also put several messages into one answer.
func (s *CheckIns) checkIn(w http.ResponseWriter, r *http.Request, u store.User) error {
	ctx := r.Context()
	var in codalab.CheckIn
	if err := rest.ReadJSON(w, r, &in); err != nil {
		return err
	}
	group, err := s.servedGroup(ctx, u, in)
	if err != nil {
		return err
	}
	key, reports := plan.Worker{User: u.ID, ID: r.PathValue("worker")}, in.Reports
	ofSite := u.Root() || u.IsWorker
	if err := s.boundCheckIn(key, &in, ofSite); err != nil {
		return err
	}
	c, changed, err := s.begin(ctx, key, hub.Arrival{CheckIn: in, Group: group, Start: u.Start})
	if err != nil {
		return err
	}
	defer c.End()
	if changed {
		s.config.Changed() // wakes Run: the worker may have room for a staged run
	}
	messages, err := s.applyReports(ctx, c, reports, ofSite)
	if err != nil {
		return err
	}
	if len(messages) == 0 {
		if messages, err = s.awaitMessages(ctx, c, in.IsTerminating); err != nil {
			return err
		}
	}
	if len(messages) == 0 {
		return rest.WriteJSON(w, http.StatusOK, []any{nil})
	}
	if err := s.config.SignedIn(ctx); err != nil { // the server may have held it for seconds
		return err
	}
	return rest.WriteJSON(w, http.StatusOK, messages)
}

// begin begins a check-in, or returns its refusal.
func (s *CheckIns) begin(ctx context.Context, key plan.Worker, a hub.Arrival) (c *hub.CheckIn, changed bool, err error) {
	c, changed, err = s.config.Hub.BeginCheckIn(key, a, s.config.Now())
	inUse, used := errors.AsType[*hub.InUseError](err)
	switch {
	case used:
		return nil, false, rest.Refuse(http.StatusConflict, "Worker '%s' is in use by another program, on %s. Stop that one, or give one of them another name; its id is free %s after its last check-in.",
			key.ID, inUse.Hostname, codalab.SpellDuration(s.config.WorkerTimeout))
	case errors.Is(err, hub.ErrReplaced):
		return nil, false, rest.ReplacedWorker(key.ID)
	case err != nil:
		return nil, false, err
	}
	if before := c.Replaces(); before != "" {
		s.config.Log.LogAttrs(ctx, slog.LevelWarn, "a worker has begun again with the same token; the program that was the worker before has to end",
			slog.String("worker", key.ID), slog.String("user", key.User), slog.String("host_before", before), slog.String("host", a.Hostname))
	}
	return c, changed, nil
}

// What the server keeps in memory of workers is bounded.
const (
	maxOwnWorkers   = 1000 // of one user; those of root and of worker accounts are the site's
	maxDependencies = 1000 // of one worker; further ones do not attract runs
	maxNodes        = 100  // sizes of one worker; runs that fit only further ones are refused by the worker
)

// boundCheckIn bounds a check-in, or refuses it.
func (s *CheckIns) boundCheckIn(key plan.Worker, in *codalab.CheckIn, ofSite bool) error {
	for _, text := range []string{key.ID, in.Tag, in.Hostname, in.Instance} {
		if len(text) > rest.MaxWorkerText {
			return rest.Refuse(http.StatusBadRequest, "A worker's id, tag, host name and instance may have %d bytes each", rest.MaxWorkerText)
		}
	}
	words := strings.ToValidUTF8(in.Closed[:min(len(in.Closed), rest.MaxWorkerText)], "")
	in.Closed = strings.TrimRight(termtext.OneLine(words), " .") // a sentence of the server's ends with it
	short := slices.DeleteFunc(in.Dependencies, func(d [2]string) bool { return len(d[0])+len(d[1]) > rest.MaxWorkerText })
	in.Dependencies = slices.Clone(short[:min(len(short), maxDependencies)])
	in.Nodes = slices.Clone(in.Nodes[:min(len(in.Nodes), maxNodes)])
	in.Queue = boundQueue(in.Queue)
	in.Together = boundCount(in.Together)
	if !ofSite && s.config.Hub.Others(key) >= maxOwnWorkers {
		return rest.Refuse(http.StatusForbidden, "You have %d workers already. Those that have stopped no longer count after %s.", maxOwnWorkers, codalab.SpellDuration(s.config.WorkerTimeout))
	}
	return nil
}

// servedGroup returns the uuid of the group whose runs a worker takes; empty if it names
// none. Its user must be a member of the group.
func (s *CheckIns) servedGroup(ctx context.Context, u store.User, in codalab.CheckIn) (string, error) {
	if rest.Deref(in.GroupName) == "" {
		return "", nil
	}
	g, err := s.config.Access.Group(ctx, u, *in.GroupName)
	if err != nil || u.Root() || !g.UserDefined {
		return g.UUID, err
	}
	own, err := s.config.Store.Groups(ctx, u.ID)
	if err != nil {
		return "", err
	}
	if !slices.ContainsFunc(own, func(one store.Group) bool { return one.UUID == g.UUID }) {
		return "", rest.Refuse(http.StatusForbidden, "You are not a member of group %s, so your worker cannot take its bundles.", g.Name)
	}
	return g.UUID, nil
}

// holdEnding is the time for which a check-in of a worker that ends is held: the worker waits for the answer.
const holdEnding = 200 * time.Millisecond

// awaitMessages waits for messages, a newer check-in of the worker, or the end of Config.Hold. It does not wait if
// the server may not hold the check-in.
func (s *CheckIns) awaitMessages(ctx context.Context, c *hub.CheckIn, ending bool) ([]codalab.Message, error) {
	hold := s.config.Hold
	switch {
	case !c.MayHold():
		hold = 0
	case ending:
		hold = min(hold, holdEnding)
	}
	timer := time.NewTimer(hold)
	defer timer.Stop()
	for {
		messages, err := s.messages(ctx, c)
		if err != nil || len(messages) > 0 {
			return messages, err
		}
		if again, err := c.Wait(ctx, timer.C); !again {
			return nil, err
		}
	}
}

// messages returns the messages that are due. If the store fails, it returns those that need no store: the hub
// repeats run messages, but neither writes nor netcat messages.
func (s *CheckIns) messages(ctx context.Context, c *hub.CheckIn) ([]codalab.Message, error) {
	duties, messages := c.Due(s.config.Now())
	var starting []string
	for _, d := range duties {
		if d.Kind == codalab.MessageRun {
			starting = append(starting, d.UUID)
		} else {
			messages = append(messages, codalab.Message{Type: d.Kind, UUID: d.UUID, KillMessage: d.KillMessage})
		}
	}
	runs, err := s.runMessages(ctx, c, starting)
	messages = append(messages, runs...)
	if err != nil && len(messages) == 0 {
		return nil, err
	}
	failures.Log(ctx, s.config.Log, "send bundles to their worker", err)
	return messages, nil
}

// runMessages returns the run messages for bundles. It reads each bundle from the store, because another worker
// may have it since the hub was told. After an error it returns those that it has made.
func (s *CheckIns) runMessages(ctx context.Context, c *hub.CheckIn, uuids []string) (messages []codalab.Message, err error) {
	if len(uuids) == 0 {
		return nil, nil
	}
	bundles, err := s.config.Store.Bundles(ctx, uuids)
	if err != nil {
		return nil, err
	}
	for _, uuid := range uuids {
		b, ok := bundles[uuid]
		if !ok || b.State != codalab.StateStarting || plan.Worker(b.Worker) != c.Worker() {
			continue
		}
		m := s.runMessage(b)
		if err := s.capResources(ctx, m.Resources, b); err != nil {
			return messages, err
		}
		if s.sharesDisk(c.Worker()) {
			if err := s.addLocations(ctx, m.Bundle, b); err != nil {
				failures.Log(ctx, s.config.Log, "send bundle "+uuid+" to its worker", err)
				continue // the hub sends it again
			}
		}
		messages = append(messages, m)
	}
	if err := s.addOwners(ctx, c.Worker().User, messages); err != nil {
		return nil, err // the hub sends them again
	}
	return messages, nil
}

// addOwners adds the names of the bundles' owners and of the owners' groups to run messages. A bridge gives jobs a
// Slurm account by them.
func (s *CheckIns) addOwners(ctx context.Context, worker string, messages []codalab.Message) error {
	ids := make([]string, len(messages))
	for i, m := range messages {
		ids[i] = m.Bundle.OwnerID
	}
	owners, err := s.config.Store.Owners(ctx, worker, ids)
	if err != nil {
		return err
	}
	for _, m := range messages {
		owner := owners[m.Bundle.OwnerID]
		m.Bundle.OwnerName, m.Bundle.OwnerGroups = owner.Name, owner.Groups
	}
	return nil
}

// runMessage is the message that tells a worker to run a bundle
// (codalab/server/bundle_manager.py: _construct_run_message).
func (s *CheckIns) runMessage(b store.Bundle) codalab.Message {
	deps := make([]codalab.RunDependency, 0, len(b.Dependencies))
	for _, d := range b.Dependencies {
		d.ParentState = "" // CodaLab's own server sends none
		deps = append(deps, codalab.RunDependency{Dependency: d})
	}
	for key, value := range map[string]any{"exclude_patterns": []string{}, "store": ""} {
		if !b.Metadata.Has(key) { // CodaLab's own worker needs them
			b.Metadata[key] = value
		}
	}
	resources := s.config.Site.Resources(b.Metadata)
	return codalab.Message{
		Type: codalab.MessageRun, Resources: &resources,
		Bundle: &codalab.RunBundle{
			UUID: b.UUID, Type: b.Type, OwnerID: b.OwnerID, Command: rest.Deref(b.Command), State: b.State,
			Frozen: b.Frozen, IsAnonymous: b.IsAnonymous, Metadata: b.Metadata, Args: present.CommandLine(b), Dependencies: deps,
		},
	}
}
