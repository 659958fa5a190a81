package account

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/pause"
)

// SignIn signs in to a server once, so that a wrong password, and the address of something else than a CodaLab
// server, are reported at once.
type SignIn struct {
	Client *client.Client
	Server string
	// User is the user's name; empty with a token, because only the server knows the owner of a token.
	User string
	// GiveUp is the time at which Try stops waiting for a server that has to name the owner of a token; zero
	// for none.
	GiveUp time.Time
	Now    func() time.Time
	Log    *slog.Logger
}

// retrySignIn is the pause between two tries to reach a server that has to name the owner of a token.
const retrySignIn = 5 * time.Second

// Try returns the user's name. A server that does not answer is no error if the name is known. A refusal is
// returned as it is; the other errors have exit codes.
func (s SignIn) Try(ctx context.Context) (string, error) {
	for said := false; ; said = true {
		user, err := s.Client.User(ctx)
		var refused *codalab.Error
		answered := errors.As(err, &refused)
		switch {
		case err == nil:
			return cmp.Or(s.User, user.UserName), nil
		case ctx.Err() != nil:
			return "", err
		case errors.Is(err, client.ErrCredentials), codalab.IsStatus(err, http.StatusUnauthorized, http.StatusForbidden):
			return "", err
		case !answered || !refused.Transient():
			return "", program.Usage(fmt.Errorf("--server: %s does not answer as a CodaLab server: %w", s.Server, err))
		}
		if !said {
			s.Log.WarnContext(ctx, "the server does not answer; the worker tries again", slog.String("error", err.Error()))
		}
		switch {
		case s.User != "":
			return s.User, nil
		case !s.GiveUp.IsZero() && s.Now().Add(retrySignIn).After(s.GiveUp):
			return "", &program.Error{Code: program.ExitTransient, Err: err}
		}
		if err := pause.For(ctx, retrySignIn); err != nil {
			return "", err
		}
	}
}
