package plan

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// LimitWords describes a limit with its use, for operators: "account lab: 38 of 40 jobs run".
func LimitWords(l sbatch.Limit) string {
	who, of := holderOf(l.Holder)
	who = lowerFirst(who) + of
	most, count := amount(l, l.Most), "at most "
	if l.Known && !l.Kind.OnEachJob() {
		count = plainAmount(l, l.Used) + " of "
	}
	switch {
	case l.Kind.OnRunning():
		return fmt.Sprintf("%s: %s%s run", who, count, most)
	case l.Kind.OnSubmissions():
		return fmt.Sprintf("%s: %s%s wait or run", who, count, most)
	case l.Kind.OnShared():
		return fmt.Sprintf("%s: %s%s in use", who, count, most)
	case l.Kind == sbatch.GrpTRESMins, l.Kind == sbatch.GrpWall:
		return fmt.Sprintf("%s: %s%s used up", who, count, most)
	case l.Kind == sbatch.GrpTRESRunMins:
		return fmt.Sprintf("%s: %s%s left to jobs that run", who, count, most)
	case l.Kind == sbatch.MaxTRESPN:
		return fmt.Sprintf("%s: at most %s for a job on each node", who, most)
	}
	return fmt.Sprintf("%s: at most %s for a job", who, most)
}

// LimitSentence describes a limit with its use, for people whose jobs wait. An example is "Account lab may run 40 jobs at
// once, and 40 run."; the use is left out if it is not known.
func LimitSentence(l sbatch.Limit) string {
	who, of := holderOf(l.Holder)
	most, said := amount(l, l.Most)+of, ""
	now := func(verb, tail string) string {
		if !l.Known {
			return ""
		}
		return ", and " + verb + " " + plainAmount(l, l.Used) + tail
	}
	switch {
	case l.Kind.OnRunning() && l.Known:
		said = fmt.Sprintf("%s may run %s at once, and %d run", who, most, l.Used)
	case l.Kind.OnRunning():
		said = fmt.Sprintf("%s may run %s at once", who, most)
	case l.Kind.OnSubmissions():
		said = fmt.Sprintf("%s may have %s in Slurm at once%s", who, most, now("has", ""))
	case l.Kind.OnShared():
		said = fmt.Sprintf("%s may use %s at once%s", who, most, now("uses", ""))
	case l.Kind == sbatch.GrpTRESMins, l.Kind == sbatch.GrpWall:
		said = fmt.Sprintf("%s may use up %s%s", who, most, now("has used", ""))
	case l.Kind == sbatch.GrpTRESRunMins:
		said = fmt.Sprintf("%s may have %s left in jobs that run%s", who, most, now("has", ""))
	case l.Kind == sbatch.MaxTRESPN:
		said = fmt.Sprintf("%s allows one job at most %s on each node", who, most)
	default:
		said = fmt.Sprintf("%s allows one job at most %s", who, most)
	}
	return codalab.Sentence(said)
}

// holderOf names the holder of a limit, by the beginning of a sentence and by the words behind the amount. The name of the bridge's
// Slurm user says nothing to researchers.
func holderOf(h sbatch.LimitHolder) (who, of string) {
	account := "account " + termtext.Line(h.Account)
	switch {
	case h.QOS != "" && h.User != "":
		return "The bridge's Slurm user", " with QOS " + termtext.Line(h.QOS)
	case h.QOS != "" && h.Account != "":
		return upperFirst(account), " with QOS " + termtext.Line(h.QOS)
	case h.QOS != "":
		return "QOS " + termtext.Line(h.QOS), ""
	case h.User != "" && h.Partition != "":
		return "The bridge's Slurm user", " of " + account + " in partition " + termtext.Line(h.Partition)
	case h.User != "":
		return "The bridge's Slurm user", " of " + account
	}
	return upperFirst(account), ""
}

// amount spells n of the resource of a limit.
func amount(l sbatch.Limit, n int64) string {
	switch {
	case l.Kind.OnRunning() || l.Kind.OnSubmissions():
		return termtext.Count(n, "job")
	case l.Kind == sbatch.MaxWallPJ:
		return codalab.SpellDuration(time.Duration(min(n, mostMinutes)) * time.Minute)
	case l.Kind == sbatch.GrpWall:
		return termtext.Count(n, "minute") + " of run time"
	}
	product := l.Kind == sbatch.GrpTRESMins || l.Kind == sbatch.GrpTRESRunMins || l.Kind == sbatch.MaxTRESMinsPJ
	switch {
	case l.TRES == "mem" && product:
		return fmt.Sprintf("%d MiB-minutes of memory", n)
	case l.TRES == "mem":
		return codalab.FormatSize(mebibytes(n)) + " of memory"
	case product:
		return termtext.Count(n, resourceName(l.TRES)+" minute")
	case strings.Contains(l.TRES, "/") && !strings.HasPrefix(l.TRES, gpuTRES), l.TRES == "energy", l.TRES == "billing":
		return fmt.Sprintf("%d of %s", n, termtext.Line(l.TRES))
	}
	return termtext.Count(n, resourceName(l.TRES))
}

const mostMinutes = 100 * 366 * 24 * 60

// plainAmount is amount without the name of the resource, which the limit's own amount has.
func plainAmount(l sbatch.Limit, n int64) string {
	if l.TRES == "mem" && l.Kind.OnShared() {
		return codalab.FormatSize(mebibytes(n))
	}
	return fmt.Sprint(n)
}

// resourceName names one of a trackable resource.
func resourceName(tres string) string {
	if name, ok := strings.CutPrefix(tres, gpuTRES+":"); ok {
		return termtext.Line(name) + " GPU"
	}
	switch tres {
	case "cpu":
		return "CPU"
	case gpuTRES:
		return "GPU"
	}
	return termtext.Line(tres)
}

func upperFirst(s string) string {
	r, n := utf8.DecodeRuneInString(s)
	return string(unicode.ToUpper(r)) + s[n:]
}

// lowerFirst makes the first letter small, unless the word is an abbreviation.
func lowerFirst(s string) string {
	r, n := utf8.DecodeRuneInString(s)
	if next, _ := utf8.DecodeRuneInString(s[n:]); unicode.IsUpper(next) {
		return s
	}
	return string(unicode.ToLower(r)) + s[n:]
}
