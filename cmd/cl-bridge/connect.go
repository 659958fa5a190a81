package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/cl-slurm/cl-slurm/bridge/config"
	"github.com/cl-slurm/cl-slurm/cmd/internal/account"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// connect returns clients of the server and of Slurm. It fails if there are no credentials
// or no Slurm commands. It sends no request: the first calls show whether the server
// accepts the login and whether the controller answers.
func connect(ctx context.Context, p program.Process, c config.Config, log *slog.Logger) (*client.Client, *sbatch.Client, error) {
	if err := c.CheckLogin(ctx); err != nil {
		return nil, nil, err
	}
	cl, err := newClient(c, log, account.DeviceOf(p, "cl-bridge", c.Server))
	if err != nil {
		return nil, nil, err
	}
	slurm, err := findSlurm(ctx, p, c, log)
	return cl, slurm, err
}

// newClient returns a client that signs in as the configuration says. log and device may be nil.
func newClient(c config.Config, log *slog.Logger, device client.TokenCache) (*client.Client, error) {
	credentials, token := c.Login()
	return client.New(c.Server, client.Options{ClientID: client.WorkerClient, Credentials: credentials, Token: token, Tokens: device, Log: log})
}

// refusedLogin gives an error the exit code ExitDenied if the server has refused the
// login, or this user's first check-in.
func refusedLogin(err error) error {
	if codalab.IsStatus(err, http.StatusUnauthorized, http.StatusForbidden) {
		return &program.Error{Code: program.ExitDenied, Err: fmt.Errorf("%w; \"cl-bridge doctor\" checks the login", err)}
	}
	return err
}

// slurmClient returns a client of the site's Slurm. slurm.conf is the configured one, or
// else the one of the environment.
func slurmClient(p program.Process, c config.Config) *sbatch.Client {
	return &sbatch.Client{Bin: c.Slurm.Bin, Conf: cmp.Or(c.Slurm.Conf, p.Getenv("SLURM_CONF")), Cluster: c.Slurm.Cluster}
}

// findSlurm fails if Slurm's commands are absent. It does not call the controller, which
// may go down or come back at any time.
func findSlurm(ctx context.Context, p program.Process, c config.Config, log *slog.Logger) (*sbatch.Client, error) {
	slurm := slurmClient(p, c)
	version, err := slurm.Version(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w; slurm.bin and slurm.conf in the configuration say where Slurm is", err)
	}
	log.InfoContext(ctx, "found Slurm", slog.String("version", version))
	return slurm, nil
}
