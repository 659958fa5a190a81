package server

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/store"
)

const (
	// minRequestMemory is the least memory that a run may request: Docker starts no container with less
	// (codalab/server/bundle_manager.py: MINIMUM_REQUEST_MEMORY_BYTES).
	minRequestMemory = 4 << 20
	// diskSlack is how much of a disk quota a request must leave (DISK_QUOTA_SLACK_BYTES).
	diskSlack = 1 << 29

	moreQuota = " To apply for more quota, please visit the following link: " +
		"https://codalab-worksheets.readthedocs.io/en/latest/FAQ/#how-do-i-request-more-disk-quota-or-time-quota"
)

// resourceFailures returns why waiting runs fail: they request more than their owners' quotas or the
// site's limits allow (codalab/server/bundle_manager.py: _get_staged_bundles_to_run).
func (s *Server) resourceFailures(ctx context.Context, runs map[string]*pending) (map[string]string, error) {
	owners, ids := map[string]store.User{}, []string{}
	for _, p := range runs {
		if _, ok := owners[p.ownerID]; !ok {
			owners[p.ownerID] = store.User{}
			ids = append(ids, p.ownerID)
		}
	}
	owners, err := s.Store.UsersByID(ctx, ids)
	if err != nil {
		return nil, err
	}
	failed := map[string]string{}
	for uuid, p := range runs {
		if owner, ok := owners[p.ownerID]; ok {
			if why := s.resourceFailure(p, owner); why != "" {
				failed[uuid] = why
			}
		}
	}
	return failed, nil
}

// resourceFailure returns why a run fails; empty if it may run. What the run did not request itself
// is cut to what is left (capResources).
func (s *Server) resourceFailure(p *pending, owner store.User) string {
	seconds := func(n int64) string { return codalab.FormatDuration(time.Duration(n) * time.Second) }
	size, r := codalab.FormatSize, p.resources
	var why []string
	more := func(format string, spell func(int64) string, asked, most int64) {
		why = append(why, fmt.Sprintf(format, spell(asked), spell(most), spell(asked-most)))
	}
	maxTime := int64(s.MaxRequestTime / time.Second)
	if left := owner.DiskQuota - owner.DiskUsed - diskSlack; p.asksDisk && r.Disk > 0 && r.Disk > left {
		more("Requested more disk (%s) than user disk quota left (%s) by %s", size, r.Disk, left)
	} else if s.MaxRequestDisk > 0 && r.Disk > s.MaxRequestDisk {
		more("Requested more disk (%s) than maximum limit (%s) by %s", size, r.Disk, s.MaxRequestDisk)
	}
	if left := owner.TimeQuota - owner.TimeUsed; p.asksTime && r.Time > 0 && r.Time > left {
		more("Requested more time (%s) than user time quota left (%s) by %s", seconds, r.Time, left)
	} else if maxTime > 0 && r.Time > maxTime {
		more("Requested more time (%s) than maximum limit (%s) by %s", seconds, r.Time, maxTime)
	}
	switch {
	case s.MaxRequestMemory > 0 && r.Memory > s.MaxRequestMemory:
		more("Requested more memory (%s) than maximum limit (%s) by %s", size, r.Memory, s.MaxRequestMemory)
	case r.Memory > 0 && r.Memory < minRequestMemory:
		why = append(why, fmt.Sprintf("Requested less memory (%s) than minimum limit (%s) by %s", size(r.Memory), size(minRequestMemory), size(minRequestMemory-r.Memory)))
	}
	return strings.Join(why, ". ")
}

// capResources reduces the disk and time of a run that requested none to what is left of its owner's
// quotas (_compute_request_disk, _compute_request_time).
func (s *Server) capResources(ctx context.Context, r *codalab.Resources, b store.Bundle) error {
	disk := s.MaxRequestDisk > 0 && b.Metadata.String("request_disk") == ""
	seconds := s.MaxRequestTime > 0 && b.Metadata.String("request_time") == ""
	if !disk && !seconds {
		return nil
	}
	owner, err := s.Store.User(ctx, b.OwnerID)
	if err != nil {
		return err
	}
	if disk { // 0 would mean no limit
		r.Disk = max(1, min(r.Disk, owner.DiskQuota-owner.DiskUsed-1))
	}
	if seconds {
		r.Time = max(1, min(r.Time, owner.TimeQuota-owner.TimeUsed-1))
	}
	return nil
}

// enforceQuotas has workers kill those of these runs whose owners have used up a quota
// (codalab/rest/workers.py: checkin).
func (s *Server) enforceQuotas(ctx context.Context, runs map[string]store.Bundle) error {
	ids := map[string]bool{}
	for _, b := range runs {
		if b.State.OnWorker() && b.KillMessage == "" {
			ids[b.OwnerID] = true
		}
	}
	if len(ids) == 0 {
		return nil
	}
	var list []string
	for id := range ids {
		list = append(list, id)
	}
	owners, err := s.Store.UsersByID(ctx, list)
	if err != nil {
		return err
	}
	var over []string
	for uuid, b := range runs {
		if owner, ok := owners[b.OwnerID]; ok && ids[b.OwnerID] && overQuota(owner) != "" {
			over = append(over, uuid)
		}
	}
	if len(over) == 0 {
		return nil
	}
	_, err = s.Store.ChangeAll(ctx, over, func(b *store.Bundle) error {
		if b.State.OnWorker() && b.State != codalab.StateStarting && b.KillMessage == "" {
			b.KillMessage = overQuota(owners[b.OwnerID])
		}
		return nil
	})
	s.changed(over...)
	return err
}

// overQuota is the kill message for the runs of a user who has used up a quota; empty for others.
func overQuota(u store.User) string {
	switch {
	case u.TimeUsed >= u.TimeQuota:
		return codalab.KillRequested + ": User time quota exceeded." + moreQuota
	case u.DiskUsed >= u.DiskQuota:
		return codalab.KillRequested + ": User disk quota exceeded." + moreQuota
	}
	return ""
}
