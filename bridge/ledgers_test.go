package bridge_test

import (
	"path/filepath"
	"testing"
	"time"
)

// A bridge whose ledger was lost has another id, and must not take what the last one left for
// its own.
func TestRecordsOfAnotherLedgersAttemptAreNotTaken(t *testing.T) {
	t.Parallel()
	atSite(t, func(s *site) {
		s.start()
		s.offer(bundleID(1), "exit 3")
		if run := s.result(time.Minute, bundleID(1)); *run.ExitCode != 3 {
			s.Fatalf("the first run ended with %d", *run.ExitCode)
		}
		s.stop()

		s.path = filepath.Join(filepath.Dir(s.path), "other.db")
		s.server.change(func() {
			delete(s.server.finished, bundleID(1))
			delete(s.server.acked, bundleID(1))
			delete(s.server.runs, bundleID(1))
		})
		s.start()
		s.offer(bundleID(1), "exit 4")
		if run := s.result(time.Minute, bundleID(1)); *run.ExitCode != 4 {
			s.Errorf("the run under the other ledger ended with %d: %v", *run.ExitCode, run.FailureMessage)
		}
	})
}
