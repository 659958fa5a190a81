package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
)

// TestInterruptedRemovalIsResumed interrupts cl rm after its first part, and calls it again: cl says how far it came, and the
// second call removes the rest.
func TestInterruptedRemovalIsResumed(t *testing.T) {
	t.Parallel()
	s := newTransferSite(t, 1<<40)
	home, err := s.api.FindWorksheet(t.Context(), "", client.HomeWorksheet)
	if err != nil {
		t.Fatal(err)
	}
	const all = removedAtOnce + removedAtOnce/2
	for i := range all {
		_, err := s.api.CreateBundle(t.Context(), client.NewBundle{Worksheet: home.UUID, Type: codalab.TypeDataset, Metadata: codalab.Metadata{
			"name": fmt.Sprint("b", i), "description": "", "tags": []string{}, "license": "", "source_url": "",
		}})
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx, interrupt := context.WithCancel(t.Context())
	removals := 0
	s.on(http.MethodDelete, "/bundles", func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if r.URL.Query().Get("dry-run") == "0" {
			if removals++; removals == 2 {
				interrupt()
				return
			}
		}
		next.ServeHTTP(w, r)
	})
	state := "--state=" + string(s.states(t)[0])
	r := s.cl(ctx, strings.NewReader(""), "rm", state, "--yes")
	wantText(t, "standard error", r.stderr, fmt.Sprintf("Interrupted after %d of %d bundles; the same command removes the rest.", removedAtOnce, all))
	if r.code != program.ExitInterrupted {
		t.Errorf("exit code %d", r.code)
	}
	if left := len(s.bundles(t)); left != all-removedAtOnce {
		t.Errorf("%d bundles are left", left)
	}
	wantText(t, "output", s.ends(t, 0, "rm", state, "--yes").stdout, fmt.Sprintf("Removed %d bundles, 0.", all-removedAtOnce))
	if left := s.bundles(t); len(left) > 0 {
		t.Errorf("%q are left", left)
	}
}

// states returns the states of the bundles on the home worksheet.
func (s *transferSite) states(t *testing.T) (states []codalab.State) {
	t.Helper()
	home, err := s.api.FindWorksheet(t.Context(), "", client.HomeWorksheet)
	if err == nil {
		home, err = s.api.WorksheetBundles(t.Context(), home.UUID)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range home.Bundles {
		states = append(states, b.State)
	}
	return states
}
