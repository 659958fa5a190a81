package explained_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/sbatch/slurmtest"
)

// wait makes the cluster keep a job waiting.
type wait struct {
	// partition has settings of a partition of the wait's own, which has the nodes n1 to n4 unless they say otherwise.
	partition []string
	// qos has the limits of a QOS of that partition, account those of an account of the wait's own. A wait without any of
	// the three is in the partition cpu.
	qos, account []string
	// options are those of all jobs of the wait, first those of the jobs before alone, and own those of the job alone.
	options, first, own []string
	// before is the number of jobs that run before the job is submitted, and behind that of further ones which wait.
	before, behind int
	// script is what the job does if it runs first; empty means that it never ends by itself.
	script string
	// prepare and then are called before the job is submitted, and after it.
	prepare, then func(t *testing.T, w placed)
	// reason begins Slurm's reason, or has several such beginnings with | between them; empty means the wait's name.
	reason string
}

// waits are ways to make a job wait, by the reason that Slurm gives.
func waits(s *slurm) map[string]wait {
	all := map[string]wait{}
	for _, some := range []map[string]wait{turnWaits(), timeWaits(), partitionWaits(s), heldWaits(), nodeWaits(s), qosWaits(), accountWaits()} {
		for name, w := range some {
			all[name] = w
		}
	}
	if s.version == slurmtest.Slurm2411 {
		delete(all, "PartitionConfig") // it refuses such a job
	}
	return all
}

// turnWaits are waits for resources.
func turnWaits() map[string]wait {
	one := []string{"Nodes=n2", "MaxCPUsPerNode=1"} // the first job takes it
	return map[string]wait{
		"Resources":         {partition: []string{"Nodes=n21"}, options: []string{"--cpus-per-task=64"}, before: 1},
		"Priority":          {partition: one, before: 1, behind: 1},
		"Licenses":          {options: []string{"--licenses=scarce:1"}, before: 1},
		"JobArrayTaskLimit": {own: []string{"--array=1-3%1"}},
	}
}

// timeWaits are waits for a time or an event.
func timeWaits() map[string]wait {
	return map[string]wait{
		"BeginTime": {own: []string{"--begin=now+3600"}},
		"Dependency": {prepare: func(t *testing.T, w placed) {
			t.Helper()
			*w.options = append(*w.options, "--dependency=after:"+w.submit(t, "-parent", "true", "--hold"))
		}},
		"DependencyNeverSatisfied": {prepare: func(t *testing.T, w placed) {
			t.Helper()
			failed := w.submit(t, "-parent", "exit 1")
			w.await(t, "-parent", func(j job) bool { return j.state == "FAILED" })
			*w.options = append(*w.options, "--dependency=afterok:"+failed)
		}},
		"Reservation": {prepare: func(t *testing.T, w placed) {
			t.Helper()
			w.reserve(t, "StartTime=now+1days", "Nodes=n1", "Flags=IGNORE_JOBS", "Users=researcher")
			*w.options = append(*w.options, "--reservation="+w.name)
		}},
		"ReservationDeleted": {reason: "Reservation wait", prepare: func(t *testing.T, w placed) {
			t.Helper()
			w.reserve(t, "StartTime=now+2days", "Nodes=n20", "Flags=IGNORE_JOBS", "Users=researcher")
			*w.options = append(*w.options, "--reservation="+w.name)
		}, own: []string{"--begin=now+3600"}, then: func(t *testing.T, w placed) { // it is deleted at its end
			t.Helper()
			w.s.root(t, "scontrol", "update", "ReservationName="+w.name, "StartTime=now", "Duration=1")
		}},
		"maintenance": {
			reason: "ReqNodeNotAvail, Reserved for maintenance", partition: []string{"Nodes=n5"}, options: []string{"--time=1-12"},
			prepare: func(t *testing.T, w placed) {
				t.Helper()
				w.reserve(t, "StartTime=now+1days", "Nodes=n5", "Flags=MAINT,IGNORE_JOBS", "Users=root")
			},
		},
		"reserved for others": {
			reason: "ReqNodeNotAvail, ", partition: []string{"Nodes=n20"}, options: []string{"--time=1-12", "--nodelist=n20"},
			prepare: func(t *testing.T, w placed) {
				t.Helper()
				w.reserve(t, "StartTime=now+1days", "Nodes=n20", "Flags=IGNORE_JOBS", "Users=root")
			},
		},
	}
}

// partitionWaits are waits for which a partition is the reason.
func partitionWaits(s *slurm) map[string]wait {
	return map[string]wait{
		"PartitionTimeLimit": {partition: []string{"MaxTime=5"}},
		"PartitionNodeLimit": {partition: []string{"MaxNodes=1"}, options: []string{"--nodes=2", "--ntasks=2"}},
		"PartitionConfig":    {options: []string{"--cpus-per-task=500"}},
		"PartitionDown":      {partition: []string{"State=DOWN"}},
		"PartitionInactive": {own: []string{"--begin=now+2"}, partition: []string{"State=UP"}, then: func(t *testing.T, w placed) {
			t.Helper()
			w.s.root(t, "scontrol", "update", "PartitionName="+w.name, "State=INACTIVE")
		}},
		"for other accounts": {reason: s.either("Job's account not permitted", "PartitionConfig"), partition: []string{"AllowAccounts=nlp"}},
		"for other QOS":      {reason: "Job's QOS not permitted|PartitionConfig", partition: []string{"AllowQos=limited"}},
		"MaxMemPerLimit":     {partition: []string{"MaxMemPerNode=8"}},
	}
}

// heldWaits are waits until somebody releases the job.
func heldWaits() map[string]wait {
	requeueable := []string{"--requeue"}
	requeueHold := func(args ...string) func(t *testing.T, w placed) {
		return func(t *testing.T, w placed) {
			t.Helper()
			// A running job has the reason Prolog at first. The end of its prolog clears the reason, also that of a requeue which
			// came before it: prolog_complete in Slurm's src/slurmctld/job_mgr.c.
			j := w.await(t, "", func(j job) bool { return j.state == "RUNNING" && j.reason == "None" })
			w.s.root(t, slices.Concat([]string{"scontrol", "requeuehold"}, args, []string{j.id})...)
		}
	}
	return map[string]wait{
		"JobHeldUser": {own: []string{"--hold"}},
		"JobHeldAdmin": {own: []string{"--begin=now+3600"}, then: func(t *testing.T, w placed) {
			t.Helper()
			w.s.root(t, "scontrol", "hold", w.await(t, "", func(j job) bool { return j.reason == "BeginTime" }).id)
		}},
		"job requeued in held state": {options: requeueable, then: requeueHold()},
		"requeued in special exit state": {
			options: requeueable, then: requeueHold("State=SpecialExit"), reason: "job requeued in ",
		},
		"an exit status for which the site holds jobs": {options: requeueable, script: "exit 42", reason: "JobHeldUser"},
		"launch failed requeued held": {
			partition: []string{"Nodes=n6"}, options: requeueable,
			prepare: func(t *testing.T, w placed) { t.Helper(); _ = w.s.prologFails(t, w.name, "n6") },
		},
	}
}

// nodeWaits are waits for which nodes are the reason. n7 is drained.
func nodeWaits(s *slurm) map[string]wait {
	drained := func(t *testing.T, w placed) {
		t.Helper()
		w.s.root(t, "scontrol", "update", "NodeName=n7", "State=DRAIN", "Reason=cltest")
	}
	return map[string]wait{
		"a drained node that it names": {
			reason: s.either("ReqNodeNotAvail, UnavailableNodes:n7", "ReqNodeNotAvail, May be reserved for other job"), prepare: drained,
			partition: []string{"Nodes=n7"}, options: []string{"--nodelist=n7"},
		},
		"Nodes required for job are DOWN, DRAINED": {partition: []string{"Nodes=n7"}, prepare: drained},
	}
}

// resource is a resource that limits count: its TRES, the jobs that ask for it, and its names in the names of limits.
type resource struct {
	tres string
	// one is what a job of one asks for, and amount how much of the TRES that is; two makes a job ask for more. Two jobs
	// on one node have one node: first and second put them on two.
	one           []string
	amount        int
	two           []string
	first, second []string
	// The names differ: QOSGrpCpuLimit, QOSGrpCPUMinutesLimit, QOSMaxCpuPerJobLimit, QOSMinCpuNotSatisfied.
	grp, mins, runMins, perJob, minsPerJob, perUser, perAccount, least string
}

func resources() []resource {
	return []resource{
		{
			tres: "cpu", amount: 1, two: []string{"--cpus-per-task=2"}, grp: "CpuLimit", mins: "CPUMinutesLimit", runMins: "CPURunMinutesLimit",
			perJob: "CpuPerJobLimit", minsPerJob: "CpuMinutesPerJobLimit", perUser: "CpuPerUserLimit", perAccount: "Cpu", least: "CpuNotSatisfied",
		},
		{
			tres: "mem", amount: 16, two: []string{"--mem=32"}, grp: "MemLimit", mins: "MemoryMinutes", runMins: "MemoryRunMinutes",
			perJob: "MemoryPerJob", minsPerJob: "MemoryMinutesPerJob", perUser: "MemoryPerUser", perAccount: "Memory", least: "Memory",
		},
		{
			tres: "node", amount: 1, two: []string{"--nodes=2", "--ntasks=2"}, first: []string{"--nodelist=n1"}, second: []string{"--nodelist=n2"}, grp: "NodeLimit", mins: "NodeMinutes", runMins: "NodeRunMinutes",
			perJob: "NodePerJobLimit", minsPerJob: "NodeMinutesPerJob", perUser: "NodePerUserLimit", perAccount: "Node", least: "Node",
		},
		{
			tres: "gres/gpu", amount: 1, one: []string{"--gres=gpu:1"}, two: []string{"--gres=gpu:2"}, grp: "GRES", mins: "GRESMinutes", runMins: "GRESRunMinutes",
			perJob: "GRESPerJob", minsPerJob: "GRESMinutesPerJob", perUser: "GRESPerUser", perAccount: "GRES", least: "GRES",
		},
		{
			tres: "license/cltest", amount: 1, one: []string{"--licenses=cltest:1"}, two: []string{"--licenses=cltest:2"}, grp: "License", mins: "LicenseMinutes",
			runMins: "LicenseRunMinutes", perJob: "LicensePerJob", minsPerJob: "LicenseMinutesPerJob", perUser: "LicensePerUser", perAccount: "License", least: "License",
		},
		{
			tres: "billing", amount: 1, two: []string{"--cpus-per-task=2"}, grp: "Billing", mins: "BillingMinutes", runMins: "BillingRunMinutes",
			perJob: "BillingPerJob", minsPerJob: "BillingMinutesPerJob", perUser: "BillingPerUser", perAccount: "Billing", least: "Billing",
		},
	}
}

// qosWaits are waits for the limits of a QOS.
func qosWaits() map[string]wait {
	all := map[string]wait{
		"QOSMaxJobsPerUserLimit":        {qos: []string{"MaxJobsPerUser=1"}, before: 1},
		"MaxJobsPerAccount":             {qos: []string{"MaxJobsPerAccount=1"}, before: 1},
		"QOSGrpJobsLimit":               {qos: []string{"GrpJobs=1"}, before: 1},
		"QOSGrpWallLimit":               {qos: []string{"GrpWall=0"}},
		"QOSMaxWallDurationPerJobLimit": {qos: []string{"MaxWallDurationPerJob=5"}},
		"QOSMaxCpuPerNode":              {qos: []string{"MaxTRESPerNode=cpu=1"}, own: []string{"--cpus-per-task=2"}},
		"QOSMaxMemoryPerNode":           {qos: []string{"MaxTRESPerNode=mem=8"}},
		"QOSMaxGRESPerNode":             {qos: []string{"MaxTRESPerNode=gres/gpu=1"}, own: []string{"--gres=gpu:2"}},
	}
	for _, r := range resources() {
		limit := func(kind string, n int) []string { return []string{kind + "=" + r.tres + "=" + itoa(n)} }
		all["QOSGrp"+r.grp] = wait{qos: limit("GrpTRES", r.amount), options: r.one, first: r.first, own: r.second, before: 1}
		all["QOSGrp"+r.mins] = wait{qos: limit("GrpTRESMins", 0), options: r.one}
		all["QOSGrp"+r.runMins] = wait{qos: limit("GrpTRESRunMins", 15*r.amount), options: r.one, before: 1}
		all["QOSMax"+r.perJob] = wait{qos: limit("MaxTRESPerJob", r.amount), options: r.one, own: r.two}
		all["QOSMax"+r.minsPerJob] = wait{qos: limit("MaxTRESMinsPerJob", 5*r.amount), options: r.one}
		all["QOSMax"+r.perUser] = wait{qos: limit("MaxTRESPerUser", r.amount), options: r.one, first: r.first, own: r.second, before: 1}
		all["Max"+r.perAccount+"PerAccount"] = wait{qos: limit("MaxTRESPerAccount", r.amount), options: r.one, first: r.first, own: r.second, before: 1}
		all["QOSMin"+r.least] = wait{qos: limit("MinTRESPerJob", 2*r.amount), options: r.one}
	}
	return all
}

// accountWaits are waits for the limits of an account. The names of memory differ from those of a QOS.
func accountWaits() map[string]wait {
	all := map[string]wait{
		"AssocMaxJobsLimit":               {account: []string{"MaxJobs=1"}, before: 1},
		"AssocGrpJobsLimit":               {account: []string{"GrpJobs=1"}, before: 1},
		"AssocGrpWallLimit":               {account: []string{"GrpWall=0"}},
		"AssocMaxWallDurationPerJobLimit": {account: []string{"MaxWallDurationPerJob=5"}},
		"AssocMaxCpuPerNode":              {account: []string{"MaxTRESPerNode=cpu=1"}, own: []string{"--cpus-per-task=2"}},
		"AssocMaxMemPerNode":              {account: []string{"MaxTRESPerNode=mem=8"}},
		"AssocMaxGRESPerNode":             {account: []string{"MaxTRESPerNode=gres/gpu=1"}, own: []string{"--gres=gpu:2"}},
	}
	for _, r := range resources() {
		memory := func(name string) string { return strings.Replace(name, "Memory", "Mem", 1) }
		limit := func(kind string, n int) []string { return []string{kind + "=" + r.tres + "=" + itoa(n)} }
		all["AssocGrp"+r.grp] = wait{account: limit("GrpTRES", r.amount), options: r.one, first: r.first, own: r.second, before: 1}
		all["AssocGrp"+memory(r.mins)] = wait{account: limit("GrpTRESMins", 0), options: r.one}
		all["AssocGrp"+memory(r.runMins)] = wait{account: limit("GrpTRESRunMins", 15*r.amount), options: r.one, before: 1}
		all["AssocMax"+memory(r.perJob)] = wait{account: limit("MaxTRESPerJob", r.amount), options: r.one, own: r.two}
		all["AssocMax"+memory(r.minsPerJob)] = wait{account: limit("MaxTRESMinsPerJob", 5*r.amount), options: r.one}
	}
	return all
}
