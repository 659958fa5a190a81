package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/cmd/internal/grid"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/pause"
)

// The members of a sweep are made in requests of at most maxRequestRuns runs and about maxRequestBytes: a server takes
// bodies of 8 MiB.
const (
	maxRequestRuns  = 1000
	maxRequestBytes = 4 << 20
)

// maxTries bounds the attempts at one request whose answer is lost.
const maxTries = 4

// remake chooses the members that get another run, besides those without any.
type remake struct{ failed, killed bool }

// wants reports whether a member whose newest run is b gets another one.
func (r remake) wants(b client.BundleInfo) bool {
	return r.failed && b.State == codalab.StateFailed || r.killed && b.State == codalab.StateKilled
}

// newest returns the newest run of each member, by the member's key.
func (s *sweep) newest() map[string]client.BundleInfo {
	runs := map[string]client.BundleInfo{}
	for _, b := range sweepRuns(s.sheet) {
		runs[grid.Member(b.Metadata.Settings()).Key()] = b
	}
	return runs
}

// makeMissing makes the runs of members that have none, or whose newest run is to be made again, and returns them. Before
// each request it looks at the worksheet, so no member gets two runs, whoever made the first one, and whether or not the
// answer to the last request has come. Each run keeps its uuid over all attempts, and the server refuses a uuid that it
// knows: a request that is still under way after its connection broke makes nothing twice.
func (c *cli) makeMissing(ctx context.Context, s *sweep, members []grid.Member, again remake) ([]client.BundleInfo, error) {
	m := &memberMaker{sweep: s, members: members, again: again, uuids: map[string]string{}, made: map[string]client.BundleInfo{}}
	for tries := 0; ; {
		request, err := m.request()
		if err != nil || len(request) == 0 {
			return m.list(), err
		}
		warnings, err := m.send(ctx, request)
		c.warnOnce(warnings)
		switch {
		case ctx.Err() != nil:
			return m.list(), ctx.Err()
		case err == nil && len(m.missing()) == 0:
			return m.list(), nil
		case err == nil:
			tries = 0
		case tries == maxTries || !transient(err) && !m.taken(err):
			return m.list(), err
		default:
			if pause.For(ctx, time.Second/10<<tries) != nil {
				return m.list(), ctx.Err()
			}
			tries++
		}
		if err := m.refresh(ctx); err != nil && !transient(err) {
			return m.list(), err
		}
	}
}

// memberMaker makes runs of members.
type memberMaker struct {
	sweep   *sweep
	members []grid.Member
	again   remake
	// uuids are those of the runs to make, by the member's key.
	uuids map[string]string
	// refused is set while the server has refused the last request, as it has a uuid of it, or had it. deleted counts the times
	// that such a run was deleted.
	refused bool
	deleted int
	// made are the runs that were made, by the member's key.
	made map[string]client.BundleInfo
}

// missing returns the members that get a run.
func (m *memberMaker) missing() (list []grid.Member) {
	newest := m.sweep.newest()
	for _, member := range m.members {
		key := member.Key()
		if _, made := m.made[key]; made {
			continue
		}
		if b, there := newest[key]; !there || m.again.wants(b) {
			list = append(list, member)
		}
	}
	return list
}

// request returns the runs of the next request; none if all members have theirs.
func (m *memberMaker) request() ([]client.NewBundle, error) {
	var request []client.NewBundle
	size := 0
	for _, member := range m.missing() {
		run, err := m.sweep.definition.run(member)
		if err != nil {
			return nil, err
		}
		run.Worksheet, run.UUID = m.sweep.sheet.UUID, m.uuid(member.Key())
		tags := append(slices.Clone(run.Metadata.Strings("tags")), codalab.SweepTags(m.sweep.sheet.UUID, member)...)
		run.Metadata["tags"] = tags
		size += 2000 + len(run.Command) + len(strings.Join(tags, " ")) + 200*len(run.Dependencies)
		if len(request) > 0 && (len(request) == maxRequestRuns || size > maxRequestBytes) {
			break
		}
		request = append(request, run)
	}
	return request, nil
}

// uuid returns the uuid of a member's next run. It follows from the member and from all that the worksheet has, so that
// two machines that make the same run at the same time choose the same one, and the server refuses the second.
func (m *memberMaker) uuid(key string) string {
	if m.uuids[key] == "" {
		sheet := m.sweep.sheet
		parts := []string{sheet.UUID, key, sheet.DateLastModified, strconv.Itoa(m.deleted)}
		for _, b := range sheet.Bundles {
			parts = append(parts, b.UUID)
		}
		digest := sha256.Sum256([]byte(strings.Join(parts, "\n")))
		m.uuids[key] = "0x" + hex.EncodeToString(digest[:16])
	}
	return m.uuids[key]
}

// send sends a request. It is not given up while the server may carry it out, unless the user insists.
func (m *memberMaker) send(ctx context.Context, request []client.NewBundle) (warnings []string, err error) {
	longer, cancel := outlive(ctx, cleanupLimit)
	defer cancel()
	list, err := m.sweep.CreateBundles(longer, request)
	for i, b := range list {
		if i == 0 {
			warnings = b.Warnings
		}
		m.note(b)
	}
	return warnings, err
}

// note notes a run that was made.
func (m *memberMaker) note(b client.BundleInfo) {
	m.made[grid.Member(b.Metadata.Settings()).Key()] = b
}

// taken reports whether a request was refused because a run of it exists already, or did.
func (m *memberMaker) taken(err error) bool {
	m.refused = codalab.IsTaken(err)
	return m.refused
}

// refresh reads the worksheet again, and notes the runs of a request without an answer. If a request was refused of which the
// worksheet has no run, one was deleted, and all runs to make get other uuids.
func (m *memberMaker) refresh(ctx context.Context) error {
	s, err := m.sweep.readSweep(ctx, m.sweep.sheet.UUID, sweepKeys())
	if err != nil {
		return err
	}
	m.sweep = s
	found := false
	for key, b := range s.newest() {
		if _, known := m.made[key]; m.uuids[key] == b.UUID {
			found = found || !known
			m.note(b)
		}
	}
	if m.refused && !found {
		m.deleted++
		clear(m.uuids)
	}
	m.refused = false
	return nil
}

// list returns the runs that were made, in the order of the members.
func (m *memberMaker) list() (made []client.BundleInfo) {
	for _, member := range m.members {
		if b, ok := m.made[member.Key()]; ok {
			made = append(made, b)
		}
	}
	return made
}
