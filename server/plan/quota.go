package plan

import (
	"fmt"

	"github.com/cl-slurm/cl-slurm/codalab"
)

const moreQuota = " To apply for more quota, please visit the following link: " +
	"https://codalab-worksheets.readthedocs.io/en/latest/FAQ/#how-do-i-request-more-disk-quota-or-time-quota"

// Quota has the quotas of a user, and their used parts. Times are in seconds, disk in bytes.
type Quota struct {
	Time, TimeUsed int64
	Disk, DiskUsed int64
	// ParallelRuns bounds the runs on workers of other users.
	ParallelRuns int64
}

// RefusesNew returns the sentence that refuses new bundles to a user who has used up a quota; empty for
// other users (codalab/objects/user.py: check_quota).
func (q Quota) RefusesNew() string {
	switch {
	case q.TimeUsed >= q.Time:
		return "Out of time quota: " + ratio(spellSeconds, q.TimeUsed, q.Time)
	case q.DiskUsed >= q.Disk:
		return "Out of disk quota: " + ratio(codalab.FormatSize, q.DiskUsed, q.Disk)
	}
	return ""
}

// KillMessage returns the kill message for the runs of a user who has used up a quota; empty for other
// users.
func (q Quota) KillMessage() string {
	switch {
	case q.TimeUsed >= q.Time:
		return codalab.KillRequested + ": User time quota exceeded." + moreQuota
	case q.DiskUsed >= q.Disk:
		return codalab.KillRequested + ": User disk quota exceeded." + moreQuota
	}
	return ""
}

// ratio spells a part of a quota (codalab/lib/formatting.py: ratio_str).
func ratio(spell func(int64) string, used, quota int64) string {
	percent := 100.0
	if quota != 0 {
		percent = 100 * float64(used) / float64(quota)
	}
	return fmt.Sprintf("%s / %s (%.1f%%)", spell(used), spell(quota), percent)
}

// mostSlack bounds the bytes that an owner's uploads take before the store is asked for the quota again.
const mostSlack = 4 << 20

// Upload has the sizes of an upload that is under way, in bytes.
type Upload struct {
	// Held is the most that the upload has had on the disk at a time.
	Held int64
	// Replaced is the size of the bundle's present contents, which go if the upload succeeds.
	Replaced int64
}

// Growth returns the bytes by which the upload raises its owner's disk use if it succeeds; 0 if it does not.
func (u Upload) Growth() int64 { return max(0, u.Held-u.Replaced) }

// Most returns the number of bytes that the upload may hold, if the other uploads of its owner are these, and
// bundles leave so many bytes of the owner's quota. A negative left means that the quota is exceeded. An upload
// may fail, and then its bundle keeps its contents. So no other upload may use the room of these contents.
func (u Upload) Most(others []Upload, left int64) int64 {
	for _, other := range others {
		left -= other.Growth()
	}
	return left + u.Replaced
}

// Slack returns the number of bytes that an owner's uploads may take before the store must be asked again.
// Whichever of them takes these, each holds Most at most.
func Slack(uploads []Upload, left int64) int64 {
	own := int64(mostSize) // of the room of its contents, each upload may use so much more
	for _, u := range uploads {
		left -= u.Growth()
		own = min(own, max(0, u.Replaced-u.Held))
	}
	return max(0, min(mostSlack, left+own))
}
