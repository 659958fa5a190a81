// Package manners shows how CodaLab's own server of version 1.7.3 behaves towards workers, as
// tests. The real server and its stand-in, of package stocktest, pass the same tests:
//
//	func TestManners(t *testing.T) {
//		manners.Try(t, func(t *testing.T, manner func(t *testing.T, on manners.Target)) { … })
//	}
//
// The tests call the server by HTTP, as users and as workers. Each test is named for the
// behaviour (manner) that it shows. To add one, write a method of trial and name it in all.
package manners

import (
	"net/http"
	"testing"
)

// Target is a server, and the users as whom the suite calls it.
type Target struct {
	// Address is the server's, without the /rest below which it answers.
	Address string
	HTTP    *http.Client
	// Owner has the bundles and most of the workers. Colleague is another user, for Groups.
	// Root is the root user; without one the tests that need it are skipped.
	Owner, Colleague, Root Login
	// Long says that manners which take minutes are tried, too.
	Long bool
	// Groups says that the server has groups.
	Groups bool
}

// Login is a user's name and password.
type Login struct{ Name, Password string }

// Try runs a test for every manner. Each test calls try, which calls manner once with a
// server: a new one, or one that all manners share. A manner gives unique names to the bundles
// that it makes and removes them at its end. It leaves one group, which the server keeps while
// it remembers a worker of the group.
func Try(t *testing.T, try func(t *testing.T, manner func(t *testing.T, on Target))) {
	t.Helper()
	for name, manner := range all() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			try(t, func(t *testing.T, on Target) {
				t.Helper()
				manner(newTrial(t, on))
			})
		})
	}
}

func all() map[string]func(*trial) {
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
		"ClaimIsTrueForTheAssignedWorkerAlone":    (*trial).claim,
		"ClaimOfARunningRunSetsItBack":            (*trial).claimAgain,
		"ExitCodeOrMessageDecidesTheEnd":          (*trial).walkEnds,
		"RunGoesFromPreparingToReady":             (*trial).walkReady,
		"UnreportedRunKeepsItsState":              (*trial).unlisted,
		"FinalizingReportedOnceIsAcknowledged":    (*trial).listedOnce,
		"RunningReportTakesAFinalizingOneBack":    (*trial).takenBack,
		"RestagedRunIsOfferedAgain":               (*trial).restaged,
		"LateReportBringsAFinishedRunBack":        (*trial).lateFinalizing,
		"LateRunningReportBringsAFinishedRunBack": (*trial).lateRunning,
		"ReportRevivesARunClaimedLongAgo":         (*trial).claimedLongAgo,
		"PreemptibleWorkersRunIsStagedAgain":      (*trial).preemptible,
		"ReportThatLacksAStageIsDropped":          (*trial).lackingStage,
		"ReportThatLacksAKeyIsDropped":            (*trial).lackingKey,
		"SilentWorkerIsOfflineUntilItIsBack":      (*trial).silentWorker,
		"RunUnreportedForAMinuteIsOffline":        (*trial).unlistedLong,
		"UnclaimedRunIsStagedAgain":               (*trial).neverStarted,
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
		"UploadAfterTheEndIsRefused":             (*trial).uploadTooLate,
		// Calls.
		"CallsWithoutPermissionAreRefused": (*trial).refusedCalls,
	}
}
