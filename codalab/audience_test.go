package codalab

import "testing"

func TestAccessIsSaidInWords(t *testing.T) {
	t.Parallel()
	ann, ben := User{ID: "0xa", UserName: "ann"}, User{ID: "0xb", UserName: "ben"}
	group := func(name string, permission int) GroupPermission {
		return GroupPermission{GroupName: name, Permission: permission}
	}
	public := group("public", PermissionRead)
	closed := ann
	closed.Account = &Account{RequireSignIn: true}
	for want, who := range map[string]Audience{
		"readable and changeable only by you":                                                 {ann, &ann, nil},
		"readable and changeable only by ben":                                                 {ann, &ben, nil},
		"readable by everybody, also without a login; changeable only by you":                 {ann, &ann, []GroupPermission{public}},
		"readable by everybody, also without a login; changeable only by its owner":           {ann, nil, []GroupPermission{public}},
		"readable by everybody with a login; changeable only by you":                          {closed, &closed, []GroupPermission{public}},
		"readable by everybody, also without a login; changeable by everybody with a login":   {ann, &ann, []GroupPermission{group("public", PermissionAll)}},
		"readable by you and the members of lab; changeable only by you":                      {ann, &ann, []GroupPermission{group("lab", PermissionRead)}},
		"readable and changeable by you and the members of lab":                               {ann, &ann, []GroupPermission{group("lab", PermissionAll)}},
		"readable by ben and the members of lab, vision and x; changeable only by ben":        {ann, &ben, []GroupPermission{group("lab", 1), group("vision", 1), group("x", 1)}},
		"readable by everybody, also without a login; changeable by you and the members of x": {ann, &ann, []GroupPermission{group("lab", 1), public, group("x", 2)}},
	} {
		if got := who.String(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
