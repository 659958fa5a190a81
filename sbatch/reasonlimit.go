package sbatch

import (
	"regexp"
	"strings"
	"unicode"
)

// limitName matches the name of a limit of a QOS or an association. Its parts are the limit's holder, the kind of
// limit, the resource, a product with time, and the jobs among which the resource is counted. Names of the same
// resource differ: QOSGrpMemLimit, QOSGrpMemoryMinutes.
var limitName = regexp.MustCompile(`^(QOS|Assoc|)(Grp|Max|Min)` +
	`(Cpu|CPU|Mem|Memory|Node|GRES|Energy|License|BB|Billing|Unknown|SubmitJobs?|Jobs|WallDuration|Wall)` +
	`(RunMinutes|RunMins|Minutes|)(PerJob|PerNode|PerUser|PerAccount|)(?:Limit|NotSatisfied|)$`)

// limited is a resource of a limit's name: its words, those of its product with time, and the flag that asks for it.
type limited struct{ plain, overTime, flag string }

// limitedResource describes the resource of a limit's name.
func limitedResource(name string) limited {
	switch name {
	case "Cpu", "CPU":
		return limited{"processors", "processor time", "--request-cpus"}
	case "Mem", "Memory":
		return limited{"memory", "memory over time", "--request-memory"}
	case "Node":
		return limited{"nodes", "node time", ""}
	case "GRES":
		return limited{"GPUs or other generic resources", "time of GPUs or other generic resources", "--request-gpus"}
	case "Energy":
		return limited{"energy", "energy over time", ""}
	case "License":
		return limited{"licences", "licence time", ""}
	case "BB":
		return limited{"burst buffer", "burst buffer over time", ""}
	case "Billing":
		return limited{"billing units", "billing units over time", ""}
	}
	return limited{"of a resource", "of a resource over time", ""}
}

// explainLimit explains the name of a limit. The limits of one job never pass; all others do, when other jobs end
// or their use counts less (slurm.conf(5): PriorityDecayHalfLife). Slurm gives the limit of a group also for a job
// that alone exceeds it; the name does not show that.
func explainLimit(name string) (Explanation, bool) {
	m := limitName.FindStringSubmatch(name)
	if m == nil {
		return Explanation{}, false
	}
	holder := "the account"
	if m[1] == "QOS" || m[1] == "" {
		holder = "the QOS"
	}
	kind, what, product, scope := m[2], m[3], m[4], m[5]
	switch what {
	case "Jobs", "SubmitJob", "SubmitJobs":
		return explainJobs(holder, kind, what, scope), true
	case "Wall", "WallDuration":
		return explainWall(holder, kind), true
	}
	r := limitedResource(what)
	less := "Ask for less" + with(r.flag)
	switch {
	case kind == "Min":
		return Explanation{NeverStarts, holder + " demands that a job asks for more " + r.plain, "Ask for more" + with(r.flag) + ", or use another queue."}, true
	case kind == "Max" && product == "Minutes":
		return Explanation{NeverStarts, "within its time limit it could use more " + r.overTime + " than " + holder + " allows one job", less + ", or for less time with --request-time."}, true
	case kind == "Max" && scope == "PerNode":
		return Explanation{NeverStarts, "it asks for more " + r.plain + " on a node than " + holder + " allows one job", less + ", or use another queue."}, true
	case kind == "Max" && (scope == "PerJob" || scope == "" && product == ""):
		return Explanation{NeverStarts, "it asks for more " + r.plain + " than " + holder + " allows one job", less + ", or use another queue."}, true
	}
	return explainShared(holder, kind, product, scope, r), true
}

// RefusedLimit explains the limit that Slurm's words about a refused submission name; false if they name none.
func RefusedLimit(words string) (Explanation, bool) {
	for _, word := range strings.FieldsFunc(words, func(r rune) bool { return !unicode.IsLetter(r) }) {
		if e, ok := explainLimit(word); ok {
			return e, true
		}
	}
	return Explanation{}, false
}

// explainShared explains a limit on what several jobs use together.
func explainShared(holder, kind, product, scope string, r limited) Explanation {
	jobs := sharers(holder, kind, scope)
	switch product {
	case "Minutes":
		return Explanation{WaitsForLimit, "with it, " + jobs + " would use more " + r.overTime + " than " + holder + " has left", operatorKnows}
	case "RunMinutes", "RunMins":
		return Explanation{
			WaitsForLimit, "with it, " + jobs + " that run could use more " + r.overTime + " within their time limits than " + holder + " allows",
			afterOthers + " With a shorter --request-time it may begin earlier.",
		}
	}
	return Explanation{WaitsForLimit, "with it, " + jobs + " that run would have more " + r.plain + " than " + holder + " allows at once", afterOthers}
}

// afterOthers is the action for a limit that jobs reach together.
const afterOthers = "It can begin when some of them have ended."

// sharers names the jobs that share a limit.
func sharers(holder, kind, scope string) string {
	switch {
	case scope == "PerUser":
		return "the jobs of the bridge's Slurm user"
	case scope == "PerAccount":
		return "the jobs of the account"
	case kind == "Grp":
		return "all jobs of " + holder
	}
	return "the jobs of the bridge's Slurm user"
}

// explainJobs explains a limit on the number of jobs.
func explainJobs(holder, kind, what, scope string) Explanation {
	jobs := sharers(holder, kind, scope)
	if what == "Jobs" {
		return Explanation{WaitsForLimit, jobs + " that run are as many as " + holder + " allows", afterOthers}
	}
	return Explanation{WaitsForLimit, jobs + " that wait or run are as many as " + holder + " allows", afterOthers}
}

// explainWall explains a limit on run times.
func explainWall(holder, kind string) Explanation {
	if kind == "Grp" {
		return Explanation{WaitsForLimit, "with it, all jobs of " + holder + " would run for longer than " + holder + " has left", operatorKnows}
	}
	return Explanation{NeverStarts, "its time limit is longer than " + holder + " allows", askForTime}
}

// with returns the words that name a flag; "" for no flag.
func with(flag string) string {
	if flag == "" {
		return ""
	}
	return " with " + flag
}
