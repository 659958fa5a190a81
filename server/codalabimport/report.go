package codalabimport

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
)

// Problem is an object that cannot be imported unchanged.
type Problem struct {
	// Kind is one of the Problem… constants.
	Kind string `json:"kind"`
	// Object is the name or the id of a user, group, worksheet or bundle, or a path.
	Object  string `json:"object"`
	Problem string `json:"problem"`
	// Stops means that nothing is imported until the problem is solved.
	Stops bool `json:"stops"`
}

// The kinds of problems that stop an import.
const (
	// ProblemConflict means that the data directory has this id or name already.
	ProblemConflict = "conflict"
	// ProblemMissing means that the contents of a ready bundle are not on the disk.
	ProblemMissing = "missing"
	// ProblemUnreadable means a file that this process may not read.
	ProblemUnreadable = "unreadable"
	// ProblemRoom means that the disk of the data directory is too small.
	ProblemRoom = "room"
)

// The kinds of notes.
const (
	// ProblemUser means that a user cannot sign in, or has used up a quota.
	ProblemUser = "user"
	// ProblemName means a name that a user, group, worksheet or bundle of cl-server cannot have.
	ProblemName = "name"
	// ProblemOwner means that an owner does not exist any more. Root becomes the owner.
	ProblemOwner = "owner"
	// ProblemUnderWay means that a bundle was not finished.
	ProblemUnderWay = "under-way"
	// ProblemElsewhere means that a bundle's contents are in the store of a cloud.
	ProblemElsewhere = "elsewhere"
	// ProblemSpecial means that contents have pipes, sockets or devices, which are left out.
	ProblemSpecial = "special"
	// ProblemMetadata means metadata that bundles of cl-server cannot have. They are left out.
	ProblemMetadata = "metadata"
	// ProblemRow means a row that contradicts others. It is left out.
	ProblemRow = "row"
)

// Report is the result of a survey or an import.
type Report struct {
	// Source is the database that is imported.
	Source      string           `json:"source"`
	Users       int              `json:"users"`
	Groups      int              `json:"groups"`
	Members     int              `json:"members"`
	Worksheets  int              `json:"worksheets"`
	Items       int              `json:"items"`
	Permissions int              `json:"permissions"`
	Bundles     int              `json:"bundles"`
	States      map[string]int   `json:"states"`
	Contents    ReportedContents `json:"contents"`
	// Links is the number of bundles whose contents stay in their place (link_url).
	Links    int       `json:"links"`
	Problems []Problem `json:"problems"`
	// Imported means that the import is complete.
	Imported bool `json:"imported"`
}

// ReportedContents is the amount of contents.
type ReportedContents struct {
	// Bundles is the number of bundles that have contents.
	Bundles int   `json:"bundles"`
	Files   int   `json:"files"`
	Bytes   int64 `json:"bytes"`
}

// Stops returns the problems that stop the import.
func (r Report) Stops() []Problem {
	var stops []Problem
	for _, p := range r.Problems {
		if p.Stops {
			stops = append(stops, p)
		}
	}
	return stops
}

// notes gathers problems. Its nil value gathers none.
type notes struct {
	problems []Problem
	// left counts left out metadata by their type and key.
	left map[string]int
}

// stop adds a problem that stops the import.
func (n *notes) stop(kind, object, format string, args ...any) {
	if n != nil {
		n.problems = append(n.problems, Problem{kind, object, fmt.Sprintf(format, args...), true})
	}
}

// note adds a problem that does not.
func (n *notes) note(kind, object, format string, args ...any) {
	if n != nil {
		n.problems = append(n.problems, Problem{kind, object, fmt.Sprintf(format, args...), false})
	}
}

// countLeftOut counts a metadata key that is left out.
func (n *notes) countLeftOut(bundleType, key string) {
	if n == nil {
		return
	}
	if n.left == nil {
		n.left = map[string]int{}
	}
	n.left[key+" of "+bundleType+" bundles"]++
}

// all returns the problems; those that stop the import come first.
func (n *notes) all() []Problem {
	all := slices.Clone(n.problems)
	for _, what := range slices.Sorted(maps.Keys(n.left)) {
		problem := fmt.Sprintf("cl-server does not know this key; it is left out of %d bundles", n.left[what])
		all = append(all, Problem{ProblemMetadata, what, problem, false})
	}
	slices.SortStableFunc(all, func(a, b Problem) int {
		if a.Stops != b.Stops {
			if a.Stops {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.Kind, b.Kind)
	})
	return all
}
