package assembly

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge"
	"github.com/cl-slurm/cl-slurm/bridge/config"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// Without an accounting database nobody knows the energy, whatever Slurm's settings say.
func TestEnergyIsMeasuredWhereThereIsAccounting(t *testing.T) {
	t.Parallel()
	yes, no := true, false
	for accounting, want := range map[*bool]bool{nil: true, &yes: true, &no: false} {
		counted := 0
		b := &bridge.Bridge{Config: bridge.Config{
			Now: time.Now, Log: slog.New(slog.DiscardHandler),
			Settings: func(context.Context) (sbatch.Settings, error) {
				return sbatch.Settings{Accounting: true, Energy: true}, nil
			},
			Count: func(_, _ *plan.Row, _ *plan.News) { counted++ },
		}}
		a := Assembly{Config: config.Config{Slurm: config.Slurm{Accounting: accounting}}, Energy: (&sbatch.Client{}).QueryChargesOf}
		if a.watchEnergy(b, nil) == nil {
			t.Fatal("nobody watches")
		}
		if s, err := b.Settings(t.Context()); err != nil || s.Energy != want {
			t.Errorf("%v, %+v", err, s)
		}
		if b.Count(&plan.Row{}, &plan.Row{}, &plan.News{}); counted != 1 {
			t.Error("the bridge's metrics lack a decision")
		}
		if w := (Assembly{}).watchEnergy(b, nil); w != nil {
			t.Error("a bridge without Slurm is watched")
		}
	}
}
