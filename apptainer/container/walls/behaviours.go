package walls

import (
	"fmt"
	"strings"
)

// Behaviour is a promise to a command, which finds it as under Docker with each way.
type Behaviour struct {
	Name string
	// Tests are the tests of the fidelity suite for it.
	Tests []string
	// Differs has the ways with which the tests do not run, and the reason.
	Differs map[Way]string
}

const (
	ownUser    = "with SingularityCE the command is the calling user, not root"
	ownConfig  = "the engine reads the image's configuration itself"
	ownStore   = "the engine runs no SIF, but the image in its store, by its digest"
	notDelayed = "untested: a test cannot delay an engine"
)

// engines returns the same reason for both engines.
func engines(reason string) map[Way]string { return map[Way]string{Docker: reason, Podman: reason} }

// Behaviours lists the promises of the fidelity suite.
func Behaviours() []Behaviour {
	setuid := map[Way]string{Setuid: ownUser}
	return []Behaviour{
		{"root may write everywhere", []string{"TestFidelityCommandLooksLikeRootAndWritesEverywhere"}, setuid},
		{"`tar`, `chown`, `cp -a`, `install`, `su`, `dpkg`, `apt-get`, `useradd` work", []string{"TestFidelityRootInstallsSoftware"}, setuid},
		{"`pip` installs a wheel", []string{"TestFidelityPipInstallsAWheel"}, setuid},
		{"the environment is the image's and the bundle's", []string{"TestFidelityEnvironmentIsTheImagesAndTheCallersAlone", "TestFidelityVeryManyVariablesAndALongCommandAreTaken"}, nil},
		{"zero bytes in an image's environment have no effect", []string{"TestFidelityEnvironmentOfAnImageBindsNothing"}, engines(ownConfig)},
		{"a missing working directory is made, and HOME is root's", []string{"TestFidelityWorkingDirectoryIsMadeAndHomeIsRoots"}, nil},
		{"the shell is bash, else sh; an image without one is named", []string{"TestFidelityBashIsPreferred", "TestFidelityImageWithoutShellSaysSo"}, nil},
		{"the exit status is the command's", []string{"TestFidelityExitStatusAndSignalAreTheCommands", "TestFidelityExitStatusIsKeptHoweverQuickTheEnd"}, nil},
		{"nothing erases the output, and a kill loses none", []string{"TestFidelityNothingErasesTheOutput", "TestFidelityAllOutputBeforeAKillIsKept"}, nil},
		{"binds show the host's files, and no more", []string{"TestFidelityBindsShowTheHostsFilesAndNoMoreThanAsked", "TestFidelityExactBindsFollowNoSymbolicLink"}, nil},
		{"only the requested devices are there", []string{"TestFidelityDevicesAreThoseAskedForAlone"}, nil},
		{"`/sys` is read-only", []string{"TestFidelitySysIsReadOnly"}, nil},
		{"nothing of the host is visible", []string{"TestFidelityNothingOfTheHostIsVisible"}, nil},
		{"no network, unless it is requested", []string{"TestFidelityNoNetworkUnlessAskedFor"}, nil},
		{"system calls and keys are as in Docker", []string{"TestFidelityCallsThatDockerRefusesAreRefused", "TestFidelityKeysOfTheAccountAreOutOfReach"}, nil},
		{"an image's scripts for Apptainer do not run", []string{"TestFidelityScriptsOfAnImageAreNotRun"}, nil},
		{
			"a command that writes to the report of its container harms only itself",
			[]string{"TestFidelityCommandThatWritesToTheReportDoesNoMoreThanFail"},
			map[Way]string{Builtin: "there is no report inside"},
		},
		{"a wrong request is refused in words", []string{"TestFidelityWrongRequestsAreRefusedInWords"}, nil},
		{"the image is the one that was checked", []string{"TestFidelityImageIsTheOneThatWasOpened"}, engines(ownStore)},
		{
			"an image with the labels of its host (SELinux) is writable",
			[]string{"TestFidelityImageWithTheLabelsOfItsHostIsWritable"},
			map[Way]string{Setuid: "Apptainer mounts the image itself", Docker: ownStore, Podman: ownStore},
		},
		{"the command begins when its container is set up", []string{"TestFidelityCommandBeginsWhenItsContainerIsSetUp"}, engines(notDelayed)},
		{"TERM reaches every process, and KILL follows", []string{
			"TestFidelityEndOfContextTerminatesEveryProcess", "TestFidelityProcessThatIgnoresTermIsKilledAfterItsGrace",
			"TestFidelityTermToEveryProcessOfTheJobLosesNoExitStatus",
		}, nil},
		{"no process and no mount remains", []string{"TestFidelityBackgroundProcessesEndWithTheCommand", "TestFidelityKillingAnyPartLeavesNoProcessAndNoMount"}, nil},
	}
}

// BehaviourTable returns the promises as a table in Markdown: a row for each, a column for each way. A number
// means that the way differs, and the list below the table has the reason.
func BehaviourTable() string {
	var text, notes strings.Builder
	text.WriteString("| promise |")
	for _, way := range Ways() {
		text.WriteString(" " + string(way) + " |")
	}
	text.WriteString(" tests |\n|---|" + strings.Repeat("---|", len(Ways())) + "---|\n")
	numbers := map[string]int{}
	for _, b := range Behaviours() {
		text.WriteString("| " + b.Name + " |")
		for _, way := range Ways() {
			cell := "yes"
			if reason := b.Differs[way]; reason != "" {
				if numbers[reason] == 0 {
					numbers[reason] = len(numbers) + 1
					fmt.Fprintf(&notes, "%d. %s.\n", numbers[reason], reason)
				}
				cell = fmt.Sprintf("(%d)", numbers[reason])
			}
			text.WriteString(" " + cell + " |")
		}
		fmt.Fprintf(&text, " `%s` |\n", strings.Join(b.Tests, "`, `"))
	}
	return text.String() + "\n" + notes.String()
}
