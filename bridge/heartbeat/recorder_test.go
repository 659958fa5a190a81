package heartbeat

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/cl-slurm/cl-slurm/bridge"
	"github.com/cl-slurm/cl-slurm/bridge/config"
	"github.com/cl-slurm/cl-slurm/bridge/ledger"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
)

// Two thousand bundles fail, each with a name of its own in its words. The bridge would write all of
// them to the shared disk every ten seconds.
func TestPublishedStatusIsSmallHoweverManyCausesThereAre(t *testing.T) {
	t.Parallel()
	book, err := ledger.Open(t.Context(), filepath.Join(t.TempDir(), "ledger.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = book.Close() })
	rows := make([]plan.Row, 2000)
	for i := range rows {
		name := string(rune('a'+i/676)) + string(rune('a'+i/26%26)) + string(rune('a'+i%26))
		rows[i] = plan.Row{Bundle: fmt.Sprintf("0x%032x", i), Queue: "cpu", Phase: plan.Collecting}
		rows[i].FailedTries, rows[i].LastFailure = 1, "the results have a file "+name+" that nobody may read"
	}
	if err := book.Save(t.Context(), rows); err != nil {
		t.Fatal(err)
	}
	b := &bridge.Bridge{Config: bridge.Config{Ledger: book, Log: slog.New(slog.DiscardHandler)}}
	if err := b.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	shared := t.TempDir()
	s := (&Recorder{Bridge: b, Config: func() config.Config { return config.Config{Shared: shared} }}).status(Heartbeat{Condition: b.Condition()})
	data, err := json.Marshal(s)
	if err != nil || len(data) > 64<<10 || len(s.Waits) != 100 || s.Queues[0].Phases[plan.Collecting] != len(rows) {
		t.Errorf("%d bytes, %d causes, queues %+v, %v", len(data), len(s.Waits), s.Queues, err)
	}
}
