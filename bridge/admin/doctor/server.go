package doctor

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
)

// Server judges a server by the error of a login to it, and by the version that it gives. A
// server that refuses the login is fine.
func Server(address, version string, err error) Check {
	var call *codalab.Error
	switch {
	case err == nil || errors.Is(err, client.ErrCredentials):
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
	case errors.As(err, &call) && call.Status == http.StatusForbidden:
		return failed("login", fmt.Sprintf("the server refuses user %q: %s", user, call.Message), "ask the server's administrator to admit this user")
	}
	return Check{Name: "login", Verdict: Failed, Found: "not tried: there is no server to log in to", Unreachable: true}
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
