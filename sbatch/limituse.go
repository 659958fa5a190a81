package sbatch

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// LimitUse is the present use of the quantities that limits bound, as the controller counts it. The zero value knows nothing.
type LimitUse struct {
	// Used has the use by the bare limit.
	Used map[Limit]int64
	// Listed has the QOS of which Used has all users and accounts with any use.
	Listed map[string]bool
}

// LimitUse asks the controller, once, for the use of the limits of these QOS, of a user's associations and of all
// accounts. Where users may not see the use of others (slurm.conf(5): PrivateData, usage) the answer lacks the accounts.
func (c *Client) LimitUse(ctx context.Context, user string, qos []string) (LimitUse, error) {
	const op = "ask for the use of limits"
	args := []string{"scontrol", "show", "assoc_mgr", "users=" + user, "flags=assoc,qos"}
	if len(qos) > 0 {
		args = append(args, "qos="+strings.Join(qos, ","))
	}
	out, err := c.query(ctx, op, c.onCluster(args...)...)
	if err != nil {
		return LimitUse{}, err
	}
	u, err := parseLimitUse(out)
	if err != nil {
		return LimitUse{}, &Error{Op: op, Message: err.Error(), Err: err}
	}
	return u, nil
}

// Fill returns the limits with their use.
func (u LimitUse) Fill(limits []Limit) []Limit {
	filled := make([]Limit, len(limits))
	for i, l := range limits {
		filled[i] = l
		switch n, known := u.Used[l.Bare()]; {
		case known:
			filled[i].Used, filled[i].Known = n, true
		case u.Listed[l.Holder.QOS] && (l.Holder.User != "" || l.Holder.Account != ""): // it has none
			filled[i].Known = true
		}
	}
	return filled
}

// assocMgrTitle begins the answer of scontrol show assoc_mgr.
const assocMgrTitle = "Current Association Manager state\n"

// Patterns of the answer of scontrol show assoc_mgr (Slurm src/scontrol/info_assoc_mgr.c). A record begins without
// indentation, the name of a user or account with use in a QOS has six spaces, and all fields have more or fewer.
var (
	assocRecord   = regexp.MustCompile(`^ClusterName=\S* Account=(\S*) UserName=(?:(\S*)\((\d+)\))? Partition=(\S*) `)
	qosRecord     = regexp.MustCompile(`^QOS=(\S+)\(\d+\)$`)
	usersOfQOS    = regexp.MustCompile(`^ {4}User Limits$`)
	accountsOfQOS = regexp.MustCompile(`^ {4}Account Limits$`)
	memberOfQOS   = regexp.MustCompile(`^ {6}(\S.*?)(?:\(\d+\))?$`)
	useOfLimit    = regexp.MustCompile(`^(\w+)=(?:N|\d+)\((\d+)(?:\.\d+)?\)$`)
	useOfTRES     = regexp.MustCompile(`^([^=]+)=(?:N|\d+)\((\d+)\)$`)
)

// parseLimitUse reads the answer of scontrol show assoc_mgr.
func parseLimitUse(out string) (LimitUse, error) {
	rest, ok := strings.CutPrefix(out, assocMgrTitle)
	if !ok || !strings.HasSuffix(out, "\n") {
		return LimitUse{}, fmt.Errorf("cannot read an answer that begins with %q", shorten(out))
	}
	u := LimitUse{Used: map[Limit]int64{}, Listed: map[string]bool{}}
	var at, qos LimitHolder
	accounts, names := false, map[string]string{} // of users, by their number
	for line := range strings.Lines(rest) {
		line = strings.TrimRight(line, " \n")
		if m := assocRecord.FindStringSubmatch(line + " "); m != nil {
			at, qos = LimitHolder{Account: m[1], User: m[2], Partition: m[4]}, LimitHolder{}
			names[m[3]] = m[2]
			continue
		}
		if m := qosRecord.FindStringSubmatch(line); m != nil {
			at = LimitHolder{QOS: m[1]}
			qos = at
			continue
		}
		switch m := memberOfQOS.FindStringSubmatch(line); {
		case qos.QOS == "":
		case accountsOfQOS.MatchString(line):
			accounts = true
			u.Listed[qos.QOS] = true
			continue
		case usersOfQOS.MatchString(line):
			accounts = false
			continue
		case m == nil:
		case accounts:
			at = LimitHolder{QOS: qos.QOS, Account: m[1]}
			continue
		default:
			at = LimitHolder{QOS: qos.QOS, User: cmp.Or(names[m[1]], m[1])} // 22.05 has the number alone
			continue
		}
		if err := u.note(at, line); err != nil {
			return LimitUse{}, err
		}
	}
	return u, nil
}

// note notes the use in the fields of one line of a holder.
func (u LimitUse) note(at LimitHolder, line string) error {
	for field := range strings.FieldsSeq(line) {
		name, value, _ := strings.Cut(field, "=")
		if m := useOfLimit.FindStringSubmatch(field); m != nil {
			n, err := strconv.ParseInt(m[2], 10, 64)
			if err != nil {
				return fmt.Errorf("cannot read %q: %w", shorten(field), err)
			}
			u.noteJobs(at, LimitKind(name), n)
			continue
		}
		if !strings.Contains(name, "TRES") {
			continue
		}
		for amount := range strings.SplitSeq(value, ",") {
			m := useOfTRES.FindStringSubmatch(amount)
			if m == nil {
				continue // a limit of a single job has no use
			}
			n, err := strconv.ParseInt(m[2], 10, 64)
			if err != nil {
				return fmt.Errorf("cannot read %q: %w", shorten(amount), err)
			}
			u.Used[Limit{Holder: at, Kind: LimitKind(name), TRES: m[1]}] = n
		}
	}
	return nil
}

// noteJobs notes a use that is no amount of a resource. An association's own limits count the same as its group's
// (Slurm shows their use only where they are set).
func (u LimitUse) noteJobs(at LimitHolder, kind LimitKind, n int64) {
	u.Used[Limit{Holder: at, Kind: kind}] = n
	switch {
	case at.QOS != "":
	case kind == GrpJobs:
		u.Used[Limit{Holder: at, Kind: MaxJobs}] = n
	case kind == GrpSubmitJobs:
		u.Used[Limit{Holder: at, Kind: MaxSubmitJobs}] = n
	}
}
