package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/clocks"
)

// server checks the server and the user's account there.
func (x *examination) server(ctx context.Context) {
	at, err := x.workspace("")
	switch {
	case err != nil:
		x.failed("server", err.Error(), "cl work http://SERVER:2900:: chooses a server")
		return
	case x.unchosen && at.Reach(ctx) != nil:
		x.failed("server", "none is chosen, and none answers at "+x.fallback, "cl work http://SERVER:2900:: chooses one, or set CL_SERVER")
		return
	}
	x.proxy(at.Address())
	if !x.reachable(ctx, at) {
		return
	}
	version, err := at.ServerVersion(ctx)
	if err != nil {
		x.ok("server", "%s answers as a CodaLab server does", at.Address())
		x.login(at, err)
		return
	}
	x.kind(ctx, at, version)
	x.login(at, nil)
	x.quota(ctx, at)
	x.serving(ctx, at)
}

func (x *examination) proxy(address string) {
	req, err := http.NewRequest(http.MethodGet, address, nil) //nolint:noctx // it is not sent
	if err != nil {
		return // the server's check says more
	}
	switch proxy, err := http.ProxyFromEnvironment(req); {
	case err != nil:
		x.failed("proxy", "the address of the proxy cannot be read: "+err.Error(), "correct HTTP_PROXY and HTTPS_PROXY")
	case proxy == nil:
		x.ok("proxy", "none is used for %s", address)
	default:
		x.ok("proxy", "requests to %s go through %s; NO_PROXY names hosts that are reached without it", address, proxy.Redacted())
	}
}

// reachable checks the way to the server, its certificate and its clock, and reports whether it answers.
func (x *examination) reachable(ctx context.Context, at *workspace) bool {
	address := at.Address()
	seen, err := x.look(ctx, address)
	if err != nil {
		do := "is that its address, and does your network lead there? curl " + address + "/rest/user"
		if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
			do = "ask its administrator for the certificate of its authority, and name the file in SSL_CERT_FILE"
		}
		x.away("server", fmt.Sprintf("%s does not answer: %v", address, err), do)
		return false
	}
	if err := at.Reach(ctx); err != nil {
		if call, ok := errors.AsType[*codalab.Error](err); ok && transient(err) {
			x.away("server", address+" is in trouble: "+call.Message, "ask its administrator, or try again later")
			return false
		}
		x.failed("server", explain(err).Error(), "cl work names another one: its address is without /rest and /worksheets")
		return false
	}
	x.certificate(address, seen)
	shown, err := http.ParseTime(seen.header.Get("Date"))
	if err != nil {
		return true // a proxy may leave the date out
	}
	offset := clocks.Between(seen.sent, seen.received, shown, time.Second)
	if away := offset.Magnitude(); away > time.Minute {
		x.warning("clock", fmt.Sprintf("the clocks of this computer and of the server differ by %s", codalab.FormatDuration(away)),
			"let this computer set its clock by the network: ages and waits look wrong")
	} else {
		x.ok("clock", "this computer and the server agree")
	}
	return true
}

func (x *examination) certificate(address string, seen sight) {
	u, err := url.Parse(address)
	if err != nil {
		return
	}
	switch {
	case seen.tls != nil && len(seen.tls.PeerCertificates) > 0:
		ends := seen.tls.PeerCertificates[0].NotAfter
		found := "the connection is encrypted, and the certificate holds until " + ends.Format(time.DateOnly)
		if ends.Sub(x.Now()) < 14*24*time.Hour {
			x.warning("tls", found, "tell the server's administrator: after that cl refuses the connection")
			return
		}
		x.ok("tls", "%s", found)
	case strings.HasPrefix(u.Hostname(), "127.") || u.Hostname() == "localhost" || u.Hostname() == "::1":
		x.ok("tls", "not needed: the server is on this computer")
	default:
		x.warning("tls", "the connection is not encrypted: others on the way can read your password and your data", "ask the server's administrator for an address with https://")
	}
}

// kind says which server it is.
func (x *examination) kind(ctx context.Context, at *workspace, version string) {
	_, err := at.Queues(ctx)
	what := "a cl-server, which speaks"
	if errors.Is(err, errors.ErrUnsupported) {
		what = "CodaLab's own server, or an old cl-server:"
	}
	if version != codalab.Version {
		x.warning("server", fmt.Sprintf("%s is %s CodaLab %s; this cl speaks %s", at.Address(), what, version, codalab.Version),
			"most commands work; cl help names what differs on CodaLab's own server")
		return
	}
	x.ok("server", "%s is %s CodaLab %s, as this cl does", at.Address(), what, version)
}

// login judges the login, by the error of the first call that needs one.
func (x *examination) login(at *workspace, err error) {
	switch {
	case err == nil:
	case errors.Is(err, errNoCredentials):
		x.failed("login", "you are not signed in to "+at.Address(), "cl login, or set CODALAB_USERNAME and CODALAB_PASSWORD in a script")
		return
	case errors.Is(err, client.ErrCredentials):
		x.failed("login", "the server refuses your name or password", "cl login signs you in again; CODALAB_USERNAME and CODALAB_PASSWORD win over what you type")
		return
	case transient(err):
		x.away("login", explain(err).Error(), "try again later")
		return
	default:
		x.failed("login", explain(err).Error(), "cl login signs you in again")
		return
	}
	user := x.Getenv("CODALAB_USERNAME")
	if user == "" && x.state != nil {
		user = x.state.Users[at.Address()]
	}
	l := login{cli: x.cli, address: at.Address(), user: user}
	saved := l.Load()
	if saved.Access == "" {
		x.warning("login", fmt.Sprintf("you are signed in as %s, and the login is not kept", user), "cl's directory may not be writable")
		return
	}
	if renews := saved.Renew.Sub(x.Now()); renews > 0 {
		x.ok("login", "you are signed in as %s; cl renews the login by itself, next in %s", user, codalab.FormatDuration(renews))
		return
	}
	x.ok("login", "you are signed in as %s; cl renews the login by itself", user)
}

// quotaLow is the share of a quota below which its rest is little.
const quotaLow = 0.05

func (x *examination) quota(ctx context.Context, at *workspace) {
	user, err := at.User(ctx)
	if err != nil || user.Account == nil {
		x.warning("quota", "the server does not tell it", "cl uinfo")
		return
	}
	left := max(user.DiskQuota-user.DiskUsed, 0)
	found := fmt.Sprintf("%s of %s of disk are left", codalab.FormatSize(left), codalab.FormatSize(user.DiskQuota))
	spent := user.TimeQuota > 0 && user.TimeUsed >= user.TimeQuota
	switch {
	case left == 0:
		x.failed("quota", "nothing is left of your disk quota of "+codalab.FormatSize(user.DiskQuota), "cl du shows what is large, and cl rm removes it; or ask for a larger quota")
	case spent:
		x.failed("quota", "your time quota is used up, so no run of yours starts", "ask the server's administrator for a larger one")
	case float64(left) < quotaLow*float64(user.DiskQuota):
		x.warning("quota", found, "cl du shows what is large, and cl rm removes it")
	default:
		x.ok("quota", "%s", found)
	}
}

// serving checks that somebody runs the user's bundles.
func (x *examination) serving(ctx context.Context, at *workspace) {
	queues, complete, err := at.queues(ctx)
	if err != nil {
		x.warning("queues", explain(err).Error(), "cl queues")
		return
	}
	var names []string
	for _, q := range queues {
		if q.Tag == "" {
			names = append(names, "(no tag)")
			continue
		}
		names = append(names, q.Tag)
	}
	switch {
	case len(names) > 0:
		more := ""
		if n := len(names) - 8; n > 0 {
			more = fmt.Sprintf(" and %d more", n)
		}
		x.ok("queues", "%s run your bundles: %s%s", countOf(len(names), "queue", "queues"), strings.Join(first(names, 8), ", "), more)
	case complete:
		x.warning("queues", "none serves you, so runs wait", "ask the server's administrator, or start a worker of your own (cl-worker)")
	default:
		x.warning("queues", "you see no workers, and this server tells of no others: runs may wait", "ask the server's administrator whose workers run your bundles")
	}
}
