package assembly

import (
	"context"

	"github.com/cl-slurm/cl-slurm/bridge"
	"github.com/cl-slurm/cl-slurm/bridge/energy"
	"github.com/cl-slurm/cl-slurm/bridge/ledger"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// watchEnergy lets a watch of the energy of runs follow a bridge's decisions and its Slurm's settings. It returns nil if
// nobody measures energy.
func (a Assembly) watchEnergy(b *bridge.Bridge, book *ledger.Reader) *energy.Watch {
	if a.Energy == nil || b.Settings == nil {
		return nil
	}
	w := &energy.Watch{Charges: book, Ask: a.Energy, Tell: a.Client.TellEnergy, WorkerID: b.WorkerID, Now: b.Now, Log: a.Log}
	count, settings := b.Count, b.Settings
	b.Count = func(before, after *plan.Row, news *plan.News) {
		if count != nil {
			count(before, after, news)
		}
		w.Note(before, after)
	}
	b.Settings = func(ctx context.Context) (sbatch.Settings, error) {
		s, err := settings(ctx)
		if err == nil {
			s.Energy = s.Energy && a.Slurm.HasAccounting(s.Accounting)
			w.Follow(s)
		}
		return s, err
	}
	return w
}
