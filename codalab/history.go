package codalab

import (
	"strconv"
	"strings"
)

// Action is what a user, or the server by itself, did with an object.
type Action string

// The actions.
const (
	ActionCreated   Action = "created"
	ActionUploaded  Action = "uploaded" // contents of a bundle
	ActionEmptied   Action = "emptied"  // the bundle stays without its contents
	ActionEdited    Action = "edited"
	ActionShared    Action = "shared"
	ActionGave      Action = "gave"      // to another owner
	ActionOffered   Action = "offered"   // to another user, who may become the owner
	ActionUnoffered Action = "unoffered" // the offer is over: withdrawn, declined, or of other contents
	ActionKilled    Action = "killed"
	ActionWrote     Action = "wrote" // a file of a running bundle
	ActionFroze     Action = "froze"
	ActionThawed    Action = "thawed"
	ActionDeleted   Action = "deleted"
	ActionAdded     Action = "added"    // items of a worksheet, members of a group
	ActionRemoved   Action = "removed"  // the same
	ActionFailed    Action = "failed"   // a bundle that cannot become ready, such as a run that no worker has reported for long
	ActionLost      Action = "lost"     // a run whose worker is silent
	ActionRestaged  Action = "restaged" // a run that begins anew, because its worker is gone or has given it back
)

// Named is an object by its id and the name that it had.
type Named struct {
	ID   string `json:"id"`
	Name string `json:"name,omitempty"`
}

// String is NAME(ID).
func (n Named) String() string { return n.Name + "(" + n.ID + ")" }

// Granted is what a group may do with an object.
type Granted struct {
	Group Named `json:"group"`
	// Permission is none, read or all.
	Permission string `json:"permission"`
}

// EventDetails has what an action was about.
type EventDetails struct {
	// Worksheet is the worksheet on which a bundle was created.
	Worksheet *Named `json:"worksheet,omitempty"`
	// Groups are what groups may do: of a new object those that may do something, of a shared one the group with which it was
	// shared, whose permission may be none.
	Groups []Granted `json:"groups,omitempty"`
	// Keys are the keys of metadata that an edit changed.
	Keys []string `json:"keys,omitempty"`
	// Before and Owner are the owner before and after the object was given away. Of an offer, Owner is its receiver.
	Before *Named `json:"before,omitempty"`
	Owner  *Named `json:"owner,omitempty"`
	// File is the file that was written.
	File string `json:"file,omitempty"`
	// User is a member of a group, and Role member or admin.
	User *Named `json:"user,omitempty"`
	Role string `json:"role,omitempty"`
	// Items are the bundles and worksheets among a worksheet's new items, and Others is the number of the other items.
	Items  []string `json:"items,omitempty"`
	Others int      `json:"others,omitempty"`
	// Server is true if the server did it by itself, such as the kill of a run whose owner has used up a quota.
	Server bool `json:"server,omitempty"`
	// Reason is why the server did it.
	Reason string `json:"reason,omitempty"`
}

// BundleEvent is an entry of a bundle's history.
type BundleEvent struct {
	// Time is in Unix seconds.
	Time int64 `json:"time"`
	// User is empty for an entry of the server itself, and for one that nobody has recorded, such as the creation of a
	// bundle of an older server.
	User   Named  `json:"user"`
	Action Action `json:"action"`
	EventDetails
}

// Words tells the details on one line; empty if there are none.
func (d EventDetails) Words() string {
	var parts []string
	add := func(text string) { parts = append(parts, text) }
	if d.User != nil {
		add("user " + d.User.String())
	}
	if d.Role != "" {
		add("as " + d.Role)
	}
	if d.Worksheet != nil {
		add("on worksheet " + d.Worksheet.String())
	}
	for _, g := range d.Groups {
		add("with group " + g.Group.String() + ": " + g.Permission)
	}
	if d.Before != nil {
		add("of " + d.Before.String())
	}
	if d.Owner != nil {
		add("to " + d.Owner.String())
	}
	if len(d.Keys) > 0 {
		add("keys " + strings.Join(d.Keys, " "))
	}
	if d.File != "" {
		add("file " + d.File)
	}
	if len(d.Items) > 0 {
		add("items " + strings.Join(d.Items, " "))
	}
	if d.Others > 0 {
		add(strconv.Itoa(d.Others) + " texts")
	}
	if d.Server {
		add("by the server")
	}
	if d.Reason != "" {
		add("because: " + d.Reason)
	}
	return strings.Join(parts, ", ")
}
