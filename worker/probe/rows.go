package probe

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/disktrial"
	"github.com/cl-slurm/cl-slurm/internal/purgers"
	"github.com/cl-slurm/cl-slurm/internal/tickets"
)

// Longest is the time that a run may take in a queue, with which ages and expiries are compared. 0 means that it has no
// bound.
type Longest time.Duration

// Checks judges the node by its facts, in the order from the kernel to the GPU. It returns nothing for the report of an
// older cl-worker.
func (r Report) Checks(longest Longest) []Check {
	f := r.Facts
	if f == nil {
		return nil
	}
	checks := []Check{r.checkNamespaces(), r.checkFuse()}
	if r.Host.Namespaces.Lack == "" {
		checks = append(checks, r.checkOverlay())
	}
	checks = append(checks, r.checkIDs())
	if f.Container != nil {
		checks = append(checks, f.Container.check())
	}
	if f.ScratchDisk != nil {
		checks = append(checks, checkScratchDisk(f.ScratchDir, *f.ScratchDisk))
	}
	checks = append(checks, CheckPurges("scratch", f.ScratchDir, f.Purges, longest)...)
	if f.SharedDisk != nil {
		checks = append(checks, CheckDisk(f.SharedDir, *f.SharedDisk)...)
		checks = append(checks, r.Locks.checks(f.SharedDir, *f.SharedDisk)...)
		checks = append(checks, CheckTickets(f.SharedDir, *f.SharedDisk, f.Tickets, longest, f.Now)...)
	}
	if f.SharedDir != "" {
		checks = append(checks, CheckPurges("purges", f.SharedDir, f.SharedPurges, 0)...)
	}
	if c := f.checkJobStart(); c.Name != "" {
		checks = append(checks, c)
	}
	return append(checks, f.GPUs.Checks(f.Container)...)
}

// unusable is the verdict on a lack of the built-in runtime: another runtime may do.
func (r Report) unusable() Verdict {
	if r.Choice == nil {
		return Failed
	}
	return Warning
}

// checkFuse judges the means to mount an image.
func (r Report) checkFuse() Check {
	const name, means = "fuse", "each run unpacks its image to scratch, which takes seconds to minutes and its room"
	fuse, program := r.Host.Fuse, r.Host.Squashfuse
	switch {
	case fuse.Lack != "":
		return Fault(r.unusable(), name, trimDot(fuse.Lack), means, "load the kernel's module fuse, and let a rule of udev give /dev/fuse the mode 0666")
	case program.Lack != "":
		return Fault(r.unusable(), name, trimDot(program.Lack), means, "install squashfuse 0.1.103 or newer")
	}
	return Passed(name, "/dev/fuse can be opened, and images are mounted by %s", program.Path)
}

// checkOverlay judges overlays in user namespaces, over the scratch and on the shared disk.
func (r Report) checkOverlay() Check {
	const name = "overlay"
	f := r.Facts
	if lack := trimDot(r.Host.Overlay.Lack); lack != "" {
		return Fault(r.unusable(), name, fmt.Sprintf("there can be none in a user namespace over %s: %s", f.ScratchDir, lack),
			"each run unpacks its image to scratch", "a kernel of 5.11 or newer (RHEL 8.5), and a scratch on the node's own disk, such as ext4 or xfs")
	}
	c := Passed(name, "images get a writable root over %s", f.ScratchDir)
	switch {
	case f.SharedDir == "":
		return c
	case f.SharedOverlay != "":
		c.Found += fmt.Sprintf("; %s allows none", f.SharedDir)
		return c.Meaning("scratch has to stay on the node's own disk, and no run needs one on the shared disk")
	}
	c.Found += ", and could over " + f.SharedDir
	return c
}

// checkIDs judges the subordinate ids.
func (r Report) checkIDs() Check {
	const name = "ids"
	if lack := r.Host.IDs.Lack; lack != "" {
		return Passed(name, "%s", trimDot(lack)).Meaning("in images, root is the only user: apt-get install, chown and su fail there (docs/containers.md, Users and groups)")
	}
	return Passed(name, "containers have the ids %s", r.Host.IDs.Version)
}

// check judges the trial of a container.
func (t *Trial) check() Check {
	const name = "container"
	switch {
	case t.Lack != "":
		return Fault(Failed, name, "one of an empty image did not run: "+trimDot(t.Lack), "no run begins on this node", "mend the named thing; docs/operators/start.md, What the nodes need")
	case t.Unpacked:
		return Fault(Warning, name, fmt.Sprintf("one of an empty image ran in %.2f s; its image was unpacked", t.Seconds), "each run unpacks its image to scratch", "see fuse and overlay")
	}
	return Passed(name, "one of an empty image was mounted, and ran, in %.2f s", t.Seconds)
}

// CheckPurges judges the rules that remove files of a directory, and its name. Runs that take longer than the age of a rule
// lose files while they run; 0 means that files are needed for any time.
func CheckPurges(name, dir string, rules []purgers.Rule, longest Longest) []Check {
	if len(rules) > 0 {
		r := rules[0] // that of the least age
		means := "files that nobody reads for so long vanish: results that are kept, images, inputs of waiting bundles"
		if name == "scratch" {
			if age := Longest(r.Age); age > 0 && longest > 0 && age > longest {
				return []Check{Passed(name, "%s; no run takes that long", r)}
			}
			means = "a run that takes longer can lose files of its root and of $TMPDIR"
		}
		return []Check{Fault(Warning, name, r.String(), means, fmt.Sprintf("have the site exempt it%s, or name a directory that nobody purges", exempt(r, dir)))}
	}
	if name == "scratch" {
		return nil // a directory of the node, whose name says nothing
	}
	if part := purgers.Suspicious(dir); part != "" {
		return []Check{Fault(Warning, name, fmt.Sprintf("no rule here removes files of %s, and its name has %q: many sites purge such disks from elsewhere", dir, part),
			"if this one does, files that nobody reads for weeks vanish: results that are kept, images, inputs of waiting bundles", "ask the administrator, and if it is purged, name another directory")}
	}
	return []Check{Passed(name, "no rule here removes files of %s", dir)}
}

// exempt returns advice by which a rule leaves a directory out.
func exempt(r purgers.Rule, dir string) string {
	switch r.By {
	case "systemd-tmpfiles":
		return fmt.Sprintf(" (a line %q in /etc/tmpfiles.d)", "x "+dir)
	case "tmpwatch":
		return " (-x " + dir + ")"
	case "tmpreaper":
		return fmt.Sprintf(" (--protect '%s/*')", dir)
	}
	return ""
}

// CheckTickets judges the tickets for the disk of a directory. A disk that lets in without has no check.
func CheckTickets(dir string, disk disktrial.Features, held []tickets.Ticket, longest Longest, now time.Time) []Check {
	const name = "tickets"
	if !disk.Kerberos() {
		return nil
	}
	kind := tickets.Kerberos
	if disk.Type == "afs" {
		kind = tickets.AFS
	}
	i := slices.IndexFunc(held, func(t tickets.Ticket) bool { return t.Kind == kind })
	where := fmt.Sprintf("%s is on %s, which lets in by tickets", dir, cmp.Or(strings.Join(append([]string{disk.Type}, disk.Options...), " "), "a disk"))
	const (
		means = "when it refuses, the bridge and its runs lose the disk, and runs end without results"
		do    = "let a keytab renew them for the whole time (k5start -f KEYTAB -K 10, or krenew), for the bridge and in jobs (auks, or Slurm's SPANK plugin of the site)"
	)
	switch {
	case i < 0:
		return []Check{Fault(Warning, name, where+", and was read without one here", "it may be that of another session of this account, which ends", do)}
	case !held[i].Valid(now):
		return []Check{Fault(Warning, name, fmt.Sprintf("%s; that of %s has expired, and the disk was read all the same", where, held[i].Of), means, do)}
	}
	t := held[i]
	left := t.Expires.Sub(now)
	said := fmt.Sprintf("%s; that of %s ends at %s, in %s", where, t.Of, t.Expires.UTC().Format("2006-01-02 15:04 UTC"), spellHours(left))
	if t.RenewUntil.After(t.Expires) {
		said += fmt.Sprintf(" (it can be renewed until %s)", t.RenewUntil.UTC().Format(time.DateOnly))
	}
	if longest == 0 || Longest(left) < longest {
		bound := "a run may take any time"
		if longest > 0 {
			bound = "a run may take " + spellHours(time.Duration(longest)) + ", after it has waited"
		}
		return []Check{Fault(Warning, name, said+", and "+bound, means, do)}
	}
	return []Check{Passed(name, "%s", said)}
}

// spellHours prints a time in days, hours or minutes.
func spellHours(d time.Duration) string {
	switch {
	case d >= 48*time.Hour:
		return fmt.Sprintf("%d days", d/(24*time.Hour))
	case d >= 2*time.Hour:
		return fmt.Sprintf("%d hours", d/time.Hour)
	}
	return fmt.Sprintf("%d minutes", d/time.Minute)
}

// checkJobStart compares the node's clock with the controller's, which has started the job before the node read its
// own.
func (f *Facts) checkJobStart() Check {
	behind := f.JobStart.Sub(f.Now)
	if f.JobStart.IsZero() || behind < clockNotice {
		return Check{}
	}
	return clockFault("clock", fmt.Sprintf("the node's clock is %.1f s before the begin of its job, by the controller's", behind.Seconds()), behind)
}

// clockNotice is the difference of clocks from which on a check warns. Two hosts with NTP differ by milliseconds.
const clockNotice = 5 * time.Second

// clockFault judges a difference of clocks. munge refuses credentials that are older than five minutes, and Kerberos tickets
// of such clocks.
func clockFault(name, found string, by time.Duration) Check {
	const do = "let chronyd or systemd-timesyncd set the clocks of all hosts"
	if by >= 5*time.Minute {
		return Fault(Failed, name, found, "munge and Kerberos refuse each other's credentials from five minutes on: jobs fail to start", do)
	}
	return Fault(Warning, name, found, "the times of runs are wrong by that; from five minutes on munge and Kerberos refuse each other's credentials", do)
}
