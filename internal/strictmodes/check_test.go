package strictmodes_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/internal/strictmodes"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

const (
	attacker = 65534 // nobody
	lab      = 5012  // a group of the attacker's
)

// attack tries, as the attacker, to put a program to OWN/bin/program, or to OWN/later/program, which the account has not
// made yet: by a write there, and by putting another directory in the place of each directory up to TOP. It reports
// whether the attacker's program lies there at the end.
const attack = `
mine=$(mktemp -d) && mkdir -p "$mine/bin" && echo attack >"$mine/bin/program"
put() { mv "$1" "$1.old" 2>/dev/null && { mkdir -p "$2" && cp -r "$mine/bin" "$2/"; } 2>/dev/null; }
mv "$OWN/bin/program" "$OWN/bin/old" 2>/dev/null && cp "$mine/bin/program" "$OWN/bin/program"
mkdir "$OWN/later" 2>/dev/null && cp "$mine/bin/program" "$OWN/later/program"
put "$OWN/bin" "$OWN"
at=$OWN
while [ "$at" != "$TOP" ]; do put "$at" "$OWN"; at=$(dirname "$at"); done
rm -rf "$mine"
grep -q attack "$OWN/bin/program" "$OWN/later/program" 2>/dev/null`

// TestOtherUserReplacesAProgramExactlyWhereThatWasFound compares the verdict on a directory with what another user can
// really do.
func TestOtherUserReplacesAProgramExactlyWhereThatWasFound(t *testing.T) {
	t.Parallel()
	testenv.Root(t)
	u := testenv.Researcher(t)
	account := strictmodes.Account{UID: u.UID, Name: u.Name, Groups: []int{u.GID}}
	const setgid, sticky = os.ModeSetgid, os.ModeSticky
	for name, c := range map[string]struct {
		at   string // the directory that is changed: tree, tree/own or tree/own/bin
		mode os.FileMode
		uid  int  // a new owner; else 0
		gid  int  // a new group; else 0
		list byte // the permissions of the attacker in an access control list; else 0
		want string
	}{
		"own":                   {},
		"open":                  {at: "tree/own", mode: 0o777, want: "everybody can write to "},
		"open and sticky":       {at: "tree/own", mode: 0o777 | sticky, want: "everybody can write to "},
		"open bin":              {at: "tree/own/bin", mode: 0o777, want: "everybody can write to "},
		"of the lab":            {at: "tree/own", mode: 0o770 | setgid, gid: lab, want: "the group 5012 can write to "},
		"in an open tree":       {at: "tree", mode: 0o777, want: "everybody can write to "},
		"in a sticky tree":      {at: "tree", mode: 0o777 | sticky},
		"in the lab's tree":     {at: "tree", mode: 0o770 | setgid, gid: lab, want: "the group 5012 can write to "},
		"in its sticky tree":    {at: "tree", mode: 0o770 | setgid | sticky, gid: lab},
		"in another's tree":     {at: "tree", mode: 0o755, uid: attacker, want: "belongs to "},
		"another's":             {at: "tree/own", mode: 0o755, uid: attacker, want: "belongs to "},
		"by a list":             {at: "tree/own", mode: 0o755, list: 7, want: "(its access control list)"},
		"by a list that reads":  {at: "tree/own", mode: 0o755, list: 5},
		"by a list of the tree": {at: "tree", mode: 0o755, list: 7, want: "(its access control list)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			top := testenv.SharedDir(t)
			tree := filepath.Join(top, "tree")
			own := filepath.Join(tree, "own")
			program := filepath.Join(own, "bin", "program")
			testenv.Must(t, errors.Join(os.MkdirAll(filepath.Dir(program), 0o755), os.WriteFile(program, []byte("mine\n"), 0o755)))
			for _, path := range []string{tree, own, filepath.Dir(program), program} {
				testenv.Must(t, os.Chown(path, u.UID, -1))
			}
			change(t, filepath.Join(top, c.at), c.mode, c.uid, c.gid, c.list)
			err := errors.Join(account.Check(own), account.Check(filepath.Dir(program)))
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("found %v, want %q", err, c.want)
			}
			cmd := exec.CommandContext(t.Context(), "sh", "-c", attack)
			cmd.Env = []string{"PATH=/usr/bin:/bin", "TMPDIR=/tmp", "TOP=" + top, "OWN=" + own}
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: attacker, Gid: attacker, Groups: []uint32{lab}}}
			if could := cmd.Run() == nil; could != (c.want != "") {
				t.Errorf("another user could put a program there: %v", could)
			}
		})
	}
}

// change changes the directory, unless mode is 0.
func change(tb testing.TB, dir string, mode os.FileMode, uid, gid int, perm byte) {
	tb.Helper()
	if mode == 0 {
		return
	}
	for _, id := range []*int{&uid, &gid} {
		if *id == 0 {
			*id = -1
		}
	}
	testenv.Must(tb, errors.Join(os.Chown(dir, uid, gid), os.Chmod(dir, mode)))
	if perm != 0 {
		list(tb, dir, "access", perm)
	}
}

// list gives a directory a list with an entry for the attacker.
func list(tb testing.TB, path, kind string, perm byte) {
	tb.Helper()
	const none = 0xff
	text := []byte{2, 0, 0, 0}
	for _, e := range []struct{ tag, perm byte }{{1, 7}, {2, perm}, {4, 5}, {0x10, 7}, {0x20, 5}} {
		id := []byte{none, none, none, none}
		if e.tag == 2 {
			id = []byte{attacker & 0xff, attacker >> 8, 0, 0}
		}
		text = append(text, append([]byte{e.tag, 0, e.perm, 0}, id...)...)
	}
	testenv.Must(tb, unix.Setxattr(path, "system.posix_acl_"+kind, text, 0))
}

func TestDefaultListIsFound(t *testing.T) {
	t.Parallel()
	testenv.UsesMachine()
	dir := t.TempDir()
	list(t, dir, "default", 7)
	err := strictmodes.Current().Check(dir)
	if err == nil || !strings.Contains(err.Error(), "can write what is made in "+dir) || !strings.HasSuffix(err.Error(), ": setfacl -k "+dir) {
		t.Error(err)
	}
}

// The links of a path are followed as the kernel follows them, and each place is judged.
func TestLinksAreFollowedToTheirPlaces(t *testing.T) {
	t.Parallel()
	account := strictmodes.Current()
	top := t.TempDir()
	at := func(name string) string { return filepath.Join(top, name) }
	for _, dir := range []string{"safe/own", "open/own", "way"} {
		testenv.Must(t, os.MkdirAll(at(dir), 0o755))
	}
	testenv.Must(t, os.Chmod(at("open"), 0o777))
	for name, target := range map[string]string{
		"way/straight": at("safe/own"), "way/relative": "../safe/own", "way/up": "../safe/own/..", "way/twice": "straight",
		"way/open": at("open/own"), "way/through": "../open/own/../../safe/own", "way/loop": "loop",
	} {
		testenv.Must(t, os.Symlink(target, at(name)))
	}
	for name, want := range map[string]string{
		"way/straight": "", "way/relative": "", "way/up": "", "way/twice": "", "way/missing": "", "safe/own/missing/more": "",
		"way/open": "everybody can write to " + at("open"), "way/through": "everybody can write to " + at("open"), "open/missing": "everybody can write to " + at("open"),
		"way/loop": "too many symbolic links",
	} {
		err := account.Check(at(name))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
}

func TestSecretsAreReadFromTheFileThatWasChecked(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "password")
	testenv.Must(t, os.WriteFile(path, []byte("secret\n"), 0o600))
	if got, err := strictmodes.ReadSecret("password", path); err != nil || string(got) != "secret\n" {
		t.Errorf("%q, %v", got, err)
	}
	testenv.Must(t, os.Chmod(path, 0o640))
	if got, err := strictmodes.ReadSecret("password", path); err == nil || got != nil || err.Error() != "the password file "+path+" may be read by others: chmod 600 it" {
		t.Errorf("%q, %v", got, err)
	}
	testenv.Must(t, os.Chmod(path, 0o600))
	list(t, path, "access", 4)
	var open *strictmodes.SecretError
	if err := strictmodes.CheckSecretFile("password", path); !errors.As(err, &open) {
		t.Errorf("with an access control list: %v", err)
	}
	if _, err := strictmodes.ReadSecret("password", path+"x"); !errors.Is(err, os.ErrNotExist) || !strings.HasPrefix(err.Error(), "read password file: ") {
		t.Error(err)
	}
}

// TestOwnSecretIsNotReadWhereOthersCanReplaceIt also has an account that trusts others.
func TestOwnSecretIsNotReadWhereOthersCanReplaceIt(t *testing.T) {
	t.Parallel()
	testenv.UsesMachine()
	dir := filepath.Join(t.TempDir(), "lab")
	path := filepath.Join(dir, "token")
	testenv.Must(t, errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(path, []byte("secret\n"), 0o600)))
	if got, err := strictmodes.ReadOwnSecret("token", path); err != nil || string(got) != "secret\n" {
		t.Errorf("%q, %v", got, err)
	}
	testenv.Must(t, os.Chmod(dir, 0o777))
	want := "the token file: everybody can write to " + dir + " (mode 0777), and so put something else in the place of " + path + ": chmod o-w " + dir
	if got, err := strictmodes.ReadOwnSecret("token", path); err == nil || got != nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("%q, %v", got, err)
	}
	testenv.Must(t, os.Chmod(dir, 0o777|os.ModeSticky)) // others can rename only what is theirs
	if _, err := strictmodes.ReadOwnSecret("token", path); err != nil {
		t.Error(err)
	}
	testenv.Must(t, os.Chmod(dir, 0o755))
	list(t, dir, "access", 7)
	if _, err := strictmodes.Current().ReadOwnSecret("token", path); err == nil {
		t.Error("an attacker with an access control list could replace the file")
	}
	trusting, err := strictmodes.Current().Trust(strconv.Itoa(attacker))
	testenv.Must(t, err)
	if _, err := trusting.ReadOwnSecret("token", path); err != nil {
		t.Error(err)
	}
}

func TestContainersOfTheirOwnAreKnownByTheirVariables(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{"KUBERNETES_SERVICE_HOST": true, "AWS_BATCH_JOB_ID": true, "AZ_BATCH_TASK_ID": true, "SLURM_JOB_ID": false} {
		if got := strictmodes.Alone(func(asked string) string { return map[string]string{name: "x"}[asked] }); got != want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
