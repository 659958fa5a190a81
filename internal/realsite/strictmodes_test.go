package realsite_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// A stranger is a user of the site whom the researcher does not trust.
const stranger = 2002

// onNFS is a directory `own` of the researcher's on NFS, with a program and a secret in it, that was opened in a way.
type onNFS struct {
	name string
	// Root of the file server, or the researcher as a client, runs a script above the directory.
	atServer, atClient string
	// at is the name that is judged: own, own/program or own/secret.
	at string
	// want begins the verdict after the name of the path or the place; "ok" means that nothing is found.
	want string
	// open is set if the stranger can then put a program there, or read the secret.
	open bool
}

// waysOnNFS are the ways. The file server's disk has POSIX lists. Clients of NFSv4 see them as lists of NFSv4, those of NFSv3
// as they are. The researcher's own group may write by the mode, so that the list alone tells who else can.
func waysOnNFS() []onNFS {
	list := func(entry, path string) string { return fmt.Sprintf("setfacl -m %s %s", entry, path) }
	const bin, program, secret = "own", "own/program", "own/secret"
	return []onNFS{
		{name: "own", at: bin, want: "ok"},
		{name: "open", atClient: "chmod 777 own", at: bin, want: "everybody can write to ", open: true},
		{name: "sticky-tree", atClient: "chmod 1777 .", at: bin, want: "ok"},
		{name: "open-tree", atClient: "chmod 777 .", at: bin, want: "everybody can write to ", open: true},
		{name: "list", atServer: list("u:2002:rwx", bin), at: bin, want: "the user 2002 can write to ", open: true},
		{name: "group-list", atServer: list("g:2002:rwx", bin), at: bin, want: "the group 2002 can write to ", open: true},
		{name: "list-that-reads", atServer: list("u:2002:rx", bin), at: bin, want: "ok"},
		{name: "masked-list", atServer: list("u:2002:rwx,m::rx", bin), at: bin, want: "ok"},
		{name: "list-of-the-tree", atServer: list("u:2002:rwx", "."), at: bin, want: "the user 2002 can write to ", open: true},
		{name: "later", atServer: list("d:u:2002:rwx", bin), at: bin, want: "the user 2002 can write what is made in ", open: true},
		{name: "program", atServer: list("u:2002:rw", program), at: program, want: "the user 2002 can write to ", open: true},
		{name: "program-that-is-read", atServer: list("u:2002:r", program), at: program, want: "ok"},
		{name: "by-the-client", atClient: "nfs4_setfacl -a A::2002:rwaDx own", at: bin, want: "the user 2002 can write to ", open: true},
		{name: "program-by-the-client", atClient: "nfs4_setfacl -a A::2002:rwa own/program", at: program, want: "the user 2002 can write to ", open: true},
		{name: "secret", at: secret, want: "ok"},
		{name: "secret-list", atServer: list("u:2002:r", secret), at: secret, want: "the password file ", open: true},
		{name: "secret-by-the-client", atClient: "nfs4_setfacl -a A::2002:r own/secret", at: secret, want: "the password file ", open: true},
	}
}

// makeOnNFS has a function that makes the directory and goes above it.
const makeOnNFS = `make() {
install -d -o researcher -g researcher -m 0755 $1 $1/own
cd $1
echo mine >own/program; echo kept >own/secret
chmod 0775 own own/program; chmod 0600 own/secret
chown researcher:researcher own/*
}
`

// attackOnNFS tries, as the stranger in the directory above own, to put a program there, or to read the secret. The
// researcher has made own/later since the verdict.
const attackOnNFS = `
put() { echo attack >"$1" || { mv "$1" "$1.old" && echo attack >"$1"; }; }
{ put own/program; put own/later/program; grep -q attack own/program own/later/program || { mv own own.old && mkdir own && put own/program; }; } 2>/dev/null
grep -q attack own/program own/later/program 2>/dev/null && echo program
grep -q kept own/secret 2>/dev/null && echo secret
true`

// A verdict is compared with what the stranger can really do, on a disk of kernel NFS with root_squash.
func TestOthersOnNFSAreFoundWhereTheyCanWrite(t *testing.T) {
	s := site{testenv.Site(t)}
	s.control(t, "up")
	s.send(t, "strict")
	ways := waysOnNFS()
	// A client keeps lists for a while: each run has names that no client knows.
	top := "strict-" + strconv.FormatInt(time.Now().UnixNano(), 36)
	server := "set -e\n" + makeOnNFS + "install -d -m 0755 /srv/shared/" + top + "\n"
	client := "set -e\n"
	for _, w := range ways {
		server += fmt.Sprintf("cd /srv/shared/%s; make %s; %s\n", top, w.name, w.atServer)
		client += fmt.Sprintf("cd /shared/%s/%s; %s\n", top, w.name, w.atClient)
	}
	s.on(t, fileServer, server)
	s.on(t, loginRoot, "mkdir -p /mnt/v3; mountpoint -q /mnt/v3 || mount -t nfs -o vers=3,nolock fs:/srv/shared /mnt/v3")
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		_, err := s.try(ctx, loginRoot, "umount /mnt/v3")
		_, err2 := s.try(ctx, fileServer, "rm -rf /srv/shared/"+top)
		if err != nil || err2 != nil {
			t.Error(err, err2)
		}
	})
	s.on(t, login, client)
	for version, mount := range map[string]string{"4.2": "/shared", "3": "/mnt/v3"} {
		if out := s.on(t, login, "grep ' "+mount+" ' /proc/mounts"); !strings.Contains(out, "vers="+version+",") {
			t.Fatalf("%s is not NFS %s:\n%s", mount, version, out)
		}
		s.judgeOnNFS(t, "NFS "+version, filepath.Join(mount, top), ways)
	}
	s.attackOnNFS(t, filepath.Join("/shared", top), ways)
}

// judgeOnNFS compares the verdicts of the researcher's account with those that are wanted.
func (s site) judgeOnNFS(t *testing.T, what, dir string, ways []onNFS) {
	t.Helper()
	var paths []string
	for _, w := range ways {
		paths = append(paths, filepath.Join(dir, w.name, w.at))
	}
	verdicts := strings.Split(s.on(t, login, "/var/tmp/strict "+strings.Join(paths, " ")), "\n")
	if len(verdicts) != len(ways) {
		t.Fatalf("%d verdicts, want %d: %q", len(verdicts), len(ways), verdicts)
	}
	for i, w := range ways {
		t.Logf("%s %s: %s", what, w.name, verdicts[i])
		if !strings.HasPrefix(verdicts[i], w.want) {
			t.Errorf("%s %s: %s; want %q", what, w.name, verdicts[i], w.want)
		}
	}
}

// attackOnNFS checks that the stranger can do something exactly where that was found.
func (s site) attackOnNFS(t *testing.T, dir string, ways []onNFS) {
	t.Helper()
	s.on(t, login, fmt.Sprintf("set -e; for own in %s/*/own; do mkdir $own/later; echo mine >$own/later/program; done", dir))
	var attacks strings.Builder
	for _, w := range ways {
		fmt.Fprintf(&attacks, "cd %s\n(%s) | sed s/^/%s:/\n", filepath.Join(dir, w.name), attackOnNFS, w.name)
	}
	out := s.on(t, loginRoot, fmt.Sprintf("setpriv --reuid %[1]d --regid %[1]d --clear-groups sh -c %[2]s", stranger, quote(attacks.String())))
	done := strings.Fields(out)
	t.Logf("the stranger has got: %q", done)
	for _, w := range ways {
		prize := w.name + ":program"
		if filepath.Base(w.at) == "secret" {
			prize = w.name + ":secret"
		}
		if got := slices.Contains(done, prize); got != w.open {
			t.Errorf("%s: the stranger got in: %v, want %v", prize, got, w.open)
		}
	}
}
