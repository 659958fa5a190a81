package pilot

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/background"
	"github.com/cl-slurm/cl-slurm/internal/backoff"
)

// CheckIns is the part of a CodaLab server that a Presence uses. *client.Client implements it.
type CheckIns interface {
	Tokens
	// CheckIn reports a worker, and waits for messages until the server ends the call.
	CheckIn(ctx context.Context, workerID string, in codalab.CheckIn) ([]codalab.Message, error)
}

// Presence shows a manager to the server as a worker that has the size of its pilots, takes no runs, and gives the reason.
// So the server can tell the owner of a staged bundle that a pilot is starting, that none can start, or that none would
// be large enough. The server also refuses a second manager of the same name.
//
// CodaLab's own server ignores such reasons and names. A Presence does nothing there: it recognizes the server by its
// lack of worker tokens.
type Presence struct {
	Server CheckIns
	// Name is the worker id under which the server knows the manager.
	Name string
	// Report has the tag, the group and the size of pilots, and the manager's host.
	Report codalab.CheckIn
	Log    *slog.Logger

	mu       sync.Mutex
	reason   string
	conflict string
	changed  chan struct{} // gets an element when reason has changed
	settled  chan struct{} // closed once the server has had time to refuse the name
	open     []openCheckIn
}

const (
	// presenceGrace is the time that a server has to refuse a manager's name. It holds a check-in that it does not
	// refuse.
	presenceGrace = time.Second
	// presenceEvery is the longest time between two check-ins, presenceWithin bounds the last one.
	presenceEvery  = 20 * time.Second
	presenceWithin = 5 * time.Second
	// presenceAgain is the time between two last check-ins, while an earlier one is not answered.
	presenceAgain = 200 * time.Millisecond
	// reservedDisk is more than any bundle requests: pilots report their disk themselves.
	reservedDisk = 1 << 50
)

// prepare makes the channels.
func (p *Presence) prepare() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.changed == nil {
		p.changed, p.settled = make(chan struct{}, 1), make(chan struct{})
	}
}

// Tell sets the reason for which a staged bundle waits, in words that may follow a colon.
func (p *Presence) Tell(reason string) {
	p.prepare()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reason != reason {
		p.reason = reason
		select {
		case p.changed <- struct{}{}:
		default:
		}
	}
}

// Conflict waits until the server has had time to refuse the manager's name, and returns its refusal: another manager has
// the name. It returns an empty text if there is none.
func (p *Presence) Conflict(ctx context.Context) string {
	p.prepare()
	select {
	case <-p.settled:
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.conflict
}

// isRefused reports whether the server has refused the manager's name.
func (p *Presence) isRefused() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.conflict != ""
}

// Run shows the manager until ctx ends. It returns at once if the server has no worker tokens. It retries all other
// failures.
func (p *Presence) Run(ctx context.Context) {
	p.prepare()
	var once sync.Once
	settle := func() { once.Do(func() { close(p.settled) }) }
	defer settle()
	if err := p.recognize(ctx); err != nil {
		return
	}
	in := p.Report
	in.Instance, in.FreeDiskBytes, in.ExitAfterNumRuns = rand.Text(), reservedDisk, 0
	grace := time.AfterFunc(presenceGrace, settle)
	defer grace.Stop()
	for failures := 0; ctx.Err() == nil; {
		err := p.checkIn(ctx, in)
		if errors.Is(err, errInterrupted) {
			continue
		}
		p.note(ctx, err)
		if err == nil {
			failures = 0
			continue
		}
		if p.refusal(err) != "" {
			settle()
		}
		failures++
		_ = backoff.Wait(ctx, failures, time.Second, presenceEvery) // the loop ends with ctx
	}
	p.leave(context.WithoutCancel(ctx), in)
}

// openCheckIn is a check-in for whose answer nobody waits.
type openCheckIn struct {
	answered <-chan struct{}
	cancel   context.CancelFunc
}

func (o openCheckIn) isAnswered() bool {
	select {
	case <-o.answered:
		return true
	default:
		return false
	}
}

// leave tells the server that the manager ends. With that, the server answers the open check-ins that it has. If one
// reaches the server only afterwards, the server takes the manager for alive again, and would refuse its name for a minute.
// So leave repeats itself until all are answered.
func (p *Presence) leave(ctx context.Context, in codalab.CheckIn) {
	in.IsTerminating = true
	ctx, cancel := context.WithTimeout(ctx, presenceWithin)
	defer cancel()
	defer func() {
		for _, o := range p.open {
			o.cancel()
			<-o.answered
		}
	}()
	for {
		if _, err := p.Server.CheckIn(ctx, p.Name, in); err != nil {
			p.Log.DebugContext(ctx, "the server does not know that the manager ends", slog.Any("error", err))
			return
		}
		if p.allAnsweredWithin(ctx, presenceAgain) {
			return
		}
	}
}

// allAnsweredWithin waits until no check-in is open, for some time at most.
func (p *Presence) allAnsweredWithin(ctx context.Context, limit time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for _, o := range p.open {
		select {
		case <-o.answered:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// recognize fails if the server is CodaLab's own, or ctx ends. It waits for a server that does not answer.
func (p *Presence) recognize(ctx context.Context) error {
	for failures := 1; ; failures++ {
		_, err := p.Server.WorkerToken(ctx, p.Name, time.Second)
		switch {
		case err == nil, errors.Is(err, errors.ErrUnsupported):
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		}
		if err := backoff.Wait(ctx, failures, time.Second, presenceEvery); err != nil {
			return fmt.Errorf("wait for the server: %w", err)
		}
	}
}

// errInterrupted is the error of a check-in that has no answer because a newer reason is to be told, or the manager ends.
var errInterrupted = errors.New("the check-in is interrupted")

// checkIn makes one check-in. If the reason changes or ctx ends, it returns errInterrupted. The check-in stays open then: a
// request that is cancelled may still reach the server, and after a later one.
func (p *Presence) checkIn(ctx context.Context, in codalab.CheckIn) error {
	p.mu.Lock()
	in.Closed = p.reason
	p.mu.Unlock()
	call, cancel := context.WithTimeout(context.WithoutCancel(ctx), presenceEvery)
	var err error
	answered := background.Go(func() {
		defer cancel()
		_, err = p.Server.CheckIn(call, p.Name, in)
	})
	select {
	case <-answered:
		return err
	case <-ctx.Done():
	case <-p.changed:
	}
	p.open = append(slices.DeleteFunc(p.open, openCheckIn.isAnswered), openCheckIn{answered, cancel})
	return errInterrupted
}

// refusal returns the server's words if it refuses the manager's name, because another program has it.
func (p *Presence) refusal(err error) string {
	if codalab.IsStatus(err, http.StatusConflict) {
		return err.Error()
	}
	return ""
}

// note notes the answer to a check-in. A check-in without an answer changes nothing: the other manager may go on.
func (p *Presence) note(ctx context.Context, err error) {
	if err != nil && p.refusal(err) == "" {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.conflict
	p.conflict = p.refusal(err)
	switch {
	case p.conflict != "" && before == "":
		p.Log.WarnContext(ctx, "another manager has this name, and this one starts no workers", slog.String("error", p.conflict))
	case p.conflict == "" && before != "":
		p.Log.InfoContext(ctx, "the other manager of this name has ended")
	}
}
