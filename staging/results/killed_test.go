package results

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/spool"
)

// collectHere is the argument with which this program collects results, as an order says that follows in JSON.
const collectHere = "collect-here"

// collectOrder is a call of Collect.
type collectOrder struct {
	Run     codalab.RunBundle
	RunDir  string
	Mode    spool.ResultsMode
	Layout  spool.Layout
	Bundles string // of a directoryServer
	Store   *Store
}

func collectAsOrdered(order string) error {
	var o collectOrder
	if err := json.Unmarshal([]byte(order), &o); err != nil {
		return err
	}
	return o.collect(context.Background())
}

func (o collectOrder) collect(ctx context.Context) error {
	c := Collector{Contents: &directoryServer{bundles: o.Bundles}, Store: o.Store, Layout: o.Layout, Now: time.Now}
	_, err := c.Collect(ctx, o.Run, o.RunDir, o.Mode, func(string) {})
	return err
}

// A bridge that is killed with many results half collected collects them again, whole.
func TestResultsAreCollectedAgainAfterAKill(t *testing.T) {
	t.Parallel()
	const many = 4000
	order := func(t *testing.T, mode spool.ResultsMode) collectOrder {
		t.Helper()
		files := map[string]string{"stdout": "out"}
		for i := range many {
			files[fmt.Sprintf("r/%d", i)] = "whole"
		}
		r := left(t, files)
		return collectOrder{Run: codalab.RunBundle{UUID: run1}, RunDir: r.runDir, Mode: mode, Layout: r.layout, Bundles: r.server.bundles}
	}
	upload, keep, move := order(t, spool.ResultsUpload), order(t, spool.ResultsKeep), order(t, spool.ResultsUpload)
	other := t.TempDir()
	testenv.SmallDisk(t, other, "size=64m")
	move.Store = &Store{Dir: other}
	location := filepath.Join(other, "bundles", run1+"-r1", "contents")
	move.Run.Location = &location
	must(t, os.MkdirAll(location, 0o750))
	for name, tt := range map[string]struct {
		order     collectOrder
		began, at string
	}{
		"upload": {upload, filepath.Join(upload.Bundles, run1, "r/1*"), filepath.Join(upload.Bundles, run1)},
		"keep":   {keep, keep.Layout.KeptDir(run1), keep.Layout.KeptDir(run1)},
		"move":   {move, filepath.Join(filepath.Dir(location), ".contents.moving/r/1*"), location},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text, err := json.Marshal(tt.order)
			must(t, err)
			collecting := exec.Command("/proc/self/exe", collectHere, string(text))
			collecting.Stderr = t.Output()
			must(t, collecting.Start())
			testenv.Await(t, "a part is collected", func() bool {
				found, err := filepath.Glob(tt.began)
				return err == nil && len(found) > 0
			}, &tt.began)
			must(t, collecting.Process.Kill())
			if collecting.Wait() == nil {
				t.Skip("it was faster than the kill")
			}
			must(t, tt.order.collect(t.Context()))
			got := planted(t, tt.at)
			for i := range many {
				if name := fmt.Sprintf("r/%d", i); got[name] != "whole" {
					t.Fatalf("%s holds %q", name, got[name])
				}
			}
			if len(got) != many+1 || got["stdout"] != "out" {
				t.Errorf("%d files, and the output %q", len(got), got["stdout"])
			}
			if left, err := filepath.Glob(filepath.Join(filepath.Dir(tt.at), ".*")); err != nil || len(left) > 0 {
				t.Errorf("left %q, %v", left, err)
			}
		})
	}
}
