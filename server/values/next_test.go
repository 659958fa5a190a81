package values

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"
)

// An idle server asks its database for nothing. New contents are looked for a moment after they came, several of them at
// once. A search does not wait for that, and a pass that failed is made again.
func TestIndexerLooksOnlyWhenThereIsAReason(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		x := New(nil, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		passes := make(chan time.Duration, 1)
		wait := func(failed bool) {
			began := time.Now()
			go func() {
				if x.next(ctx, failed) == nil {
					passes <- time.Since(began)
				}
			}()
		}
		wait(false)
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		if len(passes) > 0 {
			t.Fatalf("a pass began after %s without a reason", <-passes)
		}
		x.Changed()
		x.Changed()
		if took := <-passes; took != 24*time.Hour+rest {
			t.Errorf("the pass for new contents began after %s", took)
		}
		wait(true)
		if took := <-passes; took != rest {
			t.Errorf("the pass that failed was made again after %s", took)
		}
		wait(true)
		tell(x.asked)
		if took := <-passes; took != 0 {
			t.Errorf("the pass for a search began after %s", took)
		}
		cancel()
	})
}
