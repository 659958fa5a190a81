package slurmtest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/sbatch"
)

// spec is a submission as slurmctld gets it: a Request, with what its further
// options mean.
type spec struct {
	sbatch.Request
	hold      bool
	requeue   bool
	begin     time.Duration // from the submission on
	nodes     int64         // 0 stands for 1
	nodeList  string
	licenses  string
	tasks     []int // of an array, ascending
	arraySpec bool
	atOnce    int           // how many tasks run at once; 0 is no limit
	warn      time.Duration // before the limit, at least
	warnWith  int           // the signal; 0 is none
	warnBatch bool          // the batch script gets it, and not the steps alone
	timeMin   time.Duration
	gresOdd   bool // a resource other than gpu

	parsable, truncate, exportNone, testOnly bool
	wrap                                     string
	env                                      []string // of the submitter, that the job gets
}

// UnmodelledError says that a test asked for something of Slurm's that this package
// does not know. It is a fault of the test or of this package, never Slurm's
// answer.
type UnmodelledError struct{ What string }

// Error names what is not known.
func (e *UnmodelledError) Error() string { return "slurmtest does not model " + e.What }

// specOf reads the further options of a request as sbatch would.
func specOf(r sbatch.Request) (*spec, error) {
	s := &spec{Request: r}
	if len(r.Extra) == 0 {
		return s, nil
	}
	s.Extra = nil
	rest, err := scan("sbatch", sbatchOptions, r.Extra, s.set)
	if err == nil && len(rest) > 0 {
		err = fail(1, "sbatch: error: Unable to open file "+rest[0])
	}
	s.Extra = r.Extra
	return s, err
}

// set applies one option of sbatch(1), by its long name.
func (s *spec) set(option, value string) error {
	var err error
	switch option {
	case "parsable":
		s.parsable = true
	case "job-name":
		s.Name = value
	case "comment":
		s.Comment = value
	case "partition":
		s.Partition = value
	case "account":
		s.Account = value
	case "qos":
		s.QOS = value
	case "wckey":
		s.WCKey = value
	case "reservation":
		s.Reservation = value
	case "constraint":
		s.Constraint = value
	case "chdir":
		s.Dir = value
	case "output":
		s.Output = value
	case "hold":
		s.hold = true
	case "requeue":
		s.requeue = true
	case "no-requeue":
		s.requeue = false
	case "nodelist":
		s.nodeList = value
	case "licenses":
		s.licenses = value
	case "test-only":
		s.testOnly = true
	case "wrap":
		s.wrap = value
	default:
		err = s.setParsed(option, value)
	}
	return err
}

// setParsed applies an option whose value has a form.
func (s *spec) setParsed(option, value string) error {
	var err error
	switch option {
	case "cpus-per-task":
		s.CPUs, err = number(option, value)
	case "nodes":
		s.nodes, err = number(option, value)
		if err == nil && s.nodes == 0 {
			s.nodes = noNodes
		}
	case "ntasks":
		var n int64
		if n, err = number(option, value); err == nil && n != 1 {
			err = &UnmodelledError{What: "sbatch --ntasks=" + value}
		}
	case "nice":
		err = s.setNice(value)
	case "time":
		s.Time, err = limit(option, value)
	case "time-min":
		s.timeMin, err = limit(option, value)
	case "mem":
		s.MemoryMiB, err = memory(value)
	case "gres":
		s.setGres(value)
	case "array":
		s.setArray(value)
	case "begin":
		err = s.setBegin(value)
	case "signal":
		err = s.setSignal(value)
	case "open-mode":
		s.truncate = strings.HasPrefix(value, "t")
	case "export":
		if s.exportNone = value == "NONE"; !s.exportNone && value != "ALL" {
			err = &UnmodelledError{What: "sbatch --export=" + value}
		}
	case "propagate":
		if value != "NONE" {
			err = &UnmodelledError{What: "sbatch --propagate=" + value}
		}
	default:
		err = &UnmodelledError{What: "sbatch --" + option}
	}
	return err
}

// noNodes stands for --nodes=0, as 0 stands for none asked.
const noNodes = -1

func number(option, value string) (int64, error) {
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || n < 0 {
		return 0, fail(1, fmt.Sprintf("sbatch: error: Invalid numeric value %q for --%s.", value, option))
	}
	return n, nil
}

func (s *spec) setNice(value string) error {
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		return fail(255, "sbatch: error: Invalid --nice specification")
	}
	if n > 2147483645 || n < -2147483645 {
		return fail(255, "sbatch: error: Invalid --nice value, out of range (+/- 2147483645)")
	}
	s.Nice = n
	return nil
}

// limit reads a time as sbatch(1) has it under --time: minutes,
// minutes:seconds, hours:minutes:seconds, days-hours, days-hours:minutes,
// days-hours:minutes:seconds.
func limit(option, value string) (time.Duration, error) {
	bad := fail(255, fmt.Sprintf("sbatch: error: Invalid --%s specification", option))
	days, clock, hasDays := strings.Cut(value, "-")
	if !hasDays {
		days, clock = "0", value
	}
	d, err := strconv.ParseUint(days, 10, 16)
	parts := strings.Split(clock, ":")
	if err != nil || len(parts) > 3 {
		return 0, bad
	}
	units := []time.Duration{time.Hour, time.Minute, time.Second}
	if !hasDays && len(parts) < 3 {
		units = units[1:]
	}
	total := time.Duration(d) * 24 * time.Hour
	for i, p := range parts {
		n, err := strconv.ParseUint(p, 10, 24)
		if err != nil {
			return 0, bad
		}
		total += time.Duration(n) * units[i]
	}
	return total, nil
}

func memory(value string) (int64, error) {
	digits := strings.TrimRight(value, "KMGTkmgt")
	n, err := strconv.ParseInt(digits, 10, 40)
	if err != nil || n < 0 || len(value)-len(digits) > 1 {
		return 0, fail(255, "sbatch: error: Invalid --mem specification")
	}
	switch strings.ToUpper(value[len(digits):]) {
	case "K":
		n = (n + 1023) / 1024
	case "G":
		n *= 1024
	case "T":
		n *= 1024 * 1024
	}
	if n == 0 {
		return 0, &UnmodelledError{What: "sbatch --mem=0, the whole node"}
	}
	return n, nil
}

// setGres reads gpu[:type][:count].
func (s *spec) setGres(value string) {
	parts := strings.Split(value, ":")
	if parts[0] != "gpu" {
		s.gresOdd = true
		return
	}
	s.GPUs, s.GPUType = 1, ""
	for _, p := range parts[1:] {
		if n, err := strconv.ParseInt(p, 10, 32); err == nil {
			s.GPUs = n
		} else {
			s.GPUType = p
		}
	}
}

// setArray reads 1-7, 1,3,5-9:2 and 0-15%4. What is no such list is left for
// the controller to refuse.
func (s *spec) setArray(value string) {
	s.arraySpec, s.tasks, s.atOnce = true, nil, 0
	list, bound, limited := strings.Cut(value, "%")
	if limited {
		n, err := strconv.Atoi(bound)
		if err != nil || n <= 0 {
			return
		}
		s.atOnce = n
	}
	var tasks []int
	for part := range strings.SplitSeq(list, ",") {
		span, every, stepped := strings.Cut(part, ":")
		first, last, ranged := strings.Cut(span, "-")
		if !ranged {
			last = first
		}
		if !stepped {
			every = "1"
		}
		a, aErr := strconv.ParseUint(first, 10, 24)
		b, bErr := strconv.ParseUint(last, 10, 24)
		step, stepErr := strconv.ParseUint(every, 10, 24)
		if aErr != nil || bErr != nil || stepErr != nil || a > b || step == 0 {
			return
		}
		for ; a <= b; a += step {
			tasks = append(tasks, int(a))
		}
	}
	slices.Sort(tasks)
	s.tasks = slices.Compact(tasks)
}

// setBegin reads now+seconds, now+minutes with a unit.
func (s *spec) setBegin(value string) error {
	after, ok := strings.CutPrefix(value, "now+")
	if !ok {
		return fail(255, "Invalid time specification (pos=0): "+value, "sbatch: error: Invalid --begin specification")
	}
	unit := time.Second
	for name, d := range map[string]time.Duration{"minutes": time.Minute, "minute": time.Minute, "hours": time.Hour, "hour": time.Hour, "seconds": time.Second} {
		if n, ok := strings.CutSuffix(after, name); ok {
			after, unit = n, d
			break
		}
	}
	n, err := strconv.ParseUint(after, 10, 24)
	if err != nil {
		return fail(255, "Invalid time specification (pos=0): "+value, "sbatch: error: Invalid --begin specification")
	}
	s.begin = time.Duration(n) * unit
	return nil
}

// setSignal reads [B:]signal[@seconds].
func (s *spec) setSignal(value string) error {
	name, at, timed := strings.Cut(value, "@")
	if s.warn = time.Minute; timed {
		n, err := strconv.ParseUint(at, 10, 16)
		if err != nil {
			return fail(255, "sbatch: error: Invalid --signal specification")
		}
		s.warn = time.Duration(n) * time.Second
	}
	name, s.warnBatch = strings.CutPrefix(name, "B:")
	if s.warnWith = signals[strings.TrimPrefix(name, "SIG")]; s.warnWith == 0 {
		return fail(255, "sbatch: error: Invalid --signal specification")
	}
	return nil
}

// signals are those that a job can be warned with, by their names and numbers.
var signals = map[string]int{ //nolint:gochecknoglobals // a table, never written
	"HUP": 1, "INT": 2, "QUIT": 3, "KILL": 9, "USR1": 10, "USR2": 12, "TERM": 15, "CONT": 18, "STOP": 19,
	"1": 1, "2": 2, "3": 3, "9": 9, "10": 10, "12": 12, "15": 15, "18": 18, "19": 19,
}
