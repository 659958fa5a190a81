package sbatch

import (
	"cmp"
	"slices"
	"strings"
)

// LimitHolder names the kind of the holder of a limit.
//
//	Account             all jobs of an account and of the accounts below it
//	Account, User       the jobs of a user's association; Partition is set if that is for one partition alone
//	QOS                 all jobs of a QOS
//	QOS, User           the jobs of one user that have the QOS
//	QOS, Account        the jobs of one account that have the QOS
type LimitHolder struct {
	QOS       string `json:"qos,omitempty"`
	Account   string `json:"account,omitempty"`
	User      string `json:"user,omitempty"`
	Partition string `json:"partition,omitempty"`
}

// LimitKind is the quantity that a limit bounds, as scontrol show assoc_mgr spells it.
type LimitKind string

// The kinds of limits (sacctmgr(1): specifications for associations and QOS). PJ is a job, PN a job's part on one node,
// PU the jobs of a user, PA those of an account.
const (
	GrpJobs         LimitKind = "GrpJobs"
	GrpSubmitJobs   LimitKind = "GrpSubmitJobs"
	GrpWall         LimitKind = "GrpWall"
	GrpTRES         LimitKind = "GrpTRES"
	GrpTRESMins     LimitKind = "GrpTRESMins"
	GrpTRESRunMins  LimitKind = "GrpTRESRunMins"
	MaxJobs         LimitKind = "MaxJobs"
	MaxSubmitJobs   LimitKind = "MaxSubmitJobs"
	MaxWallPJ       LimitKind = "MaxWallPJ"
	MaxTRESPJ       LimitKind = "MaxTRESPJ"
	MaxTRESPN       LimitKind = "MaxTRESPN"
	MaxTRESMinsPJ   LimitKind = "MaxTRESMinsPJ"
	MaxJobsPU       LimitKind = "MaxJobsPU"
	MaxSubmitJobsPU LimitKind = "MaxSubmitJobsPU"
	MaxTRESPU       LimitKind = "MaxTRESPU"
	MaxJobsPA       LimitKind = "MaxJobsPA"
	MaxSubmitJobsPA LimitKind = "MaxSubmitJobsPA"
	MaxTRESPA       LimitKind = "MaxTRESPA"
)

// OnSubmissions reports whether the limit is on the number of jobs that wait or run.
func (k LimitKind) OnSubmissions() bool {
	return k == GrpSubmitJobs || k == MaxSubmitJobs || k == MaxSubmitJobsPU || k == MaxSubmitJobsPA
}

// OnRunning reports whether the limit is on the number of jobs that run.
func (k LimitKind) OnRunning() bool {
	return k == GrpJobs || k == MaxJobs || k == MaxJobsPU || k == MaxJobsPA
}

// OnShared reports whether the limit is on what several jobs that run have together of a resource.
func (k LimitKind) OnShared() bool { return k == GrpTRES || k == MaxTRESPU || k == MaxTRESPA }

// OnEachJob reports whether the limit is on each job alone, so that nothing is in use of it.
func (k LimitKind) OnEachJob() bool {
	return k == MaxWallPJ || k == MaxTRESPJ || k == MaxTRESPN || k == MaxTRESMinsPJ
}

// OnUser reports whether a QOS has the limit for each user.
func (k LimitKind) OnUser() bool { return k == MaxJobsPU || k == MaxSubmitJobsPU || k == MaxTRESPU }

// OnAccount reports whether a QOS has the limit for each account.
func (k LimitKind) OnAccount() bool { return k == MaxJobsPA || k == MaxSubmitJobsPA || k == MaxTRESPA }

// Limit is a limit that applies to certain jobs. It is comparable.
type Limit struct {
	Holder LimitHolder `json:"holder"`
	Kind   LimitKind   `json:"kind"`
	// TRES is the resource of a limit on resources: cpu, mem, node, gres/gpu, gres/gpu:a100.
	TRES string `json:"tres,omitempty"`
	// Most is the limit: a number of jobs, an amount of the resource (of memory in MiB), minutes, or such an amount
	// times minutes.
	Most int64 `json:"most"`
	// Used is the present use. It has no meaning unless Known is set, because sites may hide it, and limits of single jobs
	// have none.
	Used  int64 `json:"used,omitempty"`
	Known bool  `json:"known,omitempty"`
}

// Full reports whether the limit is known to be reached.
func (l Limit) Full() bool { return l.Known && l.Used >= l.Most }

// Bare returns the limit without its amounts. Two limits of the same bare one are the same limit at two times.
func (l Limit) Bare() Limit { return Limit{Holder: l.Holder, Kind: l.Kind, TRES: l.TRES} }

// LimitTable has the limits of a user's associations, of all accounts, and of all QOS, as the accounting database has
// them, without their use. The zero value has none.
type LimitTable struct {
	User string
	// Associations has the user's associations and those of accounts.
	Associations map[LimitHolder]LimitedAssociation
	// QOS has the limits of each QOS.
	QOS map[string][]Limit
	// PartitionQOS has the QOS that a partition gives each of its jobs, beside the job's own (slurm.conf(5): QOS). The one
	// of the empty name is that of the default partition.
	PartitionQOS map[string]string
}

// LimitedAssociation is an association with its limits.
type LimitedAssociation struct {
	// Parent is the account above that of the association; empty for none.
	Parent string
	// Default is set if the account is that of the user's jobs that name none.
	Default bool
	// DefaultQOS is the QOS of jobs that name none; empty for Slurm's choice among QOS.
	DefaultQOS string
	QOS        []string
	Limits     []Limit
}

// Of returns the limits of the user's jobs with this account, QOS and partition, of which the first two may be empty for
// Slurm's choice, and the last one may be a list. It returns none if the database has no such association.
//
// A limit of the partition's QOS hides the same one of the job's QOS, which hides that of the association
// (resource_limits.html: hierarchy; Slurm src/slurmctld/acct_policy.c). The limits of a group apply on each level of the
// tree of accounts.
func (t LimitTable) Of(account, qos, partition string) []Limit {
	own, ok := t.association(account, partition)
	if !ok {
		return nil
	}
	first := t.Associations[own]
	var all []Limit
	for _, name := range slices.Compact([]string{t.qosOf(partition), cmp.Or(qos, first.qosOfJobs())}) {
		for _, l := range t.QOS[name] {
			l.Holder = l.holderIn(own)
			all = addUnlessHidden(all, l)
		}
	}
	ofQOS := slices.Clone(all)
	for at, above := own, 0; above < maxDepth; above++ {
		a, ok := t.Associations[at]
		if !ok {
			break
		}
		for _, l := range a.Limits {
			isGroup := strings.HasPrefix(string(l.Kind), "Grp")
			if (isGroup || at == own) && !hidden(ofQOS, l) { // the database passes other limits on to the users below
				all = append(all, l)
			}
		}
		if at.User != "" {
			at = LimitHolder{Account: at.Account}
			continue
		}
		at = LimitHolder{Account: a.Parent}
	}
	return all
}

// maxDepth bounds the depth of the tree of accounts, in case that an answer has a circle.
const maxDepth = 100

// association returns the association of the user's jobs with this account and partition.
func (t LimitTable) association(account, partition string) (LimitHolder, bool) {
	if account == "" {
		for at, a := range t.Associations {
			if a.Default && at.User != "" {
				account = at.Account
			}
		}
	}
	for _, at := range []LimitHolder{{Account: account, User: t.User, Partition: partition}, {Account: account, User: t.User}} {
		if _, ok := t.Associations[at]; ok {
			return at, true
		}
	}
	return LimitHolder{}, false
}

// qosOf returns the QOS of a partition. Of several partitions it returns that which all of them have.
func (t LimitTable) qosOf(partitions string) string {
	names := strings.Split(partitions, ",")
	for _, p := range names {
		if t.PartitionQOS[p] != t.PartitionQOS[names[0]] {
			return ""
		}
	}
	return t.PartitionQOS[names[0]]
}

// qosOfJobs returns the QOS of jobs that name none (Slurm src/slurmctld/job_mgr.c: _determine_and_validate_qos, and
// src/common/assoc_mgr.c: _set_assoc_parent_and_user).
func (a LimitedAssociation) qosOfJobs() string {
	switch {
	case a.DefaultQOS != "":
		return a.DefaultQOS
	case len(a.QOS) == 1:
		return a.QOS[0]
	}
	return "normal"
}

// holderIn returns the holder of a limit of a QOS for the jobs of an association.
func (l Limit) holderIn(own LimitHolder) LimitHolder {
	switch {
	case l.Kind.OnUser():
		return LimitHolder{QOS: l.Holder.QOS, User: own.User}
	case l.Kind.OnAccount():
		return LimitHolder{QOS: l.Holder.QOS, Account: own.Account}
	}
	return LimitHolder{QOS: l.Holder.QOS}
}

// addUnlessHidden adds a limit of a QOS to those of another one, which have priority.
func addUnlessHidden(all []Limit, l Limit) []Limit {
	if slices.ContainsFunc(all, func(first Limit) bool {
		return first.Holder.QOS != l.Holder.QOS && first.Kind == l.Kind && first.TRES == l.TRES
	}) {
		return all
	}
	return append(all, l)
}

// hidden reports whether a limit of an association does not apply, because a QOS has one of the kind.
func hidden(ofQOS []Limit, l Limit) bool {
	return slices.ContainsFunc(ofQOS, func(q Limit) bool {
		same := q.Kind == l.Kind && q.TRES == l.TRES
		jobs := l.Kind == MaxJobs && (q.Kind == MaxJobsPU || q.Kind == MaxJobsPA)
		submitted := l.Kind == MaxSubmitJobs && (q.Kind == MaxSubmitJobsPU || q.Kind == MaxSubmitJobsPA)
		return same || jobs || submitted
	})
}

// Explains reports whether a limit is of the kind that one of Slurm's reasons names, such as AssocGrpCpuLimit.
func (l Limit) Explains(reason string) bool {
	m := limitName.FindStringSubmatch(reason)
	if m == nil || (l.Holder.QOS != "") != (m[1] != "Assoc") {
		return false
	}
	group, what, product, scope := m[2] == "Grp", m[3], m[4], m[5]
	if m[2] == "Min" {
		return false
	}
	kind := ""
	switch what {
	case "Jobs":
		kind = "Jobs"
	case "SubmitJob", "SubmitJobs":
		kind = "SubmitJobs"
	case "Wall", "WallDuration":
		kind = "Wall"
	default:
		kind = "TRES" + map[string]string{"Minutes": "Mins", "RunMinutes": "RunMins", "RunMins": "RunMins"}[product]
		if !isOf(l.TRES, what) {
			return false
		}
	}
	if group {
		return string(l.Kind) == "Grp"+kind
	}
	if scope == "" && (what == "Wall" || what == "WallDuration" || strings.HasPrefix(kind, "TRES")) {
		scope = "PerJob"
	}
	return string(l.Kind) == "Max"+kind+map[string]string{"PerJob": "PJ", "PerNode": "PN", "PerUser": "PU", "PerAccount": "PA"}[scope]
}

// isOf reports whether a trackable resource is the one that a reason names.
func isOf(tres, what string) bool {
	switch what {
	case "Cpu", "CPU":
		return tres == "cpu"
	case "Mem", "Memory":
		return tres == "mem"
	case "GRES":
		return strings.HasPrefix(tres, "gres/")
	case "License":
		return strings.HasPrefix(tres, "license/")
	case "BB":
		return strings.HasPrefix(tres, "bb/")
	}
	return strings.EqualFold(tres, what) // node, energy, billing
}
