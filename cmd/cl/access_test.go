package main

import (
	"testing"

	"github.com/cl-slurm/cl-slurm/codalab"
)

func TestAccessIsSaidInWords(t *testing.T) {
	t.Parallel()
	ann, ben := codalab.User{ID: "0xa", UserName: "ann"}, codalab.User{ID: "0xb", UserName: "ben"}
	group := func(name string, permission int) codalab.GroupPermission {
		return codalab.GroupPermission{GroupName: name, Permission: permission}
	}
	public := group("public", codalab.PermissionRead)
	closed := ann
	closed.Account = &codalab.Account{RequireSignIn: true}
	for want, who := range map[string]audience{
		"readable and changeable only by you":                                                 {ann, &ann, nil},
		"readable and changeable only by ben":                                                 {ann, &ben, nil},
		"readable by everybody, also without a login; changeable only by you":                 {ann, &ann, []codalab.GroupPermission{public}},
		"readable by everybody, also without a login; changeable only by its owner":           {ann, nil, []codalab.GroupPermission{public}},
		"readable by everybody with a login; changeable only by you":                          {closed, &closed, []codalab.GroupPermission{public}},
		"readable by everybody, also without a login; changeable by everybody with a login":   {ann, &ann, []codalab.GroupPermission{group("public", codalab.PermissionAll)}},
		"readable by you and the members of lab; changeable only by you":                      {ann, &ann, []codalab.GroupPermission{group("lab", codalab.PermissionRead)}},
		"readable and changeable by you and the members of lab":                               {ann, &ann, []codalab.GroupPermission{group("lab", codalab.PermissionAll)}},
		"readable by ben and the members of lab, vision and x; changeable only by ben":        {ann, &ben, []codalab.GroupPermission{group("lab", 1), group("vision", 1), group("x", 1)}},
		"readable by everybody, also without a login; changeable by you and the members of x": {ann, &ann, []codalab.GroupPermission{group("lab", 1), public, group("x", 2)}},
	} {
		if got := who.String(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
