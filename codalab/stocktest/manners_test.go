package stocktest_test

import (
	"context"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/cl-slurm/cl-slurm/codalab/stocktest"
)

// The suite shows how CodaLab's own server of version 1.7.3 behaves towards workers. The
// stand-in and the real server pass the same tests. They call the server by HTTP, as users and
// as workers. Each is named for the behaviour (manner) that it shows. It gives unique names to
// the bundles that it makes and removes them at its end; one group stays, which the server
// keeps while it remembers a worker of the group.

// site is a server, and the users as whom the suite calls it.
type site struct {
	// address is the server's, without the /rest below which it answers.
	address string
	http    *http.Client
	// owner has the bundles and most of the workers. colleague is another user, for groups.
	// root is the root user; without one the tests that need it are skipped.
	owner, colleague, root stocktest.User
	// long is set to try manners that take minutes, too.
	long bool
	// groups is set if the server has groups.
	groups bool
}

// The stand-in runs in a bubble, where its times cost nothing.
func TestStandInsManners(t *testing.T) {
	t.Parallel()
	for name, manner := range manners() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			atStandIn(t, stocktest.Faults{}, func(on *trial, _ *stocktest.Server) { manner(on) })
		})
	}
}

// atStandIn runs a test on a stand-in of its own, in a bubble.
func atStandIn(t *testing.T, f stocktest.Faults, test func(on *trial, s *stocktest.Server)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		owner, root := stocktest.User{Name: "ann", Password: "a"}, stocktest.User{Name: stocktest.RootName, Password: "r"}
		s, err := stocktest.New(stocktest.Options{Dir: dir, Users: []stocktest.User{owner, root}, Faults: f})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		var manager sync.WaitGroup
		manager.Go(func() { s.Run(ctx) })
		t.Cleanup(func() {
			cancel()
			manager.Wait()
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		test(newTrial(t, site{address: stocktest.Address, http: s.Client(), owner: owner, root: root, long: true}), s)
	})
}

// CLTEST_STOCK=http://127.0.0.1:2900 tests CodaLab's own server as well, as the users
// CLTEST_STOCK_USER and CLTEST_STOCK_COLLEAGUE, which are NAME:PASSWORD, and its root user
// CLTEST_STOCK_ROOT if that is set. CLTEST_STOCK_LONG=1 adds the tests that take minutes.
func TestStockServersManners(t *testing.T) {
	t.Parallel()
	address := os.Getenv("CLTEST_STOCK")
	if address == "" {
		t.Skip("CLTEST_STOCK names no server of CodaLab's own")
	}
	user := func(variable string) stocktest.User {
		name, password, _ := strings.Cut(os.Getenv(variable), ":")
		return stocktest.User{Name: name, Password: password}
	}
	stock := site{
		address: address, http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 32}},
		owner: user("CLTEST_STOCK_USER"), colleague: user("CLTEST_STOCK_COLLEAGUE"), root: user("CLTEST_STOCK_ROOT"),
		long: os.Getenv("CLTEST_STOCK_LONG") != "", groups: true,
	}
	for name, manner := range manners() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			manner(newTrial(t, stock))
		})
	}
}

// manners are the tests of the suite. To add one, write a method of trial and name it here.
func manners() map[string]func(*trial) {
	return map[string]func(*trial){
		// Offers of runs.
		"RunMessageHasItsShapeAndItsNumbers": (*trial).runMessage,
		"UnrequestedResourcesHaveDefaults":   (*trial).defaultResources,
		"AbsoluteDependencyKeyIsSentAsItIs":  (*trial).absoluteKey,
		"RunWaitsForItsParents":              (*trial).parents,
		"QueueIsATagWithOrWithoutItsKey":     (*trial).tags,
		"ExclusiveWorkerGetsOnlyItsTag":      (*trial).exclusive,
		"RequestBeyondAllWorkersStaysStaged": (*trial).beyondWorkers,
		"ClaimedRunsAreDeducted":             (*trial).deducted,
		"TerminatingWorkerGetsNoRun":         (*trial).terminating,
		"GroupWorkerGetsAColleaguesRun":      (*trial).groupWorker,
		"RootWorkerGetsAnybodysRun":          (*trial).rootWorker,
		// Check-ins.
		"IdleCheckInIsHeld":                  (*trial).idleHold,
		"CheckInGetsOneMessage":              (*trial).oneMessage,
		"NewerCheckInTakesTheSocketOver":     (*trial).newerCheckIn,
		"UndeliveredOfferLeavesTheRunStaged": (*trial).unheard,
		// States of a run.
		"ClaimIsTrueForTheAssignedWorkerAlone": (*trial).claim,
		"ClaimOfARunningRunSetsItBack":         (*trial).claimAgain,
		"ExitCodeOrMessageDecidesTheEnd":       (*trial).walkEnds,
		"RunGoesFromPreparingToReady":          (*trial).walkReady,
		"UnreportedRunKeepsItsState":           (*trial).unlisted,
		"FinalizingReportedOnceIsAcknowledged": (*trial).listedOnce,
		"RunningReportTakesAFinalizingOneBack": (*trial).takenBack,
		"RestagedRunIsOfferedAgain":            (*trial).restaged,
		"LateReportBringsAFinishedRunBack":     (*trial).late,
		"ReportRevivesARunClaimedLongAgo":      (*trial).claimedLongAgo,
		"PreemptibleWorkersRunIsStagedAgain":   (*trial).preemptible,
		"ReportThatLacksAStageIsDropped":       (*trial).lackingStage,
		"ReportThatLacksAKeyIsDropped":         (*trial).lackingKey,
		"SilentWorkerIsOfflineUntilItIsBack":   (*trial).silentWorker,
		"RunUnreportedForAMinuteIsOffline":     (*trial).unlistedLong,
		"UnclaimedRunIsStagedAgain":            (*trial).neverStarted,
		// Actions.
		"KillOfAClaimedRunIsAMessage":     (*trial).killHeld,
		"KillOfARunThatIsOfflineIsUndone": (*trial).killOffline,
		"WriteIsAMessage":                 (*trial).write,
		// Contents.
		"ReadsOfARunningRunGoToItsWorker":        (*trial).readRunning,
		"FailedReadHasTheWorkersMessage":         (*trial).readFails,
		"ReadOfAnEndedRunIsRepeated":             (*trial).readNoLongerRunning,
		"ReplyToAnothersSocketIsRefused":         (*trial).foreignSocket,
		"PreparingRunHasNoContents":              (*trial).readPreparing,
		"UploadIsUnpackedAndReplaced":            (*trial).upload,
		"BrokenUploadLeavesAFailureUntilAnother": (*trial).brokenUpload,
		// Calls.
		"CallsWithoutPermissionAreRefused": (*trial).refusedCalls,
		"CallsForSeveralRunsAreNotFound":   (*trial).severalRuns,
	}
}
