// Package manners says how CodaLab's own server of version 1.7.3 behaves towards workers, as
// tests. The real server and its stand-in, of package stocktest, pass the same ones:
//
//	func TestManners(t *testing.T) {
//		manners.Try(t, func(t *testing.T, manner func(t *testing.T, on manners.Target)) { … })
//	}
//
// The tests speak HTTP and play the workers. Each test is named for the manner that it shows.
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
	// Owner has the bundles and most of the workers. Colleague is another user. Root is the
	// server's root user; a target without one skips what needs it.
	Owner, Colleague, Root Login
	// Long says that manners which take minutes are tried as well.
	Long bool
}

// Login is a user's name and password.
type Login struct{ Name, Password string }

// Try runs a test for every manner. Each test calls try, which calls manner once with a
// server: one for this manner alone, or one that all manners share. A manner gives unique
// names to what it makes on a server and removes it at its end, but for one group: the server
// keeps that as long as it remembers a worker of it.
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
		// What a worker is offered.
		"RunMessageHasItsShapeAndItsNumbers":      (*trial).runMessage,
		"ResourcesThatNobodyAskedForHaveDefaults": (*trial).defaultResources,
		"AbsoluteDependencyKeyIsSentAsItIs":       (*trial).absoluteKey,
		"RunWaitsForItsParents":                   (*trial).parents,
		"QueueIsATagWithOrWithoutItsKey":          (*trial).tags,
		"ExclusiveWorkerGetsItsTagAlone":          (*trial).exclusive,
		"RequestBeyondAllWorkersStaysStaged":      (*trial).beyondWorkers,
		"RunsThatAreHeldAreDeducted":              (*trial).deducted,
		"TooSmallMemoryFailsTheRun":               (*trial).smallMemory,
		"TerminatingWorkerGetsNoRun":              (*trial).terminating,
		"GroupWorkerGetsAColleaguesRun":           (*trial).groupWorker,
		"RootWorkerGetsAnybodysRun":               (*trial).rootWorker,
		"WorkersAreListed":                        (*trial).workersInfo,
		// Check-ins.
		"IdleCheckInIsHeld":                        (*trial).idleHold,
		"CheckInTakesOneMessage":                   (*trial).oneMessage,
		"NewerCheckInTakesTheSocketOver":           (*trial).newerCheckIn,
		"MessageThatNobodyHearsLeavesTheRunStaged": (*trial).unheard,
		// A run's way.
		"ClaimIsTrueForTheAssignedWorkerAlone":       (*trial).claim,
		"ClaimOfARunningRunSetsItBack":               (*trial).claimAgain,
		"RunGoesFromPreparingToReady":                (*trial).walkReady,
		"ExitCodeMakesAFailure":                      (*trial).walkFailed,
		"KillRequestedMakesAKill":                    (*trial).walkKilled,
		"RunThatIsNotListedIsNotHarmed":              (*trial).unlisted,
		"FinalizingIsAcknowledgedThoughListedOnce":   (*trial).listedOnce,
		"RunningReportTakesAFinalizingOneBack":       (*trial).takenBack,
		"RestagedRunIsOfferedAgain":                  (*trial).restaged,
		"LateReportBringsAFinishedRunBack":           (*trial).lateFinalizing,
		"LateRunningReportBringsAFinishedRunBack":    (*trial).lateRunning,
		"ReportOfARunThatWasClaimedLongAgoRevivesIt": (*trial).claimedLongAgo,
		"PreemptibleWorkersRunIsStagedAgain":         (*trial).preemptible,
		"ReportThatLacksAStageIsDropped":             (*trial).lackingStage,
		"ReportThatLacksAKeyIsDropped":               (*trial).lackingKey,
		"BadReportDoesNotHarmTheOthers":              (*trial).badReport,
		"SilentWorkerIsOfflineUntilItIsBack":         (*trial).silentWorker,
		"RunNotListedForAMinuteIsOffline":            (*trial).unlistedLong,
		"RunThatNobodyStartsIsStagedAgain":           (*trial).neverStarted,
		// Actions.
		"KillOfAQueuedRunIsDoneAtOnce":    (*trial).killQueued,
		"KillOfAHeldRunIsAMessage":        (*trial).killHeld,
		"KillOfARunThatIsOfflineIsUndone": (*trial).killOffline,
		"ActionOnAFinishedRunIsRefused":   (*trial).actionTooLate,
		"WriteToAQueuedRunKillsIt":        (*trial).writeQueued,
		"WriteIsAMessage":                 (*trial).write,
		"ActionsAndRemovalOfWhoMayNot":    (*trial).strangers,
		"RemovalOfAnActiveRunIsRefused":   (*trial).removeActive,
		"NetcatErrorsKeepOnlyClientCodes": (*trial).netcat,
		// Contents.
		"ReadsOfARunningRunGoToItsWorker":        (*trial).readRunning,
		"ReadThatFailsHasTheWorkersWords":        (*trial).readFails,
		"ReadOfARunThatIsOverIsAskedAgain":       (*trial).readNoLongerRunning,
		"ReplyToAnothersSocketIsRefused":         (*trial).foreignSocket,
		"ContentsOfAPreparingRunAreNotThere":     (*trial).readPreparing,
		"UploadIsUnpackedAndReplaced":            (*trial).upload,
		"BrokenUploadLeavesAFailureUntilAnother": (*trial).brokenUpload,
		"UploadAfterTheEndIsRefused":             (*trial).uploadTooLate,
		"DatasetIsReadyWhenUploaded":             (*trial).dataset,
		// Calls.
		"CallWithoutATokenIsRefused": (*trial).noToken,
		"WrongPasswordIsRefused":     (*trial).wrongPassword,
		"UnknownBundleIsNotFound":    (*trial).unknownBundle,
	}
}
