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
	// Differs has the ways with which the tests do not run, and the reason. If OnSomeOnly is set, they do not run
	// on some machines only.
	Differs    map[Way]string
	OnSomeOnly bool
}

const (
	ownUser     = "with SingularityCE the command is the calling user, not root"
	ownConfig   = "the engine reads the image's configuration itself"
	ownStore    = "the engine runs no SIF, but the image in its store, by its digest"
	noProcesses = "no limit, if the way cannot set one ([security.md](security.md#processes))"
	oldKernel   = "yes from Linux 5.16 on"
	notDelayed  = "untested: a test cannot delay an engine"
	ownNetwork  = "a pod always has the cluster's network; a NetworkPolicy of the site can take it ([worker.md](worker.md#pods-of-kubernetes))"
	ofKubelet   = "the kubelet of the node bounds the processes of a pod (`podPidsLimit`)"
	notBelow    = "a pod's processes are no children of its caller, and get TERM from the kubelet alone"
)

// engines returns the same reason for all ways with a store of images of their own.
func engines(reason string) map[Way]string {
	return map[Way]string{Docker: reason, Podman: reason, Kubernetes: reason}
}

// Behaviours lists the promises of the fidelity suite.
func Behaviours() []Behaviour {
	setuid := map[Way]string{Setuid: ownUser}
	return []Behaviour{
		{"root may write everywhere", []string{"TestFidelityCommandLooksLikeRootAndWritesEverywhere"}, setuid, false},
		{"`tar`, `chown`, `cp -a`, `install`, `su`, `dpkg`, `apt-get`, `useradd` work", []string{"TestFidelityRootInstallsSoftware"}, setuid, false},
		{"`pip` installs a wheel", []string{"TestFidelityPipInstallsAWheel"}, setuid, false},
		{"the environment is the image's and the bundle's", []string{"TestFidelityEnvironmentIsTheImagesAndTheCallersAlone", "TestFidelityVeryManyVariablesAndALongCommandAreTaken"}, nil, false},
		{"zero bytes in an image's environment have no effect", []string{"TestFidelityEnvironmentOfAnImageBindsNothing"}, engines(ownConfig), false},
		{"a missing working directory is made, and HOME is root's", []string{"TestFidelityWorkingDirectoryIsMadeAndHomeIsRoots"}, nil, false},
		{"the shell is bash, else sh; an image without one is named", []string{"TestFidelityBashIsPreferred", "TestFidelityImageWithoutShellSaysSo"}, nil, false},
		{"the exit status is the command's", []string{"TestFidelityExitStatusAndSignalAreTheCommands", "TestFidelityExitStatusIsKeptHoweverQuickTheEnd"}, nil, false},
		{"nothing erases the output, and a kill loses none", []string{"TestFidelityNothingErasesTheOutput", "TestFidelityAllOutputBeforeAKillIsKept"}, nil, false},
		{"secrets do not reach the output as they are, nor files", []string{"TestFidelityMaskedTextsDoNotReachTheOutput", "TestFidelityEnvironmentIsInNoFileOnceTheCommandHasBegun"}, nil, false},
		{"binds show the host's files, and no more", []string{"TestFidelityBindsShowTheHostsFilesAndNoMoreThanAsked", "TestFidelityExactBindsFollowNoSymbolicLink"}, nil, false},
		{"only the requested devices are there", []string{"TestFidelityDevicesAreThoseAskedForAlone"}, nil, false},
		{"`/sys` is read-only", []string{"TestFidelitySysIsReadOnly"}, nil, false},
		{"nothing of the host is visible", []string{"TestFidelityNothingOfTheHostIsVisible"}, nil, false},
		{"no network, unless it is requested", []string{"TestFidelityNoNetworkUnlessAskedFor"}, map[Way]string{Kubernetes: ownNetwork}, false},
		{"system calls and keys are as in Docker", []string{"TestFidelityCallsThatDockerRefusesAreRefused", "TestFidelityKeysOfTheAccountAreOutOfReach"}, nil, false},
		{"an image's scripts for Apptainer do not run", []string{"TestFidelityScriptsOfAnImageAreNotRun"}, nil, false},
		{
			"a command that writes to the report of its container harms only itself",
			[]string{"TestFidelityCommandThatWritesToTheReportDoesNoMoreThanFail"},
			map[Way]string{Builtin: "there is no report inside"},
			false,
		},
		{"a wrong request is refused in words", []string{"TestFidelityWrongRequestsAreRefusedInWords"}, nil, false},
		{"the image is the one that was checked", []string{"TestFidelityImageIsTheOneThatWasOpened"}, engines(ownStore), false},
		{
			"an image with the labels of its host (SELinux) is writable",
			[]string{"TestFidelityImageWithTheLabelsOfItsHostIsWritable"},
			map[Way]string{Setuid: "Apptainer mounts the image itself", Docker: ownStore, Podman: ownStore, Kubernetes: ownStore},
			false,
		},
		{"the command begins when its container is set up", []string{"TestFidelityCommandBeginsWhenItsContainerIsSetUp"}, engines(notDelayed), false},
		{"TERM reaches every process, and KILL follows", []string{
			"TestFidelityEndOfContextTerminatesEveryProcess", "TestFidelityProcessThatIgnoresTermIsKilledAfterItsGrace",
		}, nil, false},
		{"TERM to every process of a job loses no exit status", []string{"TestFidelityTermToEveryProcessOfTheJobLosesNoExitStatus"}, map[Way]string{Kubernetes: notBelow}, false},
		{
			Name: "a fork bomb ends at the limit of processes", Tests: []string{"TestFidelityForkBombEndsAtTheLimitOfProcesses"},
			Differs:    map[Way]string{Builtin: oldKernel, Apptainer: oldKernel, Setuid: noProcesses, Podman: noProcesses, Kubernetes: ofKubelet},
			OnSomeOnly: true,
		},
		{"no process and no mount remains", []string{"TestFidelityBackgroundProcessesEndWithTheCommand", "TestFidelityKillingAnyPartLeavesNoProcessAndNoMount"}, nil, false},
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
