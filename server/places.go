package server

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/store"
)

const (
	mostQueues = 20 // that a status names
	mostKinds  = 5  // of workers that a status names
)

// clientele is whose runs a worker takes. Only the owner's run on an owner's worker, and
//
//   - everybody's on root's, as on CodaLab's own server;
//   - on a worker account's those of the owners and groups in its scopes;
//   - on a group's those of its members, of each of which the worker's user must have all
//     permissions on the bundle, since it sees what the run reads and writes.
type clientele struct {
	group     string // of the worker's check-in
	everybody bool
	owners    map[string]bool // by id
	// permitted are the runs of a group's members that the worker's user may do anything with.
	permitted map[string]bool
}

// takes reports whether a worker takes a run.
func (o *offer) takes(p *pending) bool {
	return o.key.User == p.ownerID || o.serves.everybody || o.serves.owners[p.ownerID] || o.serves.permitted[p.uuid]
}

// places are the workers to which match may assign runs.
type places struct {
	byTag map[string][]*offer // those that serve this tag only, and by "" all others
	all   []*offer
	// permitted has the clientele.permitted of each group's workers.
	permitted []map[string]bool
	held      held
	quotas    map[string]int // of parallel runs on other users' workers, by owner
	// refused remembers why runs with these requests get no worker: a worker's room only shrinks
	// while match runs.
	refused map[request]string
}

// request is what decides whether a run finds a worker. Runs that only some workers may take have
// their own.
type request struct {
	ownerID string
	codalab.Resources
	uuid string
}

func newPlaces(h held) *places {
	return &places{byTag: map[string][]*offer{}, held: h, quotas: map[string]int{}, refused: map[request]string{}}
}

// add adds a worker.
func (v *places) add(o *offer) {
	tag := ""
	if o.exclusive {
		tag = o.tag
	}
	v.byTag[tag] = append(v.byTag[tag], o)
	v.all = append(v.all, o)
}

// queues names the queues of those workers that take a run and suit.
func (v *places) queues(p *pending, suits func(*offer) bool) string {
	var tags []string
	for _, o := range v.all {
		if o.tag != "" && suits(o) && o.takes(p) {
			tags = append(tags, o.tag)
		}
	}
	slices.Sort(tags)
	tags = slices.Compact(tags)
	if more := len(tags) - mostQueues; more > 0 {
		tags = append(tags[:mostQueues], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(tags, ", ")
}

// placesFor returns the workers for runs.
func (s *Server) placesFor(ctx context.Context, runs map[string]*pending, offers []*offer, h held) (*places, error) {
	p := newPlaces(h)
	var owners []string
	for _, run := range runs {
		owners = append(owners, run.ownerID)
	}
	slices.Sort(owners)
	users, err := s.Store.UsersByID(ctx, slices.Compact(owners))
	if err != nil {
		return nil, err
	}
	for id, u := range users {
		p.quotas[id] = int(u.ParallelRunQuota)
	}
	served := services{server: s, runs: runs, found: map[[2]string]clientele{}}
	for _, o := range offers {
		if o.serves, err = served.of(ctx, o.key.User, o.serves.group); err != nil {
			return nil, err
		}
		p.add(o)
	}
	for _, one := range served.found {
		if len(one.permitted) > 0 {
			p.permitted = append(p.permitted, one.permitted)
		}
	}
	return p, nil
}

// services finds out whose runs workers take.
type services struct {
	server *Server
	runs   map[string]*pending
	found  map[[2]string]clientele // by user and group
}

// of returns whose runs a user's worker takes that serves a group; an empty group is none.
func (v services) of(ctx context.Context, userID, group string) (clientele, error) {
	key := [2]string{userID, group}
	if known, ok := v.found[key]; ok {
		return known, nil
	}
	one := clientele{group: group, everybody: userID == store.RootID, owners: map[string]bool{}}
	scopes, err := v.server.Store.Scopes(ctx, userID)
	if err != nil {
		return one, err
	}
	var groups []string
	for _, scope := range scopes {
		switch {
		case scope.GroupUUID != "":
			groups = append(groups, scope.GroupUUID)
		case scope.OwnerID != "":
			one.owners[scope.OwnerID] = true
		default:
			one.everybody = true
		}
	}
	members, err := v.server.Store.Members(ctx, groups)
	if err != nil {
		return one, err
	}
	for _, m := range members {
		one.owners[m.UserID] = true
	}
	if group != "" && !one.everybody {
		one.permitted, err = v.permitted(ctx, userID, group)
	}
	v.found[key] = one
	return one, err
}

// permitted returns the runs of a group's members on which a user has all permissions.
func (v services) permitted(ctx context.Context, userID, group string) (map[string]bool, error) {
	list, err := v.server.Store.Members(ctx, []string{group})
	if err != nil {
		return nil, err
	}
	members := map[string]bool{}
	for _, m := range list {
		members[m.UserID] = true
	}
	var uuids []string
	for uuid, p := range v.runs {
		if members[p.ownerID] || group == store.PublicGroup {
			uuids = append(uuids, uuid)
		}
	}
	granted, err := v.server.Store.GrantedBundles(ctx, userID, uuids)
	permitted := map[string]bool{}
	for uuid, permission := range granted {
		permitted[uuid] = permission == store.PermissionAll
	}
	return permitted, err
}

// choose returns the worker that takes a run, serves its queue and has room, or why there is none.
// It prefers workers as does codalab/server/bundle_manager.py: _filter_and_sort_workers.
func (v *places) choose(p *pending) (*offer, string) {
	key := request{ownerID: p.ownerID, Resources: p.resources}
	key.Resources.DockerImage = ""
	if !p.asksTime {
		key.Resources.Time = 0
	}
	if slices.ContainsFunc(v.permitted, func(uuids map[string]bool) bool { return uuids[p.uuid] }) {
		key.uuid = p.uuid
	}
	if why, ok := v.refused[key]; ok {
		return nil, why
	}
	tag := queueTag(p.resources.Tag)
	served := v.serving(p, tag)
	others := v.held[p.ownerID].others
	full := others >= v.quotas[p.ownerID]
	mine := func(o *offer) bool { return o.key.User == p.ownerID || !full }
	var best *offer
	for _, o := range served {
		if o.runsLeft > 0 && o.largeEnough(p) && fits(p.resources, o.free) && o.lasts(p) && mine(o) && (best == nil || preferred(p, o, best)) {
			best = o
		}
	}
	if best == nil && !slices.ContainsFunc(served, func(o *offer) bool { return o.closed || o.largeEnough(p) }) {
		// It would wait without end. The run fails at once if a worker says why.
		if i := slices.IndexFunc(served, func(o *offer) bool { return o.refusesItself(p) && mine(o) }); i >= 0 {
			best = served[i]
		}
	}
	if best != nil {
		return best, ""
	}
	why := v.whyWaiting(p, tag, served)
	if full && slices.ContainsFunc(served, func(o *offer) bool { return o.key.User != p.ownerID }) {
		why = fmt.Sprintf("%d of your runs are on workers, as many as your quota of parallel runs allows.", others)
	}
	v.refused[key] = why
	return nil, why
}

// serving returns the workers that take a run and serve its queue.
func (v *places) serving(p *pending, tag string) []*offer {
	var served []*offer
	for _, o := range v.byTag[""] {
		if (tag == "" || o.tag == tag) && o.takes(p) {
			served = append(served, o)
		}
	}
	if tag == "" {
		return served
	}
	for _, o := range v.byTag[tag] {
		if o.takes(p) {
			served = append(served, o)
		}
	}
	return served
}

// whyWaiting explains to the owner why no worker takes a run. It tells only of workers that the owner
// may use.
func (v *places) whyWaiting(p *pending, tag string, served []*offer) string {
	if len(served) == 0 {
		now := cmp.Or(v.queues(p, func(*offer) bool { return true }), "none")
		if tag != "" {
			return fmt.Sprintf("No worker serves queue %s (queues now served: %s).", tag, now)
		}
		return fmt.Sprintf("No worker takes bundles that name no queue (queues now served: %s).", now)
	}
	worker := "No worker"
	if tag != "" {
		worker += " of queue " + tag
	}
	largeEnough := func(o *offer) bool { return o.largeEnough(p) }
	if why := whyClosed(served); why != "" && !slices.ContainsFunc(served, func(o *offer) bool { return largeEnough(o) && !o.closed }) {
		if tag != "" {
			return fmt.Sprintf("Queue %s takes no new bundles now: %s.", tag, why)
		}
		return fmt.Sprintf("The workers take no new bundles now: %s.", why)
	}
	large := slices.DeleteFunc(slices.Clone(served), func(o *offer) bool { return !largeEnough(o) && !o.closed })
	if len(large) > 0 && !slices.ContainsFunc(large, func(o *offer) bool { return o.lasts(p) }) {
		return fmt.Sprintf("%s runs for as long as %s: they end before that.", worker, codalab.FormatDuration(time.Duration(p.resources.Time)*time.Second))
	}
	if len(large) > 0 {
		return worker + " has room now; the bundle runs when one has."
	}
	why := fmt.Sprintf("%s is large enough for %s. Available resources: %s.", worker, formatResources(p.resources), available(p, served))
	if others := v.queues(p, largeEnough); others != "" {
		why += " Queues with larger workers: " + others + "."
	}
	return why
}

// whyClosed returns why some of these workers take no runs now; empty if none says so. Of several reasons it
// is always the same one, so that match need not write it at each pass.
func whyClosed(workers []*offer) string {
	var reasons []string
	for _, o := range workers {
		if o.closed && o.whyClosed != "" {
			reasons = append(reasons, o.whyClosed)
		}
	}
	if len(reasons) == 0 {
		return ""
	}
	return slices.Min(reasons)
}

// available spells what the best workers have. It leaves out a worker if another has at least as much of
// each resource (codalab/server/bundle_manager.py: _get_resource_recommendations). Free disk changes all
// the time, so it counts only for a run that requests disk.
func available(p *pending, workers []*offer) string {
	have := make([]codalab.Resources, 0, len(workers))
	for _, o := range workers {
		for _, size := range o.sizes() {
			if p.resources.Disk == 0 {
				size.Disk = 0
			}
			have = append(have, size)
		}
	}
	slices.SortFunc(have, func(a, b codalab.Resources) int { // so none has less than one behind it
		return cmp.Or(cmp.Compare(b.GPUs, a.GPUs), cmp.Compare(b.CPUs, a.CPUs), cmp.Compare(b.Memory, a.Memory), cmp.Compare(b.Disk, a.Disk))
	})
	var best []codalab.Resources
	var words []string
	for _, r := range have {
		if slices.ContainsFunc(best, func(better codalab.Resources) bool { return fits(r, better) }) {
			continue
		}
		if len(best) == mostKinds {
			words = append(words, "and others")
			break
		}
		best, words = append(best, r), append(words, formatResources(r))
	}
	return strings.Join(words, "; ")
}
