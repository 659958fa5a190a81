package slurmtest

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/sbatch"
)

// scontrol is the part of scontrol(1) that a bridge's tests and its operators
// use.
func (k *Cluster) scontrol(c call) (string, error) {
	if len(c.Args) == 0 {
		return "", &UnmodelledError{What: "scontrol without a command"}
	}
	verb, rest := strings.ToLower(c.Args[0]), c.Args[1:]
	var out string
	var err error
	k.Do(func(now time.Time, m *Controller) {
		switch verb {
		case "ping":
			out, err = k.ping(m)
		case "show":
			out, err = k.show(now, m, c, rest)
		case "requeue", "hold", "release":
			err = eachJob(now, m, c.UID, verb, rest)
		case "create", "delete", "update":
			err = change(now, m, c.UID, verb, rest)
		default:
			if strings.HasPrefix(verb, "-") {
				err = &UnmodelledError{What: "scontrol " + verb}
				return
			}
			err = fail(1, "invalid keyword: "+c.Args[0])
		}
	})
	return out, err
}

func (k *Cluster) ping(m *Controller) (string, error) {
	if m.stopped {
		return "Slurmctld(primary) at " + k.site.Host + " is DOWN\n", fail(1)
	}
	return "Slurmctld(primary) at " + k.site.Host + " is UP\n", nil
}

// eachJob requeues, holds or releases jobs.
func eachJob(now time.Time, m *Controller, uid int, verb string, args []string) error {
	if len(args) != 1 {
		return &UnmodelledError{What: "scontrol " + verb + " without one list of jobs"}
	}
	for arg := range strings.SplitSeq(args[0], ",") {
		id, err := strconv.ParseInt(arg, 10, 64)
		if err != nil {
			return &UnmodelledError{What: "scontrol " + verb + " " + arg}
		}
		if m.stopped {
			return fail(1, away+" for job "+arg)
		}
		m.advance(now)
		j := m.find(sbatch.JobID(id))
		why := invalidID
		switch {
		case j == nil:
		case uid != 0 && j.user != uid:
			why = denied
		case verb == "requeue":
			why = m.requeue(now, j.id)
		default:
			why = ""
			if verb == "hold" {
				m.Hold(now, j.id)
			} else {
				m.Release(now, j.id)
			}
		}
		if why != "" {
			return fail(1, why+" for job "+arg)
		}
	}
	return nil
}

// settings reads Name=value words; the names are not case-sensitive.
func settings(args []string) map[string]string {
	set := map[string]string{}
	for _, a := range args {
		name, value, _ := strings.Cut(a, "=")
		set[strings.ToLower(name)] = value
	}
	return set
}

// change makes, changes and removes partitions, and changes nodes.
func change(now time.Time, m *Controller, uid int, verb string, args []string) error {
	set := settings(args)
	partition, isPartition := set["partitionname"]
	node, isNode := set["nodename"]
	said := map[string]string{
		"create": "Error creating the partition: ", "delete": "delete_partition PartitionName=" + partition + ": ", "update": "slurm_update error: ",
	}[verb]
	switch {
	case !isNode && !isPartition:
		return &UnmodelledError{What: "scontrol " + verb + " " + strings.Join(args, " ")}
	case m.stopped:
		return fail(1, said+away)
	case uid != 0:
		return fail(1, said+"Invalid user id")
	case isNode && verb == "update":
		return updateNode(now, m, node, set)
	case isPartition && verb == "delete" && len(set) == 1:
		return told(said, m.DeletePartition(now, partition))
	case isPartition && verb == "create" && m.partition(partition) != nil, isPartition && verb == "update" && m.partition(partition) == nil:
		return fail(1, said+"Invalid partition name specified")
	case isPartition && verb != "delete":
		return setPartition(now, m, partition, set, said)
	}
	return &UnmodelledError{What: "scontrol " + verb + " " + strings.Join(args, " ")}
}

// told is a controller's error in the words of scontrol.
func told(said string, err error) error {
	var e *sbatch.Error
	if errors.As(err, &e) {
		return fail(1, said+e.Message)
	}
	return err
}

func updateNode(now time.Time, m *Controller, name string, set map[string]string) error {
	state := strings.ToUpper(set["state"])
	if (state == NodeDown || state == NodeDrain) && set["reason"] == "" {
		return fail(1, "You must specify a reason when DOWNING or DRAINING a node. Request denied")
	}
	if state == NodeLost { // a node's doing, not an operator's
		state = "state=" + set["state"]
	}
	return told("slurm_update error: ", m.SetNode(now, name, state))
}

func setPartition(now time.Time, m *Controller, name string, set map[string]string, said string) error {
	p := Partition{Name: name}
	if old := m.partition(name); old != nil {
		p = *old
	}
	for option, value := range set {
		switch option {
		case "partitionname":
		case "hidden":
			p.Hidden = strings.EqualFold(value, "yes")
		case "state":
			p.State = strings.ToUpper(value)
		case "nodes":
			names, err := nodeNames(value)
			if err != nil {
				return err
			}
			for _, n := range names {
				if m.node(n) == nil {
					return fail(1, said+"Invalid node name specified")
				}
			}
			p.Nodes = names
		default:
			return &UnmodelledError{What: "a partition's " + option}
		}
	}
	m.SetPartition(now, p)
	return nil
}

// show prints what is known of a job.
func (k *Cluster) show(now time.Time, m *Controller, c call, args []string) (string, error) {
	if len(args) != 2 || !strings.EqualFold(args[0], "job") {
		return "", &UnmodelledError{What: "scontrol show " + strings.Join(args, " ")}
	}
	if m.stopped {
		return "", fail(1, "slurm_load_jobs error: "+away)
	}
	m.advance(now)
	id, err := strconv.ParseInt(args[1], 10, 64)
	j := m.find(sbatch.JobID(id))
	if err != nil || j == nil {
		return "", fail(1, "slurm_load_jobs error: "+invalidID)
	}
	v := j.view()
	requeue := 0
	if j.requeue {
		requeue = 1
	}
	u := k.site.user(j.user)
	out := fmt.Sprintf(`JobId=%d JobName=%s
   UserId=%s(%d) GroupId=%s(%d) MCS_label=N/A
   Priority=%d Nice=%d Account=%s QOS=%s WCKey=%s
   JobState=%s Reason=%s Dependency=(null)
   Requeue=%d Restarts=%d BatchFlag=1 Reboot=0 ExitCode=%s
   RunTime=%s TimeLimit=%s TimeMin=N/A
   SubmitTime=%s EligibleTime=%s
   StartTime=%s EndTime=%s Deadline=N/A
   Partition=%s AllocNode:Sid=%s:1
   NodeList=%s
   Command=(null)
   WorkDir=%s
   StdErr=%[27]s
   StdIn=/dev/null
   StdOut=%[27]s
`,
		j.id, j.Name, u.Name, u.UID, u.Name, u.UID, j.priority(), j.Nice, j.Account, j.QOS, j.WCKey, v.State, v.Reason,
		requeue, j.restarts, m.rows[j.row].exit, span(j.elapsed(now)), span(j.limit), c.clock(j.submitted, "Unknown"),
		c.clock(m.rows[j.row].eligible, "Unknown"), c.clock(v.Start, "Unknown"), c.clock(j.ends(v), "Unknown"),
		j.Partition, k.site.Host, v.Nodes, j.Dir, j.outputPath(j.launched(), u.Name))
	if j.Comment != "" {
		out += "   Comment=" + j.Comment + " \n"
	}
	return out + "   \n", nil
}
