package heartbeat

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"reflect"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge"
	"github.com/cl-slurm/cl-slurm/bridge/config"
	"github.com/cl-slurm/cl-slurm/bridge/drain"
	"github.com/cl-slurm/cl-slurm/bridge/lease"
	"github.com/cl-slurm/cl-slurm/bridge/ledger"
	"github.com/cl-slurm/cl-slurm/spool"
)

// Heartbeat is the state that a bridge has published of itself.
type Heartbeat struct {
	Host    string    `json:"host"`
	Process int       `json:"process"`
	Started time.Time `json:"started"`
	At      time.Time `json:"at"`
	// Ended is the time of its end; Failure is the error that ended it, empty for a signal.
	Ended   time.Time `json:"ended,omitzero"`
	Failure string    `json:"failure,omitempty"`
	bridge.Condition
}

// Recorder publishes the status of a running bridge in its shared directory, with each renewal
// of the bridge's lease, and answers the questions of other hosts.
type Recorder struct {
	Bridge *bridge.Bridge
	Config func() config.Config
	Ledger *ledger.Ledger
	Lease  *lease.Lease
	// Holder is the bridge as the lease names it.
	Holder lease.Holder
	Log    *slog.Logger

	orders drain.Orders
}

// lookEvery is the pause between two looks at what the bridge says of itself, and for questions.
// An NFS client may show a new question only after the next renewal of the lease.
const lookEvery = time.Second

// Run publishes the status now, when Slurm, the server or the disk has come or gone, and every
// ten seconds, until ctx ends, which is no error. Its error is a *lease.LostError: the bridge must
// stop. It reports no other: a disk that is full or away must not stop the bridge.
func (r *Recorder) Run(ctx context.Context) error {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	var last bridge.Condition
	var at time.Time
	failed := false
	for {
		now := r.Bridge.Now()
		r.FollowOrders(ctx, now.Sub(at) >= lease.RenewEvery)
		h := r.Bridge.Condition()
		if at.IsZero() || now.Sub(at) >= lease.RenewEvery || !sameNews(last, h) {
			last, at = h, now
			ledger.Touch(r.Config().Ledger, now)
			err := r.Lease.Renew(ctx, r.status(Heartbeat{At: now, Condition: h}))
			if _, ok := errors.AsType[*lease.LostError](err); ok {
				return err
			}
			if err != nil && !failed {
				r.Log.WarnContext(ctx, "cannot renew the lease of the shared directory; the bridge tries again", slog.String("error", err.Error()))
			}
			failed = err != nil
		}
		r.answer(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// FollowOrders drains the bridge, or lets it take bundles again, as the operators' orders in the shared directory say.
// Run calls it every second. The caller calls it once before the bridge runs, so that a drained bridge is offered no
// bundle. If the orders cannot be read, the last ones hold. fresh is that of drain.Dir.Read.
func (r *Recorder) FollowOrders(ctx context.Context, fresh bool) {
	orders, err := drain.In(spool.Layout(r.Config().Shared)).Read(fresh)
	if err != nil || r.orders != nil && maps.Equal(orders, r.orders) {
		return
	}
	for _, o := range orders.List() {
		if r.orders[o.Queue] != o {
			r.Log.WarnContext(ctx, "drained: no new bundles are claimed", slog.String("queue", cmp.Or(o.Queue, "all")),
				slog.String("by", o.By), slog.Time("since", o.At), slog.String("reason", o.Reason))
		}
	}
	for _, o := range r.orders.List() {
		if _, drained := orders[o.Queue]; !drained {
			r.Log.InfoContext(ctx, "resumed: bundles are claimed again", slog.String("queue", cmp.Or(o.Queue, "all")))
		}
	}
	r.orders = orders
	r.Bridge.Drain(orders.Words(r.Config().QueueNames()))
}

// sameNews reports whether two conditions are the same, apart from times that change with each
// snapshot.
func sameNews(a, b bridge.Condition) bool {
	if a.Observed.IsZero() != b.Observed.IsZero() {
		return false
	}
	a.Observed, a.SlurmNext = b.Observed, b.SlurmNext
	return reflect.DeepEqual(a, b)
}

// End publishes the last status, with the error by which the bridge ended, and gives the lease
// up.
func (r *Recorder) End(ctx context.Context, err error) {
	now := r.Bridge.Now()
	h := Heartbeat{At: now, Ended: now, Condition: r.Bridge.Condition()}
	if err != nil {
		h.Failure = err.Error()
	}
	if err := r.Lease.End(r.status(h)); err != nil {
		r.Log.WarnContext(ctx, "cannot give up the lease of the shared directory", slog.String("error", err.Error()))
	}
}

// mostPublished bounds the causes in what a bridge publishes: thousands of bundles may each fail with
// words of their own.
const mostPublished = 100

// status is the bridge's status by its own rows.
func (r *Recorder) status(h Heartbeat) Status {
	h.Host, h.Process, h.Started = r.Holder.Host, r.Holder.Process, r.Holder.Started
	rows, running := r.Bridge.Rows(), h.Ended.IsZero()
	s := Status{Ledger: r.Holder.Ledger, Bridge: r.Holder.Bridge, Running: running, Starting: running && !h.Open, Last: &h, Drains: r.orders.List()}
	s.Add(r.Config(), rows, r.Bridge.Resting())
	s.Waits = s.Waits[:min(len(s.Waits), mostPublished)]
	return s
}
