package heartbeat

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/lease"
	"github.com/cl-slurm/cl-slurm/bridge/ledger"
	"github.com/cl-slurm/cl-slurm/internal/atomicfile"
	"github.com/cl-slurm/cl-slurm/internal/pause"
	"github.com/cl-slurm/cl-slurm/spool"
)

// A ledger in a file can be read on its own host only. Another host writes a question into the directory of the
// lease, as ask-TOKEN.json. The bridge answers with answer-TOKEN.json: within a second, or on NFS once it has
// renewed its lease. The host that asked removes both files.
const askPrefix, answerPrefix = "ask-", "answer-"

type question struct {
	// Bundle names a bundle, as for FindBundle.
	Bundle string `json:"bundle"`
}

type reply struct {
	Explanation *Explanation `json:"explanation,omitempty"`
	// Error is set if there is no explanation. Ambiguous is set for an *AmbiguousError.
	Error     string `json:"error,omitempty"`
	Ambiguous bool   `json:"ambiguous,omitempty"`
}

// answerWithin bounds the time for which Ask waits for an answer: some renewals of the lease, and the time that
// a disk takes to show a file.
const answerWithin = 45 * time.Second

// Ask has the bridge that holds a shared directory explain a bundle, which is given as for
// FindBundle. It is for a host that cannot read the bridge's ledger, and returns what Explain and
// FindBundle return there. state is that of the bridge's lease.
func Ask(ctx context.Context, shared spool.Layout, state lease.State, bundle string) (Explanation, error) {
	host := state.Holder.Host
	if state.Ended {
		return Explanation{}, fmt.Errorf("the bridge on %s does not run, and cannot be asked: \"cl-bridge explain %s\" there reads its ledger", host, bundle)
	}
	dir, token := shared.BridgeDir(), spool.NewToken()
	ask, answer := filepath.Join(dir, askPrefix+token+".json"), filepath.Join(dir, answerPrefix+token+".json")
	if err := atomicfile.WriteJSON(ask, question{bundle}); err != nil {
		return Explanation{}, fmt.Errorf("ask the bridge on %s: %w", host, err)
	}
	defer func() { _, _ = os.Remove(ask), os.Remove(answer) }() // the next holder of the lease removes leftovers
	waiting, stop := context.WithTimeout(ctx, answerWithin)
	defer stop()
	for {
		var r reply
		switch err := atomicfile.ReadJSON(answer, &r); {
		case err == nil && r.Ambiguous:
			return Explanation{}, &AmbiguousError{r.Error}
		case err == nil && r.Explanation == nil:
			return Explanation{}, errors.New(r.Error)
		case err == nil:
			return *r.Explanation, nil
		case !errors.Is(err, fs.ErrNotExist):
			return Explanation{}, fmt.Errorf("read the answer of the bridge on %s: %w", host, err)
		}
		if err := pause.For(waiting, time.Second); err != nil {
			if ctx.Err() != nil {
				return Explanation{}, ctx.Err()
			}
			return Explanation{}, fmt.Errorf("the bridge on %s has not answered within %s: \"cl-bridge explain %s\" there reads its ledger", host, answerWithin, bundle)
		}
		// An NFS client asks the server for a new name after a change of its own.
		if probe, err := atomicfile.Temporary(ask, nil, 0o600); err == nil {
			_ = os.Remove(probe)
		}
	}
}

// answer answers the questions in the shared directory. It tries one that it cannot answer now again,
// until the other host gives up.
func (r *Recorder) answer(ctx context.Context) {
	dir := spool.Layout(r.Config().Shared).BridgeDir()
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		token, ok := strings.CutPrefix(e.Name(), askPrefix)
		if !ok {
			continue
		}
		var q question
		err := atomicfile.ReadJSON(filepath.Join(dir, e.Name()), &q)
		if err == nil {
			err = atomicfile.WriteJSON(filepath.Join(dir, answerPrefix+token), explain(ctx, &r.Ledger.Reader, r.Holder.Ledger, q.Bundle))
		}
		if err == nil {
			_ = os.Remove(filepath.Join(dir, e.Name())) // or its asker does
		}
	}
}

func explain(ctx context.Context, r *ledger.Reader, name, prefix string) reply {
	bundle, err := FindBundle(ctx, r, name, prefix)
	var e Explanation
	if err == nil {
		e, err = Explain(ctx, r, name, bundle)
	}
	if err != nil {
		var ambiguous *AmbiguousError
		return reply{Error: err.Error(), Ambiguous: errors.As(err, &ambiguous)}
	}
	return reply{Explanation: &e}
}
