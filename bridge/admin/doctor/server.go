package doctor

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
)

// Server judges a server by the error of a login to it, and by the version that it gives. A
// server that refuses the login is fine.
func Server(address, version string, err error) Check {
	var call *codalab.Error
	switch {
	case err == nil || errors.Is(err, client.ErrCredentials) || errors.Is(err, client.ErrToken):
		if version == "" {
			return ok("server", "%s answers as a CodaLab server does", address)
		}
		return ok("server", "%s is a CodaLab server, version %s", address, version)
	case !errors.As(err, &call):
		return failed("server", err.Error(), "write the server's address as server = \"https://worksheets.example.org\"")
	case call.Status == 0 && errors.Is(call.Err, context.DeadlineExceeded):
		return unreachable("server", address+" did not answer in time", "it may be slow, or server the wrong address: curl "+address+"/rest/user")
	case call.Status == 0:
		return unreachable("server", call.Message, "is server the right address, and can this host reach it? curl "+address+"/rest/user")
	case call.Transient():
		return unreachable("server", address+" is in trouble: "+call.Error(), "ask its administrator, or try again later")
	case call.Status == http.StatusForbidden:
		return ok("server", "%s answers as a CodaLab server does", address)
	}
	return failed("server", address+" does not answer as a CodaLab server does: "+call.Error(), "is server the address of one, without /rest and without /worksheets?")
}

// Reached judges a server by the error of a call without a login. Any answer
// shows that there is a server.
func Reached(address string, err error) Check {
	var call *codalab.Error
	if err == nil || errors.As(err, &call) && !call.Transient() {
		return ok("server", "%s answers; only a login shows whether it is a CodaLab server", address)
	}
	return Server(address, "", err)
}

// Login judges the error of a user's login.
func Login(user string, err error) Check {
	var call *codalab.Error
	switch {
	case err == nil:
		return ok("login", "the server accepts the login of %s", user)
	case errors.Is(err, client.ErrCredentials):
		return failed("login", fmt.Sprintf("the server refuses user %q: wrong user name or password", user),
			"write the password of user into password_file, or mend user")
	case errors.Is(err, client.ErrToken):
		return failed("login", "the server refuses the token: it has ended or was revoked, or this is CodaLab's own server, which has no such tokens",
			"write a new one into token_file, which cl token add or the server's administrator makes (cl-server token add)")
	case errors.As(err, &call) && call.Status == http.StatusForbidden:
		return failed("login", fmt.Sprintf("the server refuses user %q: %s", user, call.Message), "ask the server's administrator to admit this user")
	}
	return Check{Name: "login", Verdict: Failed, Found: "not tried: there is no server to log in to", Unreachable: true}
}

// tokenSoon is the time before the end of a token from which on a check warns.
const tokenSoon = 14 * 24 * time.Hour

// Tokened judges a bridge's token for a queue by what the server says of it, or by its error.
func Tokened(own codalab.ProgramToken, user, bridge string, now time.Time, err error) Check {
	const name = "token_file"
	var refused *codalab.Error
	switch {
	case errors.As(err, &refused) && refused.Status == http.StatusForbidden:
		return failed(name, "the token is not for this bridge: "+strings.TrimSuffix(refused.Message, "."), fmt.Sprintf("get one for the workers %s-*, or name the bridge as the token does (key name)", bridge))
	case err != nil:
		return unreachable(name, err.Error(), "try again later")
	case own.User != user:
		return failed(name, fmt.Sprintf("the token is one of %s, and user is %s", own.User, user), fmt.Sprintf("write user = %q, or get a token of %s", own.User, user))
	case own.Expires == 0:
		return ok(name, "the token %s is for this bridge, and has no end", own.ID)
	}
	ends := time.Unix(own.Expires, 0)
	if ends.Sub(now) < tokenSoon {
		return warning(name, fmt.Sprintf("the token %s ends on %s, and the bridge waits then", own.ID, ends.Format(time.DateOnly)),
			"write a new one into the file before: the bridge takes it when the old one ends")
	}
	return ok(name, "the token %s is for this bridge, and ends on %s", own.ID, ends.Format(time.DateOnly))
}

// Group judges the group of a queue by the groups that the user is in. A server that
// answers with 404 has no groups.
func Group(q plan.Queue, user string, groups []string, err error) Check {
	name := key(q, "group")
	switch {
	case codalab.IsStatus(err, http.StatusNotFound):
		return failed(name, "the server knows no groups", "leave group out")
	case err != nil:
		return unreachable(name, err.Error(), "try again later")
	case slices.Contains(groups, q.Group):
		return ok(name, "%s is in group %s", user, q.Group)
	case len(groups) == 0:
		return failed(name, fmt.Sprintf("%s is in no group %q, nor in any other: the queue would take none of its members' bundles", user, q.Group),
			fmt.Sprintf("have its administrator add the user: cl uadd %s %s", user, q.Group))
	}
	return failed(name, fmt.Sprintf("%s is in no group %q: the queue would take none of its members' bundles", user, q.Group), didYouMean(name, q.Group, groups))
}
