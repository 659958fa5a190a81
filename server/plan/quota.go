package plan

import (
	"fmt"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
)

const moreQuota = " To apply for more quota, please visit the following link: " +
	"https://codalab-worksheets.readthedocs.io/en/latest/FAQ/#how-do-i-request-more-disk-quota-or-time-quota"

// Quota has the quotas of a user, and their used parts. Times are in seconds, disk in bytes.
type Quota struct {
	Time, TimeUsed int64
	Disk, DiskUsed int64
	// Entries bounds the files, directories and links of all contents, and the bundles.
	Entries, EntriesUsed int64
	// Running is the part of DiskUsed and TimeUsed that belongs to runs on workers. Sentences name it if it is known.
	Running RunningUse
	// ParallelRuns bounds the runs on workers of other users.
	ParallelRuns int64
}

// RunningUse is what an owner's runs on workers have used so far.
type RunningUse struct{ Disk, Time int64 }

// Left returns the unused part of the disk quota, which is never negative.
func (q Quota) Left() codalab.Space {
	return codalab.Space{Bytes: q.Disk - q.DiskUsed, Entries: q.Entries - q.EntriesUsed}.AtLeast(codalab.Space{})
}

// TimeLeft returns the unused part of the time quota, which is never negative.
func (q Quota) TimeLeft() int64 { return max(0, q.Time-q.TimeUsed) }

// RefusesNew returns the sentence that refuses new bundles to a user who has used up a quota; empty for
// other users (codalab/objects/user.py: check_quota).
func (q Quota) RefusesNew() string {
	switch {
	case q.TimeUsed >= q.Time:
		return "Out of time quota: " + ratio(spellSeconds, q.TimeUsed, q.Time) + q.ofRunningTime()
	case q.DiskUsed >= q.Disk:
		return "Out of disk quota: " + ratio(codalab.FormatSize, q.DiskUsed, q.Disk) + q.ofRunningDisk()
	case q.EntriesUsed >= q.Entries:
		return "Out of the quota of files, directories, links and bundles: " + ratio(spellCount, q.EntriesUsed, q.Entries)
	}
	return ""
}

// KillMessage returns the kill message for the runs of a user who has used up a quota; empty for other
// users. A run makes no entries at the server before its results come, so the quota of entries kills none.
func (q Quota) KillMessage() string {
	switch {
	case q.TimeUsed >= q.Time:
		return codalab.KillRequested + ": User time quota exceeded." + moreQuota
	case q.DiskUsed >= q.Disk:
		return codalab.KillRequested + ": User disk quota exceeded." + moreQuota
	}
	return ""
}

// ofRunningDisk and ofRunningTime name the part of a used quota that belongs to runs on workers.
func (q Quota) ofRunningDisk() string { return ofRunning(codalab.FormatSize, q.Running.Disk) }
func (q Quota) ofRunningTime() string { return ofRunning(spellSeconds, q.Running.Time) }

// ofUsedDisk and ofUsedTime tell how much of a quota is used, if running runs have a part of that.
func (q Quota) ofUsedDisk() string {
	return ofUsed(ratio(codalab.FormatSize, q.DiskUsed, q.Disk), q.ofRunningDisk())
}

func (q Quota) ofUsedTime() string {
	return ofUsed(ratio(spellSeconds, q.TimeUsed, q.Time), q.ofRunningTime())
}

func ofUsed(used, running string) string {
	if running == "" {
		return ""
	}
	return ": " + used + " is used" + running
}

func ofRunning(spell func(int64) string, part int64) string {
	if part <= 0 {
		return ""
	}
	return ", " + spell(part) + " of it by running runs"
}

// ratio spells a part of a quota (codalab/lib/formatting.py: ratio_str).
func ratio(spell func(int64) string, used, quota int64) string {
	percent := 100.0
	if quota != 0 {
		percent = 100 * float64(used) / float64(quota)
	}
	return fmt.Sprintf("%s / %s (%.1f%%)", spell(used), spell(quota), percent)
}

// spellSeconds spells a number of seconds, as CodaLab spells durations.
func spellSeconds(n int64) string { return codalab.FormatDuration(time.Duration(n) * time.Second) }

func spellCount(n int64) string { return fmt.Sprint(n) }

// mostSlack bounds what an owner's uploads take before the store is asked for the quota again.
func mostSlack() codalab.Space { return codalab.Space{Bytes: 4 << 20, Entries: 1000} }

// Upload has the extents of an upload that is under way.
type Upload struct {
	// Held is the most that the upload has had on the disk at a time.
	Held codalab.Space
	// Replaced is the space that the bundle takes now, which ends if the upload succeeds: that of its contents, or that which the
	// worker of a run without contents has reported.
	Replaced codalab.Space
	// Stored is the space of its contents alone.
	Stored codalab.Space
}

// Growth returns the space by which the upload raises its owner's disk use if it succeeds; nothing if it does not.
func (u Upload) Growth() codalab.Space { return u.Held.Minus(u.Replaced).AtLeast(codalab.Space{}) }

// Most returns the space that the upload may hold, if the other uploads of its owner are these, and
// bundles leave so much of the owner's quota. A negative left means that the quota is exceeded. An upload
// may fail, and then its bundle keeps its contents. So no other upload may use the room of these contents. The upload
// itself may use all of that even then: a bridge that did not get the server's answer sends whole results again, and if
// they were refused it would replace them by the end of the output.
func (u Upload) Most(others []Upload, left codalab.Space) codalab.Space {
	for _, other := range others {
		left = left.Minus(other.Growth())
	}
	return left.Plus(u.Replaced).AtLeast(u.Stored)
}

// Slack returns the space that an owner's uploads may take before the store must be asked again.
// Whichever of them takes it, each holds Most at most.
func Slack(uploads []Upload, left codalab.Space) codalab.Space {
	own := codalab.Space{Bytes: mostSize, Entries: mostSize} // of the room of its contents, each upload may use so much more
	for _, u := range uploads {
		left = left.Minus(u.Growth())
		own = own.AtMost(u.Replaced.Minus(u.Held).AtLeast(codalab.Space{}))
	}
	return left.Plus(own).AtMost(mostSlack()).AtLeast(codalab.Space{})
}
