package main

import (
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
)

// With --json a command prints one JSON value: a list if the command shows or changes several
// objects, else one object. The keys are those of CodaLab's REST API.

// named holds the uuid of a bundle or a worksheet, for commands that print nothing else of it.
type named struct {
	UUID string `json:"uuid"`
}

// bundleView is a bundle in JSON.
type bundleView struct {
	UUID             string                  `json:"uuid"`
	Type             string                  `json:"bundle_type"`
	State            codalab.State           `json:"state"`
	StateDetails     string                  `json:"state_details"`
	Command          *string                 `json:"command"`
	Owner            *userView               `json:"owner"`
	Frozen           *string                 `json:"frozen"`
	IsAnonymous      bool                    `json:"is_anonymous"`
	Metadata         codalab.Metadata        `json:"metadata"`
	Dependencies     []codalab.Dependency    `json:"dependencies"`
	Permission       string                  `json:"permission"`
	Children         []named                 `json:"children,omitempty"`
	HostWorksheets   []codalab.WorksheetName `json:"host_worksheets,omitempty"`
	GroupPermissions []permissionView        `json:"group_permissions,omitempty"`
	OfferedTo        string                  `json:"offered_to,omitempty"`
	OfferedUntil     int64                   `json:"offered_until,omitempty"`
	Cost             *codalab.Cost           `json:"cost,omitempty"`
	Platform         *codalab.Platform       `json:"platform,omitempty"`
}

type userView struct {
	ID       string `json:"id"`
	UserName string `json:"user_name"`
}

type permissionView struct {
	GroupID    string `json:"group_id"`
	GroupName  string `json:"group_name"`
	Permission string `json:"permission"`
}

func viewBundle(b client.BundleInfo) bundleView {
	v := bundleView{
		UUID: b.UUID, Type: b.Type, State: b.State, StateDetails: b.Details(), Command: b.Command,
		Owner: viewUser(b.Owner), Frozen: b.Frozen, IsAnonymous: b.IsAnonymous, Metadata: b.Metadata,
		Dependencies: append([]codalab.Dependency{}, b.Dependencies...), Permission: codalab.PermissionSpec(b.Permission),
		HostWorksheets: b.HostWorksheets, GroupPermissions: viewPermissions(b.GroupPermissions),
		OfferedTo: b.OfferedTo, OfferedUntil: b.OfferedUntil, Cost: b.Cost, Platform: b.Platform,
	}
	for _, child := range b.Children {
		v.Children = append(v.Children, named{child.UUID})
	}
	return v
}

func viewBundles(bundles []client.BundleInfo) []bundleView {
	list := make([]bundleView, 0, len(bundles))
	for _, b := range bundles {
		list = append(list, viewBundle(b))
	}
	return list
}

func viewUser(u *codalab.User) *userView {
	if u == nil {
		return nil
	}
	return &userView{u.ID, u.UserName}
}

func viewPermissions(list []codalab.GroupPermission) []permissionView {
	var views []permissionView
	for _, p := range list {
		views = append(views, permissionView{p.GroupID, p.GroupName, codalab.PermissionSpec(p.Permission)})
	}
	return views
}
