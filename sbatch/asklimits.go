package sbatch

import (
	"context"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// limitFields are the fields of sacctmgr(1) in which an association has its limits, with their kinds.
var limitFields = []limitField{ //nolint:gochecknoglobals // a table, never written
	{"GrpJobs", GrpJobs},
	{"GrpSubmit", GrpSubmitJobs},
	{"GrpWall", GrpWall},
	{"GrpTRES", GrpTRES},
	{"GrpTRESMins", GrpTRESMins},
	{"GrpTRESRunMins", GrpTRESRunMins},
	{"MaxJobs", MaxJobs},
	{"MaxSubmit", MaxSubmitJobs},
	{"MaxWall", MaxWallPJ},
	{"MaxTRES", MaxTRESPJ},
	{"MaxTRESPerNode", MaxTRESPN},
	{"MaxTRESMins", MaxTRESMinsPJ},
}

// qosLimitFields are those in which a QOS has its limits.
var qosLimitFields = []limitField{ //nolint:gochecknoglobals // a table, never written
	{"GrpJobs", GrpJobs},
	{"GrpSubmit", GrpSubmitJobs},
	{"GrpWall", GrpWall},
	{"GrpTRES", GrpTRES},
	{"GrpTRESMins", GrpTRESMins},
	{"GrpTRESRunMins", GrpTRESRunMins},
	{"MaxJobsPU", MaxJobsPU},
	{"MaxSubmitPU", MaxSubmitJobsPU},
	{"MaxTRESPU", MaxTRESPU},
	{"MaxJobsPA", MaxJobsPA},
	{"MaxSubmitPA", MaxSubmitJobsPA},
	{"MaxTRESPA", MaxTRESPA},
	{"MaxWall", MaxWallPJ},
	{"MaxTRES", MaxTRESPJ},
	{"MaxTRESPerNode", MaxTRESPN},
	{"MaxTRESMins", MaxTRESMinsPJ},
}

// limitField is a field of sacctmgr, and the kind of the limits in it.
type limitField struct {
	name string
	kind LimitKind
}

// namesOf returns the fields' names for sacctmgr, after those of other fields.
func namesOf(others string, fields []limitField) string {
	names := others
	for _, f := range fields {
		names += "," + f.name
	}
	return names
}

// associationOwn are the fields of an association before its limits.
const associationOwn = "Cluster,Account,User,Partition,ParentName,DefaultQOS,QOS"

// Limits returns the limits of QOS and associations on jobs of a user in a cluster, without their use. It asks the
// accounting database, which costs the controller nothing, and the controller once for the QOS of its partitions.
func (c *Client) Limits(ctx context.Context, cluster, user string) (LimitTable, error) {
	const op = "list the limits of QOS and associations"
	t := LimitTable{User: user}
	for _, question := range []struct {
		read func(out string) error
		args []string
	}{
		{t.readQOS, []string{"sacctmgr", "--noheader", "--parsable2", "show", "qos", "format=" + namesOf("Name", qosLimitFields)}},
		{func(out string) error { return t.readUser(out, cluster) }, []string{
			"sacctmgr", "--noheader", "--parsable2", "show", "user", user, "withassoc", "format=" + namesOf("DefaultAccount,"+associationOwn, limitFields),
		}},
		{func(out string) error { return t.readAccounts(out, cluster) }, []string{ // without users
			"sacctmgr", "--noheader", "--parsable2", "show", "associations", "users=", "clusters=" + cluster, "format=" + namesOf(associationOwn, limitFields),
		}},
		{t.readPartitions, c.onCluster("scontrol", "--oneliner", "--all", "show", "partition")},
	} {
		out, err := c.query(ctx, op, question.args...)
		if err != nil {
			return LimitTable{}, err
		}
		if err := question.read(out); err != nil {
			return LimitTable{}, &Error{Op: op, Message: err.Error(), Err: err}
		}
	}
	return t, nil
}

// readQOS reads sacctmgr's answer about QOS.
func (t *LimitTable) readQOS(out string) error {
	lines, err := splitLines(out, 1+len(qosLimitFields))
	t.QOS = make(map[string][]Limit, len(lines))
	for _, f := range lines {
		name := f[0]
		if t.QOS[name], err = readLimits(LimitHolder{QOS: name}, qosLimitFields, f[1:]); err != nil {
			return err
		}
	}
	return err
}

// ownFields is the number of fields of associationOwn.
const ownFields = 7

// readUser reads sacctmgr's answer about the user's associations.
func (t *LimitTable) readUser(out, cluster string) error {
	lines, err := splitLines(out, 1+ownFields+len(limitFields))
	for _, f := range lines {
		if err := t.add(f[1:], cluster, f[0]); err != nil {
			return err
		}
	}
	return err
}

// readAccounts reads sacctmgr's answer about the associations of accounts.
func (t *LimitTable) readAccounts(out, cluster string) error {
	lines, err := splitLines(out, ownFields+len(limitFields))
	for _, f := range lines {
		if err := t.add(f, cluster, ""); err != nil {
			return err
		}
	}
	return err
}

// add adds an association, unless it is of another cluster. A user without associations has a line without an account.
func (t *LimitTable) add(f []string, cluster, defaultAccount string) error {
	if f[0] != cluster || f[1] == "" {
		return nil
	}
	at := LimitHolder{Account: f[1], User: f[2], Partition: f[3]}
	a := LimitedAssociation{Parent: f[4], Default: f[1] == defaultAccount, DefaultQOS: f[5]}
	if f[6] != "" {
		a.QOS = strings.Split(f[6], ",")
	}
	var err error
	if a.Limits, err = readLimits(at, limitFields, f[ownFields:]); err != nil {
		return err
	}
	if t.Associations == nil {
		t.Associations = map[LimitHolder]LimitedAssociation{}
	}
	t.Associations[at] = a
	return nil
}

// partitionQOS finds the name and the QOS of a partition.
var partitionQOS = regexp.MustCompile(`^PartitionName=(\S+) .*\bQoS=(\S+)`)

// readPartitions reads the QOS of the partitions, each of which is one line.
func (t *LimitTable) readPartitions(out string) error {
	t.PartitionQOS = map[string]string{}
	for line := range strings.Lines(out) {
		m := partitionQOS.FindStringSubmatch(line)
		switch {
		case m == nil:
			return fmt.Errorf("cannot read the partition %q", shorten(line))
		case m[2] != "N/A":
			t.PartitionQOS[m[1]] = m[2]
		}
		if strings.Contains(line, " Default=YES ") {
			t.PartitionQOS[""] = t.PartitionQOS[m[1]]
		}
	}
	return nil
}

// readLimits reads the limits of a holder. An empty field has none.
func readLimits(holder LimitHolder, fields []limitField, values []string) ([]Limit, error) {
	var limits []Limit
	for i, f := range fields {
		if values[i] == "" {
			continue
		}
		read := []Limit{{}}
		var err error
		switch {
		case strings.Contains(f.name, "TRES"):
			read, err = readTRES(values[i])
		case strings.HasSuffix(f.name, "Wall"):
			read[0].Most, err = minutes(values[i])
		default:
			read[0].Most, err = strconv.ParseInt(values[i], 10, 64)
		}
		if err != nil {
			return nil, fmt.Errorf("cannot read %s %q: %w", f.name, shorten(values[i]), err)
		}
		for _, l := range read {
			l.Holder, l.Kind = holder, f.kind
			limits = append(limits, l)
		}
	}
	return limits, nil
}

// minutes reads a limit on run times.
func minutes(s string) (int64, error) {
	d, err := ParseLimit(s)
	return int64(d / time.Minute), err
}

// readTRES reads amounts of trackable resources, such as cpu=64,gres/gpu:a100=4,mem=500G.
func readTRES(s string) ([]Limit, error) {
	var limits []Limit
	for amount := range strings.SplitSeq(s, ",") {
		name, value, ok := strings.Cut(amount, "=")
		if !ok || name == "" {
			return nil, errors.New("want name=amount")
		}
		n, err := readAmount(value)
		if err != nil {
			return nil, err
		}
		limits = append(limits, Limit{TRES: name, Most: n})
	}
	return limits, nil
}

// tresAmount matches an amount. Slurm shortens those of memory, which are in MiB, and not those of other resources.
var tresAmount = regexp.MustCompile(`^(\d{1,19})(?:(\.\d{1,6})?([MGTPE]))?$`)

func readAmount(s string) (int64, error) {
	m := tresAmount.FindStringSubmatch(s)
	if m == nil {
		return 0, fmt.Errorf("%q is no amount", shorten(s))
	}
	if m[3] == "" {
		return strconv.ParseInt(m[1], 10, 64) //nolint:wrapcheck // it is a number
	}
	n, err := strconv.ParseFloat(m[1]+m[2], 64)
	if err != nil {
		return 0, fmt.Errorf("%q is no amount", shorten(s))
	}
	return int64(min(n*math.Pow(1024, float64(strings.Index("MGTPE", m[3]))), 1<<60)), nil
}
