package server

import (
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/signin"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// MaxProgramTokens bounds the program tokens of one user that have not ended.
const MaxProgramTokens = signin.MaxProgramTokens

// NewProgramToken returns a program token of a user, and its row for the store. Its error is for people.
func NewProgramToken(userID string, in codalab.ProgramTokenRequest, now time.Time) (token string, t store.ProgramToken, err error) {
	return signin.NewProgramToken(userID, in, now)
}

// ShowProgramToken describes a program token of the user with a name.
func ShowProgramToken(t store.ProgramToken, userName string) codalab.ProgramToken {
	return signin.ShowProgramToken(t, userName)
}
