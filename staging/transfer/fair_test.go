package transfer

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/turns"
)

// wantTurn makes a bundle wait for a transfer of its own, which takes so long. It calls got when
// the transfer begins.
func wantTurn(t *testing.T, r *Registry, all *sync.WaitGroup, p turns.Party, takes time.Duration, got func()) {
	t.Helper()
	all.Go(func() {
		d, leave := r.Join(p.Owner+p.Bundle, p)
		defer leave()
		err := d.InTurn(t.Context(), func() error {
			got()
			time.Sleep(takes)
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// TestOneOwnersImagesDoNotHoldAnothersUp: a thousand bundles of one owner want an image each, which
// takes an hour, or comes from a registry that never ends.
func TestOneOwnersImagesDoNotHoldAnothersUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := NewRegistry(2)
		var all sync.WaitGroup
		for i := range 1000 {
			wantTurn(t, r, &all, turns.Party{Owner: "ann", Bundle: fmt.Sprint(i)}, time.Hour, func() {})
		}
		synctest.Wait()
		began := time.Now()
		for i := range 3 {
			wantTurn(t, r, &all, turns.Party{Owner: "ben", Bundle: fmt.Sprint(i)}, time.Minute, func() {
				if waited := time.Since(began); waited > time.Duration(i)*time.Minute {
					t.Errorf("image %d of the other owner waited %v", i, waited)
				}
			})
			synctest.Wait()
		}
		all.Wait()
	})
}
