package sbatch

import "strings"

// Category is the kind of wait that a reason of a pending job stands for.
type Category string

// The categories of reasons.
const (
	// WaitsForTurn: the job starts once Slurm reaches it and resources are free.
	WaitsForTurn Category = "turn"
	// WaitsForTime: the job may not begin before a time or an event.
	WaitsForTime Category = "time"
	// WaitsForLimit: a limit on jobs or resources is reached. The wait ends when other jobs end, or when their
	// use of past weeks counts less.
	WaitsForLimit Category = "limit"
	// WaitsForSite: nodes or a partition do not work, or are reserved.
	WaitsForSite Category = "site"
	// WaitsForRelease: somebody has to release the job.
	WaitsForRelease Category = "held"
	// NeverStarts: the job cannot start however long it waits, unless it or the site's configuration changes.
	NeverStarts Category = "never"
	// HasEnded: the reason explains an end, and no wait.
	HasEnded Category = "ended"
	// Unknown: the reason is not in this package's table.
	Unknown Category = "unknown"
)

// Explanation explains one of Slurm's reasons (squeue(1): JOB REASON CODES).
type Explanation struct {
	Category Category
	// Text is a phrase about the job, "it", without a capital and a full stop; empty if the category is Unknown.
	Text string
	// Action is a sentence that says what somebody can do; empty if nobody has to do anything.
	Action string
}

// Explain explains a reason as squeue's %r or sacct shows it: one of Slurm's names, or a text in its place. The
// text may have further words after a name, and underscores for spaces.
func Explain(reason string) Explanation {
	if e, ok := reasons[reason]; ok {
		return e
	}
	if e, ok := explainLimit(reason); ok {
		return e
	}
	words := strings.ReplaceAll(reason, "_", " ")
	for _, t := range reasonTexts {
		if strings.Contains(words, t.part) {
			return t.Explanation
		}
	}
	if end := strings.IndexAny(words, ",:"); end > 0 {
		return Explain(words[:end]) // "ReqNodeNotAvail, UnavailableNodes:n1", "RaisedSignal:15(Terminated)"
	}
	return Explanation{Category: Unknown}
}

// The actions that several reasons share.
const (
	askForLess    = "Ask for less, or use another queue."
	askForTime    = "Ask for less with --request-time, or use another queue."
	mendTheQueue  = "The bridge's operator has to change the queue's configuration."
	releaseIt     = "The bridge's operator can look at the job with scontrol show job, and let it run with scontrol release."
	askTheSite    = "The site's administrators can say until when."
	operatorKnows = "The bridge's operator can ask the site's administrators."
)

// reasonTexts are the texts that Slurm shows in place of a name, by a part of each (Slurm
// src/slurmctld/job_mgr.c, job_scheduler.c and node_scheduler.c: state_desc).
var reasonTexts = []struct { //nolint:gochecknoglobals // a table, never written
	part string
	Explanation
}{
	{"permitted to use this partition", Explanation{NeverStarts, "the partition does not permit its account, its QOS or the group of its user", mendTheQueue}},
	{"Reserved for maintenance", Explanation{WaitsForTime, "it could not end before the site's maintenance begins", "With a shorter --request-time it may fit before that."}},
	{"May be reserved for other job", Explanation{WaitsForSite, "a node that it needs may be reserved for another job", ""}},
	{"Reserved for other reservations", Explanation{WaitsForTime, "a node that it needs is reserved for others", askTheSite}},
	{"Nodes required for job are DOWN, DRAINED", Explanation{WaitsForSite, "the nodes that it needs are down, drained, or reserved for jobs of partitions with a higher priority", askTheSite}},
	{"launch failed requeued held", Explanation{WaitsForRelease, "a node could not launch it, and Slurm holds it", releaseIt}},
	{"launch failure limit exceeded requeued held", Explanation{WaitsForRelease, "nodes could not launch it again and again, and Slurm holds it", releaseIt}},
	{"user env retrieval failed requeued held", Explanation{WaitsForRelease, "a node could not read the environment of its user, and Slurm holds it", releaseIt}},
	{"job requeued in held state", Explanation{WaitsForRelease, "it was put back into the queue, and is held", releaseIt}},
	{"job requeued in special exit state", Explanation{WaitsForRelease, "it ended with an exit status for which the site holds jobs", releaseIt}},
	{" was deleted", Explanation{WaitsForRelease, "its reservation was deleted, and Slurm holds it", releaseIt}},
	{"is no longer valid, holding job", Explanation{WaitsForRelease, "the site does not have the licences any more that it asks for, and Slurm holds it", mendTheQueue}},
	{"Job is at or exceeds", Explanation{WaitsForLimit, "its account or its QOS has used up what it may use", operatorKnows}},
}

// reasons are Slurm's names of reasons (Slurm 22.05, 24.11 and 26.05, src/common/slurm_protocol_defs.c:
// job_reason_string, and job_state_reason.c), without those of limits that explainLimit reads.
var reasons = map[string]Explanation{ //nolint:gochecknoglobals // a table, never written
	"":                         {WaitsForTurn, "Slurm has not considered it yet", ""},
	"None":                     {WaitsForTurn, "Slurm has not considered it yet", ""},
	"Priority":                 {WaitsForTurn, "jobs with a higher priority come first", ""},
	"Resources":                {WaitsForTurn, "it is one of the next, and waits until enough processors, memory and GPUs are free", ""},
	"SchedDefer":               {WaitsForTurn, "Slurm considers it in its next round", ""},
	"Licenses":                 {WaitsForTurn, "it waits until enough licences are free", "The bridge's operator can see with scontrol show licenses whether the site still has them."},
	"Constraints":              {WaitsForTurn, "no node that is available now has what it asks for", ""},
	"Cleaning":                 {WaitsForTurn, "Slurm still cleans up after its last start", ""},
	"Prolog":                   {WaitsForTurn, "the site's prolog runs on its node", ""},
	"FedJobLock":               {WaitsForTurn, "the clusters of the federation agree on the one that runs it", ""},
	"MpiPortsBusy":             {WaitsForTurn, "it waits for free network ports", ""},
	"NvidiaImexChannels":       {WaitsForTurn, "it waits for a free channel between the GPUs of several nodes", ""},
	"BurstBufferResources":     {WaitsForTurn, "it waits for room in the burst buffer", ""},
	"BurstBufferStageIn":       {WaitsForTurn, "its data is copied into the burst buffer", ""},
	"BurstBufferOperation":     {WaitsForSite, "an operation of the burst buffer failed, and Slurm holds it", releaseIt},
	"MaxPoweredUpNodes":        {WaitsForTurn, "as many nodes are powered up as the site allows", ""},
	"PowerNotAvail":            {WaitsForTurn, "the site has no electrical power left for it", ""},
	"PowerReserved":            {WaitsForTurn, "the site reserves electrical power for other jobs", ""},
	"BlockFreeAction":          {WaitsForTurn, "nodes of an earlier job are being freed", ""},
	"JobArrayTaskLimit":        {WaitsForLimit, "as many tasks of its array run as the array allows at once", ""},
	"BeginTime":                {WaitsForTime, "it may not begin yet", ""},
	"Dependency":               {WaitsForTime, "it begins after another job", ""},
	"Reservation":              {WaitsForTime, "its reservation has not begun, or has no room", ""},
	"ReqNodeNotAvail":          {WaitsForSite, "a node that it needs is down, drained or reserved", askTheSite},
	"PartitionDown":            {WaitsForSite, "the site has stopped its partition", askTheSite},
	"PartitionInactive":        {WaitsForSite, "the site has closed its partition", askTheSite},
	"NodeDown":                 {WaitsForSite, "a node that it needs is down", askTheSite},
	"FrontEndDown":             {WaitsForSite, "the node that starts jobs is down", askTheSite},
	"BlockMaxError":            {WaitsForSite, "the nodes that it needs have too many errors", askTheSite},
	"SystemFailure":            {WaitsForSite, "Slurm, a file system or the network failed", operatorKnows},
	"JobHeldAdmin":             {WaitsForRelease, "an administrator of the site holds it", "The administrator has to release it. " + operatorKnows},
	"JobHeldUser":              {WaitsForRelease, "the Slurm user of the bridge, or an administrator, holds it", releaseIt},
	"JobHoldMaxRequeue":        {WaitsForRelease, "it was put back into the queue too often, and Slurm holds it", releaseIt},
	"ReservationInvalid":       {WaitsForRelease, "its reservation is not valid, and Slurm holds it", releaseIt},
	"ReservationDeleted":       {WaitsForRelease, "its reservation was deleted, and Slurm holds it", releaseIt},
	"AssociationJobLimit":      {WaitsForLimit, "the account has as many jobs as it may have", ""},
	"AssociationResourceLimit": {WaitsForLimit, "the account uses as much as it may use", ""},
	"AssociationTimeLimit":     {WaitsForLimit, "the account has used up the time that it may use", operatorKnows},
	"QOSJobLimit":              {WaitsForLimit, "the QOS has as many jobs as it may have", ""},
	"QOSResourceLimit":         {WaitsForLimit, "the QOS uses as much as it may use", ""},
	"QOSTimeLimit":             {WaitsForLimit, "the QOS has used up the time that it may use", operatorKnows},
	"QOSUsageThreshold":        {WaitsForLimit, "the account has used more than its share, and the QOS starts no job of such an account", operatorKnows},
	"AccountingPolicy":         {WaitsForLimit, "a limit of its account or its QOS is reached", ""},
	"DependencyNeverSatisfied": {NeverStarts, "it was to begin after the success of a job that failed", ""},
	"PartitionNodeLimit":       {NeverStarts, "the partition does not allow jobs of one node, or is too small", mendTheQueue},
	"PartitionTimeLimit":       {NeverStarts, "its time limit is longer than the partition allows", askForTime},
	"PartitionConfig":          {NeverStarts, "the partition does not allow what it asks for", askForLess},
	"BadConstraints":           {NeverStarts, "no node has what it asks for", askForLess},
	"MaxMemPerLimit":           {NeverStarts, "it asks for more memory for each processor than the partition allows", "Ask for less with --request-memory, or for more processors with --request-cpus."},
	"InvalidAccount":           {NeverStarts, "its account is not valid any more", mendTheQueue},
	"InvalidQOS":               {NeverStarts, "its QOS is not valid any more", mendTheQueue},
	"AccountNotAllowed":        {NeverStarts, "the partition does not permit its account", mendTheQueue},
	"QOSNotAllowed":            {NeverStarts, "the partition does not permit its QOS", mendTheQueue},
	"DeadLine":                 {HasEnded, "it could not end before its deadline", ""},
	"JobLaunchFailure":         {HasEnded, "its node could not launch it, or its script ended at once", ""},
	"NonZeroExitCode":          {HasEnded, "it ended with an exit status other than 0", ""},
	"RaisedSignal":             {HasEnded, "a signal ended it", ""},
	"TimeLimit":                {HasEnded, "it reached its time limit", ""},
	"InactiveLimit":            {HasEnded, "it was inactive for too long", ""},
	"OutOfMemory":              {HasEnded, "it used more memory than it had", ""},
}
