package slurmtest

import (
	"strings"
	"time"
)

// sacctmgr lists the associations of a user. Only `show user NAME withassoc` with
// a format and without headings is modelled.
func (k *Cluster) sacctmgr(c call) (string, error) {
	unknown := &UnmodelledError{What: "sacctmgr " + strings.Join(c.Args, " ")}
	words := c.Args
	if len(words) != 7 || strings.Join(words[:4], " ") != "--noheader --parsable2 show user" || words[5] != "withassoc" {
		return "", unknown
	}
	format, ok := strings.CutPrefix(words[6], "format=")
	if !ok {
		return "", unknown
	}
	var err error
	k.Do(func(now time.Time, m *Controller) {
		if now.Before(m.Database.AwayUntil) {
			err = fail(1, "sacctmgr: error: Sending PersistInit msg: Connection refused")
		}
	})
	if err != nil {
		return "", err
	}
	var out strings.Builder
	for _, u := range k.site.Users {
		if u.Name != words[4] {
			continue
		}
		for _, account := range u.Accounts {
			var values []string
			for column := range strings.SplitSeq(format, ",") {
				value, ok := u.association(account, column)
				if !ok {
					return "", unknown
				}
				values = append(values, value)
			}
			out.WriteString(strings.Join(values, "|") + "\n")
		}
	}
	return out.String(), nil
}

// association returns a column of a user's association with an account.
func (u User) association(account, column string) (string, bool) {
	switch column {
	case "DefaultAccount":
		return u.Accounts[0], true
	case "Account":
		return account, true
	case "Partition":
		return "", true
	case "QOS":
		return strings.Join(u.QOS, ","), true
	}
	return "", false
}
