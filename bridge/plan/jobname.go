package plan

import (
	"cmp"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// Owners and bundles have names of any length and characters. A job's name has at most this much of them: Slurm's
// database keeps 255 bytes of a job's name (Slurm src/plugins/accounting_storage/mysql: job_table). A comment has at
// most mostInComment bytes of each.
const (
	mostOfOwner   = 32
	mostOfBundle  = 48
	mostInComment = 100
)

// submissionName returns a name that no other submission has: its end, the generation and the bridge, makes it
// unique. The other parts are for people who read squeue and sacct: the names of the owner and of the bundle, and the
// bundle's first digits. Clients choose UUIDs, so bundles may share the digits.
func (p Policy) submissionName(r Row) SubmissionName {
	digits, run := r.Bundle, r.run()
	if len(digits) > 14 {
		digits = digits[2:14]
	}
	name := "cl-" + cleanName(cmp.Or(run.OwnerName, p.Owner), mostOfOwner) + "-"
	if bundle := cleanName(run.Metadata.String("name"), mostOfBundle); bundle != "" {
		name += bundle + "-"
	}
	submission := strconv.Itoa(r.Attempt.Number) + "-" + strconv.FormatInt(r.Generation, 10)
	return SubmissionName(name + digits + "." + submission + "-" + p.Bridge)
}

// endOfName matches the end of a submission name before the bridge's number: the attempt and the generation. Names of
// older bridges have no generation.
var endOfName = regexp.MustCompile(`^[^.]*\.[0-9]+(-[0-9]+)?-$`)

// isName reports whether a job's name is the name of one of this bridge's submissions.
func (p Policy) isName(name string) bool {
	before, ok := strings.CutSuffix(name, p.Bridge)
	return ok && strings.HasPrefix(before, "cl-") && endOfName.MatchString(before)
}

// comment returns the comment of a row's job. The bridge reads the values back (StampOf) and takes the first one of a
// key, so the names, which users choose, come last.
func (p Policy) comment(r Row) string {
	run := r.run()
	comment := fmt.Sprintf("codalab bundle=%s attempt=%d owner=%s bridge=%s generation=%d dir=%s identity=%s",
		r.Bundle, r.Attempt.Number, cleanValue(run.OwnerID), p.Bridge, r.Generation, r.OnDisk, run.Identity().Digest())
	if login := cleanValue(run.OwnerName); login != "" {
		comment += " login=" + login
	}
	if name := cleanValue(run.Metadata.String("name")); name != "" {
		comment += " name=" + name
	}
	return comment
}

// sharedComment returns the comment of the jobs of a submission that rows share. The bridge reads the values back (SharedStampOf).
func (p Policy) sharedComment(s *Submission, leader Row) string {
	run, kind := leader.run(), "tasks"
	if s.Pack {
		kind = "pack"
	}
	comment := fmt.Sprintf("codalab %s=%d owner=%s bridge=%s generation=%d", kind, len(s.Members), cleanValue(run.OwnerID), p.Bridge, s.Generation)
	if login := cleanValue(run.OwnerName); login != "" {
		comment += " login=" + login
	}
	return comment
}

// run returns the row's run message, or an empty one.
func (r Row) run() *codalab.RunBundle { return cmp.Or(r.Run, &codalab.RunBundle{}) }

// cleanValue returns a name for a comment. Names that CodaLab allows stay as they are.
func cleanValue(name string) string {
	return clean(name, mostInComment, func(r rune) bool { return !ofName(r) && r != '.' })
}

// cleanName returns a name for a part of a job's name, in which "." begins the attempt.
func cleanName(name string, most int) string {
	return clean(name, most, func(r rune) bool { return !ofName(r) })
}

func ofName(r rune) bool {
	return r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '_' || r == '-'
}

// clean replaces each group of odd characters by one "_", and returns at most so many bytes. Slurm and the programs of
// sites print names in tables with all kinds of separators, and Slurm's database does not keep all characters: it has
// "`" for a double quote.
func clean(name string, most int, odd func(rune) bool) string {
	if strings.ContainsFunc(name, odd) { // not the usual case, which needs no allocation
		name = strings.Join(strings.FieldsFunc(name, odd), "_")
	}
	return name[:min(len(name), most)]
}
