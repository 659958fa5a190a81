package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/cmd/internal/account"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/backoff"
	"github.com/cl-slurm/cl-slurm/internal/pause"
)

// loginVariable is the variable with a token: a batch system of a cloud gives containers their secrets in variables.
const loginVariable = "CODALAB_WORKER_TOKEN"

// takeToken returns the token in the environment, and the process without it. No child of this process inherits
// the token.
func takeToken(p program.Process) (program.Process, string) {
	if p.Getenv == nil {
		return p, ""
	}
	token := strings.TrimSpace(p.Getenv(loginVariable))
	_ = os.Unsetenv(loginVariable) // the name is valid
	p.Environ = slices.DeleteFunc(slices.Clone(p.Environ), func(v string) bool { return strings.HasPrefix(v, loginVariable+"=") })
	return p, token
}

// tokenSource returns the function that gets the worker's token, and the token's place for messages; nil if the
// worker logs in with a password.
func (w *standalone) tokenSource() (source func(context.Context) (string, error), place string) {
	switch {
	case w.tokenFile != "":
		return func(context.Context) (string, error) { return account.ReadToken(w.tokenFile) }, w.tokenFile
	case w.passwordFile == "" && w.token != "":
		return func(context.Context) (string, error) {
			if strings.ContainsAny(w.token, " \t\r\n") {
				return "", errors.New(loginVariable + " has to have one token")
			}
			if err := account.CheckToken(w.token); err != nil {
				return "", fmt.Errorf("%s: %w", loginVariable, err)
			}
			return w.token, nil
		}, loginVariable
	}
	return nil, ""
}

// The pauses between two tries to renew a token, unless its life is short.
const (
	firstRenewPause   = time.Second
	longestRenewPause = 5 * time.Minute
)

// beginToken renews the worker's token for the first time, which ends an earlier start of the worker. Only the answer has the
// validity of the token. The worker ends before the last renewal does. It tries again while the server does not answer,
// until giveUp.
func (w *standalone) beginToken(ctx context.Context) error {
	giveUp := w.giveUp(w.Now())
	for n := 1; ; n++ {
		life, err := w.client.RenewWorkerToken(ctx, w.dirs.ID)
		var failed *codalab.Error
		switch {
		case err == nil:
			w.renewal = renewal{renew: w.renewToken, life: life, log: w.log}
			if last := w.Now().Add(life.Latest); w.until.IsZero() || last.Before(w.until) {
				w.until = last
			}
			return nil
		case ctx.Err() != nil || !errors.As(err, &failed) || !failed.Transient():
			return w.explain(err)
		}
		wait := backoff.Spread(backoff.After(n, firstRenewPause, longestRenewPause), nil)
		if !giveUp.IsZero() && w.Now().Add(wait).After(giveUp) {
			return &program.Error{Code: program.ExitTransient, Err: err}
		}
		if n == 1 {
			w.log.WarnContext(ctx, "the server does not answer; the worker tries again", slog.String("error", err.Error()))
		}
		if err := pause.For(ctx, wait); err != nil {
			return err
		}
	}
}

// renewToken gets the next token from the server.
func (w *standalone) renewToken(ctx context.Context) (client.TokenLife, error) {
	return w.client.RenewWorkerToken(ctx, w.dirs.ID)
}

// renewal renews a worker's token while the worker works.
type renewal struct {
	renew func(ctx context.Context) (client.TokenLife, error)
	// life is the validity of the token with which the worker begins.
	life client.TokenLife
	log  *slog.Logger
}

// Run renews the token at half of its life, until it has the last one or ctx ends. It tries again after a failure;
// the worker goes on with the token that it has.
func (r renewal) Run(ctx context.Context) {
	for life := r.life; life.Left < life.Latest; {
		if pause.For(ctx, life.Left/2) != nil {
			return
		}
		next, err := r.untilRenewed(ctx, life.Left/2)
		if err != nil {
			return
		}
		life = next
	}
}

// untilRenewed tries to renew a token that is valid for the given time. It fails only at the end of ctx.
func (r renewal) untilRenewed(ctx context.Context, left time.Duration) (client.TokenLife, error) {
	said := ""
	for n := 1; ; n++ {
		life, err := r.renew(ctx)
		switch {
		case err == nil && said != "":
			r.log.InfoContext(ctx, "the worker's token was renewed")
			return life, nil
		case err == nil:
			r.log.DebugContext(ctx, "the worker's token was renewed", slog.Duration("valid_for", life.Left))
			return life, nil
		case ctx.Err() != nil:
			return life, ctx.Err()
		}
		if text := err.Error(); text != said {
			said = text
			r.log.WarnContext(ctx, "the worker's token was not renewed; the worker tries again", slog.String("error", text))
		}
		if err := backoff.Wait(ctx, n, min(firstRenewPause, left/16), min(longestRenewPause, left/4)); err != nil {
			return life, err
		}
	}
}

// whose names the login for messages.
func (w *standalone) whose() string {
	if _, place := w.tokenSource(); place != "" {
		return "the token in " + place
	}
	return "the user " + w.login.User
}
