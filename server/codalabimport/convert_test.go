package codalabimport

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// written is a text as CodaLab's own server writes it.
func written(text string) string {
	var b strings.Builder
	high := []rune(latin1)
	for _, c := range []byte(text) {
		if c >= 0x80 && c < 0xa0 {
			b.WriteRune(high[c-0x80])
			continue
		}
		b.WriteRune(rune(c))
	}
	return b.String()
}

func TestTextsOfWorksheetsAreReadAsTheyWereWritten(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "plain", "Türme — “à la carte” €", "你好 😀", "\u0081\u008d"} {
		if got := decodeText(written(text)); got != text {
			t.Errorf("%q: %q", text, got)
		}
	}
	for text, want := range map[string]string{ // not written so
		"Türme": "Türme", "你好": "你好", "a\x00b\xff": "ab\uFFFD",
	} {
		if got := decodeText(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func FuzzTextsOfWorksheets(f *testing.F) {
	f.Add("Türme — €")
	f.Fuzz(func(t *testing.T, text string) {
		if got, want := decodeText(written(text)), clean(text); strings.ToValidUTF8(text, "") == text && got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	})
}

func TestMetadataValues(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		kind codalab.ValueType
		text string
		want any
		ok   bool
	}{
		{codalab.TypeString, "x\x00", "x", true},
		{codalab.TypeSize, "2g", "2g", true},
		{codalab.TypeBool, "True", true, true},
		{codalab.TypeBool, "1", false, true}, // as CodaLab's own server reads it
		{codalab.TypeInt, " 12", int64(12), true},
		{codalab.TypeInt, "12.0", int64(12), true},
		{codalab.TypeInt, "1e300", nil, false},
		{codalab.TypeInt, "nan", nil, false},
		{codalab.TypeInt, "x", nil, false},
		{codalab.TypeFloat, "1e-05", 1e-05, true},
		{codalab.TypeFloat, "inf", math.Inf(1), false},
		{codalab.TypeFloat, "", 0.0, false},
	} {
		got, ok := parse(codalab.MetadataKey{Type: test.kind}, test.text)
		if ok != test.ok || (ok && got != test.want) {
			t.Errorf("%s %q: %v, %v", test.kind, test.text, got, ok)
		}
	}
}

func TestURLs(t *testing.T) {
	t.Parallel()
	for where, want := range map[string]string{
		"mysql://u:secret@db.example/codalab":              "tcp(db.example:3306) u secret codalab mysql://u@db.example/codalab",
		"mysql://u@[::1]:3307/x?charset=latin1":            "tcp([::1]:3307) u  x mysql://u@[::1]:3307/x?charset=latin1",
		"mysql://u:p%40@/x?unix_socket=/run/mysqld/s.sock": "unix(/run/mysqld/s.sock) u p@ x mysql://u@/x?unix_socket=/run/mysqld/s.sock",
	} {
		cfg, name, err := parseURL(where)
		if err != nil {
			t.Errorf("%s: %v", where, err)
			continue
		}
		if got := cfg.Net + "(" + cfg.Addr + ") " + cfg.User + " " + cfg.Passwd + " " + cfg.DBName + " " + name; got != want {
			t.Errorf("%s: %s", where, got)
		}
	}
	for where, says := range map[string]string{
		"postgres://u@h/x": "want mysql://", "mysql:u": "want mysql://", "mysql://u:secret@h": "want mysql://", "mysql://u@/x": "want mysql://",
		"mysql://u:sec%zzret@h/x": "want mysql://", "mysql://u@h/x?tls=maybe": "tls: want true", "mysql://u@h/x?user=y": "unknown parameter user",
	} {
		if err := CheckURL(where); err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "sec") {
			t.Errorf("%s: %v", where, err)
		}
	}
}

func TestStoresAreFoundInAnyOfTheirDirectories(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	bundles := filepath.Join(home, "partitions/default/bundles")
	uuid := codalab.NewUUID()
	if err := os.MkdirAll(filepath.Join(bundles, uuid), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{home, filepath.Join(home, "partitions/default"), bundles} {
		on, err := openDisk([]string{dir})
		if diff := cmp.Diff(disk{bundles}, on); err != nil || diff != "" {
			t.Errorf("%s: %v, %s", dir, err, diff)
		}
		if got := on.pathOf(uuid); got != filepath.Join(bundles, uuid) {
			t.Error(got)
		}
	}
	if err := os.Symlink("/nowhere/disk2", filepath.Join(home, "partitions/second")); err != nil {
		t.Fatal(err)
	}
	for dir, says := range map[string]string{
		home: "its partition second: open ", home + "/no": "no such file or directory", t.TempDir(): "there are no bundles: want the old server's CODALAB_HOME",
	} {
		if _, err := openDisk([]string{dir}); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", dir, err)
		}
	}
}

func TestUnreadableFilesAreFoundBeforeAnythingIsCopied(t *testing.T) {
	t.Parallel()
	if os.Geteuid() == 0 {
		t.Skip("root may read everything")
	}
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{"file": 0, "fine": 0o400} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "closed"), 0); err != nil {
		t.Fatal(err)
	}
	found, err := store.MeasureContents(t.Context(), dir)
	want := []string{filepath.Join(dir, "closed"), filepath.Join(dir, "file")}
	if diff := cmp.Diff(want, found.Unreadable); err != nil || diff != "" {
		t.Errorf("%v, %s", err, diff)
	}
}

func TestNamesThatDifferByCaseAloneStayAndAreReported(t *testing.T) {
	t.Parallel()
	var n notes
	c := newConverter(&n, store.Taken{}, func(string) error { return nil })
	for _, name := range []string{"ann", "Ann", "ben"} {
		if u := c.user(userRow{ID: name, Name: name, IsActive: true, IsVerified: true}); u.Name != name {
			t.Errorf("%s becomes %s", name, u.Name)
		}
	}
	names := map[string]bool{}
	for _, name := range []string{"lab", "LAB"} {
		if got := c.unique(names, "group", name, "0x1"); got != name {
			t.Errorf("%s becomes %s", name, got)
		}
	}
	c.unique(map[string]bool{}, "worksheet", "Lab", "0x1") // another kind
	var got []string
	for _, p := range n.all() {
		got = append(got, p.Object+": "+p.Problem)
	}
	want := []string{
		"Ann: the name differs from that of user ann by case alone; it stays",
		"LAB: the name differs from that of group lab by case alone; it stays",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}
