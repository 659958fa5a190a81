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

// reserveStep is the number of bytes that an Account reserves at a time. The store is asked for the
// quota once per step.
const reserveStep = 4 << 20

// Account has the disk quota that the uploads of one owner hold together, in bytes.
type Account struct {
	// Reserved is never less than Written.
	Reserved, Written int64
}

// Covers reports whether n more bytes are reserved already.
func (a Account) Covers(n int64) bool { return a.Written+n <= a.Reserved }

// Reserve reserves n more bytes, and some for later, of a quota that has left bytes for all uploads of
// the owner. It returns false if they do not fit.
func (a Account) Reserve(n, left int64) (Account, bool) {
	need := a.Written + n
	if need > left {
		return a, false
	}
	a.Reserved = min(left, need+reserveStep)
	return a, true
}

// Write counts n bytes that are reserved.
func (a Account) Write(n int64) Account {
	a.Written += n
	return a
}

// Rewind takes back n written bytes. They stay reserved.
func (a Account) Rewind(n int64) Account {
	a.Written -= n
	return a
}

// Settle takes out n written bytes that DiskUsed has from now on.
func (a Account) Settle(n int64) Account {
	a.Reserved -= n
	a.Written -= n
	return a
}
