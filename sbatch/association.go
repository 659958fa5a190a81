package sbatch

import (
	"context"
	"strings"
)

// Association is an account that a user may charge jobs to.
type Association struct {
	Account string
	// Default is set for the account of jobs that name no account.
	Default bool
	// Partition is the only partition of this association; empty for all.
	Partition string
	// QOS lists the QOS that its jobs may request.
	QOS []string
}

// associationFields is the format of sacctmgr(1) that parseAssociations reads.
const associationFields = "DefaultAccount,Account,Partition,QOS"

// Associations returns the accounts that a user may charge jobs to: none for a user that the accounting
// database does not know. It asks only the database, whose answer may include associations of other
// clusters.
func (c *Client) Associations(ctx context.Context, user string) ([]Association, error) {
	out, err := c.query(ctx, "list accounts of "+user,
		"sacctmgr", "--noheader", "--parsable2", "show", "user", user, "withassoc", "format="+associationFields)
	if err != nil {
		return nil, err
	}
	associations, err := parseAssociations(out)
	if err != nil {
		return nil, &Error{Op: "list accounts of " + user, Message: err.Error(), Err: err}
	}
	return associations, nil
}

// parseAssociations reads sacctmgr's answer, one association per line. A user
// without associations has one line, with only the default account.
func parseAssociations(out string) ([]Association, error) {
	lines, err := splitLines(out, 4)
	if err != nil {
		return nil, err
	}
	var all []Association
	for _, f := range lines {
		if f[1] == "" {
			continue
		}
		a := Association{Account: f[1], Default: f[1] == f[0], Partition: f[2]}
		if f[3] != "" {
			a.QOS = strings.Split(f[3], ",")
		}
		all = append(all, a)
	}
	return all, nil
}
