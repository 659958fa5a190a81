package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/url"

	"github.com/google/go-containerregistry/pkg/name"

	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
	"github.com/cl-slurm/cl-slurm/pilot"
)

// mostCPUs and mostMemoryMB are more than any machine has. Larger numbers would overflow in bytes.
const (
	mostCPUs     = 1 << 20
	mostMemoryMB = math.MaxInt64 >> 21
)

// checkShape fails for workers that no machine could have.
func (c *cloud) checkShape() error {
	switch {
	case c.shape.CPUs < 1 || c.shape.GPUs < 0 || c.memoryMB < 1:
		return errors.New("--cpus and --memory-mb must be above 0, and --gpus not below")
	case c.shape.CPUs > mostCPUs || c.shape.GPUs > mostCPUs || c.memoryMB > mostMemoryMB:
		return errors.New("no machine has as much as --cpus, --gpus and --memory-mb ask for")
	}
	return nil
}

// checkImage fails if there is no image for workers, or its name cannot be one.
func (c *cloud) checkImage() error {
	image := c.image()
	if image == "" {
		return errors.New("no image for the workers: name one with --worker-image or CL_WORKER_IMAGE; make worker-image PUSH=REGISTRY/NAME:TAG makes it")
	}
	if _, err := name.ParseReference(image); err != nil {
		return fmt.Errorf("the name of the workers' image: %w", err)
	}
	return nil
}

// checkOrder fails for flags of the manager alone before status, logs or kill.
func (c *cloud) checkOrder() error {
	if c.dryRun || c.check {
		return program.Usage(errors.New("--dry-run and --check are for the manager: status, logs and kill do not take them"))
	}
	return nil
}

// tryNeeds prints whether each need of a manager is met: the server and the logins there, and those of the service.
func (c *cloud) tryNeeds(ctx context.Context, server string, b cloudBackend) error {
	found := append(c.tryServer(ctx, server, b), b.Check(ctx)...)
	rows, failed := [][]string{}, 0
	for _, f := range found {
		verdict := "yes"
		if !f.OK {
			verdict = "no"
			failed++
		}
		rows = append(rows, []string{f.Name, verdict, termtext.OneLine(f.Text)})
	}
	if err := c.Print(false, nil, termtext.Table(rows)); err != nil || failed == 0 {
		return err
	}
	return fmt.Errorf("%d of %d needs are not met", failed, len(found))
}

// tryServer logs in at the server, and tries the login of workers there.
func (c *cloud) tryServer(ctx context.Context, server string, b cloudBackend) []pilot.Finding {
	api, user, err := c.logIn(ctx, server)
	if err != nil {
		return []pilot.Finding{{Name: "server", Text: err.Error()}}
	}
	text := server + ", as " + user
	if onLoopback(server) {
		text += "; " + loopbackWarning
	}
	return append([]pilot.Finding{{Name: "server", OK: true, Text: text}}, tryTokens(ctx, api, b)...)
}

// logIn logs in at the server, and returns the user's name.
func (c *cloud) logIn(ctx context.Context, server string) (api *client.Client, userName string, err error) {
	login, err := c.login.find(ctx, c.Process, server, "")
	if err != nil {
		return nil, "", err
	}
	api, err = login.connect(server, c.device(server))
	if err != nil {
		return nil, "", err
	}
	user, err := api.User(ctx)
	return api, user.UserName, err
}

// tryTokens tries whether workers have a login. It finds nothing for a backend whose workers always have one.
func tryTokens(ctx context.Context, api *client.Client, b cloudBackend) []pilot.Finding {
	n, ok := b.(pilot.TokenNeeder)
	if !ok {
		return nil
	}
	f := pilot.Finding{Name: "login of workers", OK: true, Text: "the server gives each worker a token"}
	if n.NeedsToken() == nil {
		f.Text = "workers need no token of the server"
	}
	if err := pilot.CheckLogin(ctx, api, b); err != nil {
		f.OK, f.Text = false, err.Error()
	}
	return []pilot.Finding{f}
}

// loopbackWarning is for a server whose address means the worker's own machine.
const loopbackWarning = "workers on other machines do not reach this address: name one that they reach with --server"

// onLoopback reports whether an address of a server means the machine itself.
func onLoopback(server string) bool {
	u, err := url.Parse(server)
	if err != nil {
		return false
	}
	return u.Hostname() == "localhost" || net.ParseIP(u.Hostname()).IsLoopback()
}
