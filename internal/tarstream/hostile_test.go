package tarstream_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/internal/tarstream"
)

// hostile returns archives and Unpack's required results.
func hostile() map[string]struct {
	entries [][]byte
	err     error             // nil: it is unpacked
	want    map[string]string // what it leaves; nil is not checked
} {
	const outside = "../victim"
	end := make([]byte, 1024)
	packed := gzipped(append(file("a"), end...))
	flipped := func(at int) []byte {
		b := bytes.Clone(packed)
		b[at] ^= 0xff
		return b
	}
	xxx := func(names ...string) map[string]string {
		m := map[string]string{}
		for _, n := range names {
			m[n] = "xxx"
		}
		return m
	}
	with := func(m map[string]string, pairs ...string) map[string]string {
		for i := 0; i < len(pairs); i += 2 {
			m[pairs[i]] = pairs[i+1]
		}
		return m
	}
	type test = struct {
		entries [][]byte
		err     error
		want    map[string]string
	}
	return map[string]test{
		// names
		"dotdot":                 {[][]byte{file(outside)}, tarstream.ErrUnsafe, xxx()},
		"dotdot inside":          {[][]byte{file("a/../../victim")}, tarstream.ErrUnsafe, xxx()},
		"dotdot that stays":      {[][]byte{file("a/../b")}, tarstream.ErrUnsafe, xxx()},
		"dotdot in an extension": {[][]byte{pax('x', "path="+outside), file("a")}, tarstream.ErrUnsafe, xxx()},
		"dotdot in a prefix":     {[][]byte{raw('0', "victim", 3, "xxx", func(b []byte) { copy(b[345:], "..") })}, tarstream.ErrUnsafe, xxx()},
		"absolute is rooted":     {[][]byte{file("/etc/evil")}, nil, with(xxx("etc/evil"), "etc", "directory")},
		"many slashes":           {[][]byte{file("///etc//.//evil")}, nil, with(xxx("etc/evil"), "etc", "directory")},
		"Windows names":          {[][]byte{file(`..\victim`), file(`C:\evil`)}, nil, xxx(`..\victim`, `C:\evil`)},
		"reserved in Windows":    {[][]byte{file("CON"), file("a:b"), file("a. ")}, nil, xxx("CON", "a:b", "a. ")},
		"case":                   {[][]byte{file("a"), file("A")}, nil, xxx("a", "A")},
		"newline":                {[][]byte{file("a\nb\x1b[0m")}, nil, xxx("a\nb\x1b[0m")},
		"no UTF-8":               {[][]byte{file("\xff\xfe/\xc0\xae")}, nil, with(xxx("\xff\xfe/\xc0\xae"), "\xff\xfe", "directory")},
		"zero byte":              {[][]byte{pax('x', "GNU.sparse.major=0", "GNU.sparse.minor=1", "GNU.sparse.name=a\x00b", "GNU.sparse.numblocks=0", "GNU.sparse.size=0"), raw('0', "f", 0, "")}, tarstream.ErrUnsafe, xxx()},
		"empty name":             {[][]byte{file("")}, tarstream.ErrUnsafe, xxx()},
		"only slashes":           {[][]byte{file("//")}, tarstream.ErrUnsafe, xxx()},
		"trailing slash":         {[][]byte{file("f/")}, nil, xxx("f")},
		"trailing dot":           {[][]byte{file("f/.")}, nil, xxx("f")},
		"root as directory":      {[][]byte{raw('5', "./", 0, "", mode("0000000"))}, nil, xxx()},
		"root as link":           {[][]byte{link("./", "..")}, tarstream.ErrUnsafe, xxx()},
		"too long a path":        {[][]byte{pax('x', "path="+strings.Repeat("d/", 3000)), file("f")}, tarstream.ErrTooLarge, xxx()},
		"too long a name":        {[][]byte{pax('x', "path="+strings.Repeat("n", 256)), file("f")}, tarstream.ErrTooLarge, xxx()},
		"hundred thousand deep":  {[][]byte{pax('x', "path="+strings.Repeat("d/", 100_000)), file("f")}, tarstream.ErrTooLarge, xxx()},
		"many levels at once":    {[][]byte{pax('x', "path="+strings.Repeat("d/", 2000)), file("f")}, tarstream.ErrTooLarge, nil},

		// links
		"through a link out":           {[][]byte{link("l", "../neighbour"), file("l/file")}, tarstream.ErrUnsafe, with(xxx(), "l", "-> ../neighbour")},
		"through an absolute link":     {[][]byte{link("l", "/"), file("l/tmp/evil")}, tarstream.ErrUnsafe, with(xxx(), "l", "-> /")},
		"through a link within":        {[][]byte{dir("d"), link("l", "d"), file("l/f")}, tarstream.ErrUnsafe, with(xxx(), "d", "directory", "l", "-> d")},
		"through a dangling link":      {[][]byte{link("l", "../new"), dir("l/d")}, tarstream.ErrUnsafe, nil},
		"through links in a ring":      {[][]byte{link("a", "b"), link("b", "a"), file("a/f")}, tarstream.ErrUnsafe, nil},
		"file over a link":             {[][]byte{link("l", outside), file("l")}, nil, xxx("l")},
		"directory over a link":        {[][]byte{link("l", "../neighbour"), raw('5', "l", 0, "", mode("0000777"))}, tarstream.ErrUnsafe, nil},
		"directory over a link in":     {[][]byte{dir("d"), link("l", "d"), dir("l")}, tarstream.ErrUnsafe, nil},
		"link over a directory":        {[][]byte{dir("d"), link("d", "../neighbour"), file("d/file")}, tarstream.ErrUnsafe, with(xxx(), "d", "directory")},
		"link over a directory in use": {[][]byte{file("d/f"), link("d", "../neighbour"), file("d/file")}, tarstream.ErrUnsafe, nil},
		"link to nothing":              {[][]byte{link("l", "")}, tarstream.ErrUnsafe, xxx()},
		"link of 5,000 bytes":          {[][]byte{pax('x', "linkpath="+strings.Repeat("l", 5000)), link("l", "")}, tarstream.ErrTooLarge, xxx()},
		"link twice":                   {[][]byte{link("l", "a"), link("l", "b")}, nil, with(xxx(), "l", "-> b")},
		"hard link up":                 {[][]byte{hard("h", outside)}, tarstream.ErrUnsafe, xxx()},
		"hard link absolute":           {[][]byte{hard("h", "/etc/passwd")}, tarstream.ErrUnsafe, xxx()},
		"hard link by a link":          {[][]byte{link("l", ".."), hard("h", "l/victim")}, tarstream.ErrUnsafe, nil},
		"hard link to a link":          {[][]byte{link("l", outside), hard("h", "l"), file("h")}, nil, with(xxx("h"), "l", "-> ../victim")},
		"hard link to the directory":   {[][]byte{dir("d"), hard("h", "d")}, tarstream.ErrUnsafe, nil},
		"hard link to the root":        {[][]byte{hard("h", "./")}, tarstream.ErrUnsafe, nil},
		"hard link to itself":          {[][]byte{file("a"), hard("a", "a")}, nil, xxx("a")},
		"hard link to nothing":         {[][]byte{hard("a", "a")}, tarstream.ErrUnsafe, nil},
		"hard link over a directory":   {[][]byte{file("a"), dir("d"), hard("d", "a")}, tarstream.ErrUnsafe, nil},
		"hard link twice":              {[][]byte{file("a"), hard("h", "a"), hard("h", "a")}, nil, xxx("a", "h")},
		"written by a hard link":       {[][]byte{file("a"), hard("h", "a"), raw('0', "h", 1, "y")}, nil, with(xxx("a"), "h", "y")},
		"hard links without end":       {[][]byte{file("a"), hard("1", "a"), hard("2", "a"), hard("3", "a"), hard("4", "a")}, tarstream.ErrTooLarge, xxx("a", "1", "2", "3")},

		// kinds and modes
		"character device":       {[][]byte{raw('3', "null", 0, "", mode("0000666"))}, tarstream.ErrUnsafe, xxx()},
		"block device":           {[][]byte{raw('4', "disk", 0, "")}, tarstream.ErrUnsafe, xxx()},
		"pipe":                   {[][]byte{raw('6', "p", 0, "")}, tarstream.ErrUnsafe, xxx()},
		"unknown kind":           {[][]byte{raw('Z', "z", 3, "xxx")}, tarstream.ErrUnsafe, xxx()},
		"contiguous file":        {[][]byte{raw('7', "c", 3, "xxx")}, nil, xxx("c")},
		"device over a file":     {[][]byte{file("a"), raw('3', "a", 0, "")}, tarstream.ErrUnsafe, xxx("a")},
		"set-uid":                {[][]byte{raw('0', "su", 3, "xxx", mode("0006755")), raw('5', "d", 0, "", mode("0007777"))}, nil, with(xxx("su"), "d", "directory")},
		"mode beyond its bits":   {[][]byte{raw('0', "f", 3, "xxx", mode("7777777"))}, nil, xxx("f")},
		"closed file":            {[][]byte{raw('0', "f", 3, "xxx", mode("0000000"))}, nil, xxx("f")},
		"closed directory":       {[][]byte{raw('5', "d", 0, "", mode("0000100")), file("d/f")}, nil, with(xxx("d/f"), "d", "directory")},
		"directory closed later": {[][]byte{dir("d"), file("d/f"), raw('5', "d", 0, "", mode("0000000")), file("d/g")}, nil, with(xxx("d/f", "d/g"), "d", "directory")},
		"extended attributes":    {[][]byte{pax('x', "SCHILY.xattr.user.evil=1", "SCHILY.xattr.security.capability=\x01"), file("f")}, nil, xxx("f")},
		"file where a tree is":   {[][]byte{file("d/f"), file("d")}, tarstream.ErrUnsafe, with(xxx("d/f"), "d", "directory")},
		"tree where a file is":   {[][]byte{file("d"), file("d/f")}, tarstream.ErrUnsafe, xxx("d")},
		"directory over a file":  {[][]byte{file("d"), dir("d")}, tarstream.ErrUnsafe, xxx("d")},
		"duplicates":             {[][]byte{file("a"), raw('0', "a", 1, "y"), dir("d"), dir("d/")}, nil, with(xxx(), "a", "y", "d", "directory")},

		// sizes
		"too many bytes":           {[][]byte{raw('0', "a", 101, strings.Repeat("x", 101))}, tarstream.ErrTooLarge, xxx()},
		"too many in sum":          {[][]byte{raw('0', "a", 60, strings.Repeat("x", 60)), raw('0', "a", 60, strings.Repeat("x", 60))}, tarstream.ErrTooLarge, nil},
		"too many entries":         {[][]byte{times(10_000, raw('0', "same", 0, ""))}, tarstream.ErrTooLarge, nil},
		"negative size":            {[][]byte{raw('0', "a", 0, "", func(b []byte) { copy(b[124:136], strings.Repeat("\xff", 12)) })}, tarstream.ErrFormat, xxx()},
		"negative extended size":   {[][]byte{pax('x', "size=-1"), file("a")}, tarstream.ErrFormat, xxx()},
		"huge extended size":       {[][]byte{pax('x', "size=9223372036854775807"), file("a")}, tarstream.ErrTooLarge, xxx()},
		"huge size of a directory": {[][]byte{pax('x', "size=9223372036854775807"), dir("d")}, nil, with(xxx(), "d", "directory")},
		"huge size in base 256":    {[][]byte{raw('0', "a", 0, "", func(b []byte) { copy(b[124:136], "\x80\x00\x00\x00\x7f\xff\xff\xff\xff\xff\xff\xff") })}, tarstream.ErrTooLarge, xxx()},
		"sparse":                   {[][]byte{raw('S', "s", 0, "", gnuSparse)}, tarstream.ErrTooLarge, xxx()},
		"sparse, extended":         {[][]byte{pax('x', "GNU.sparse.major=1", "GNU.sparse.minor=0", "GNU.sparse.realsize=1099511627776"), raw('0', "s", 512, "0\n"+strings.Repeat("\x00", 510))}, tarstream.ErrTooLarge, xxx()},
		"sparse of negative size":  {[][]byte{pax('x', "GNU.sparse.major=0", "GNU.sparse.minor=1", "GNU.sparse.size=-5", "GNU.sparse.numblocks=0"), raw('0', "s", 0, "")}, tarstream.ErrFormat, xxx()},
		"sparse with more in it":   {[][]byte{pax('x', "GNU.sparse.major=0", "GNU.sparse.minor=1", "GNU.sparse.size=1", "GNU.sparse.numblocks=0"), file("s")}, tarstream.ErrFormat, nil},
		"sparse that overlaps":     {[][]byte{pax('x', "GNU.sparse.major=0", "GNU.sparse.minor=1", "GNU.sparse.size=8", "GNU.sparse.numblocks=2", "GNU.sparse.map=0,3,2,3"), file("s")}, tarstream.ErrFormat, xxx()},
		"sparse of many blocks":    {[][]byte{pax('x', "GNU.sparse.major=0", "GNU.sparse.minor=1", "GNU.sparse.size=8", "GNU.sparse.numblocks=4611686018427387904", "GNU.sparse.map=0,3"), file("s")}, tarstream.ErrFormat, xxx()},
		"global headers for ever":  {[][]byte{times(20, pax('g', "comment="+strings.Repeat("c", 900_000)))}, tarstream.ErrTooLarge, xxx()},
		"headers for ever":         {[][]byte{times(20, pax('x', "comment="+strings.Repeat("c", 900_000)))}, tarstream.ErrTooLarge, xxx()},
		"too long a header":        {[][]byte{pax('x', "comment="+strings.Repeat("c", 2_000_000)), file("a")}, tarstream.ErrFormat, xxx()},

		// times and streams
		"before all times":      {[][]byte{pax('x', "mtime=-9223372036854775808"), file("a")}, nil, xxx("a")},
		"after all times":       {[][]byte{pax('x', "mtime=9223372036854775807.999999999"), file("a"), pax('x', "mtime=9223372037"), file("b")}, nil, xxx("a", "b")},
		"no time":               {[][]byte{pax('x', "mtime=soon"), file("a")}, tarstream.ErrFormat, xxx()},
		"padding":               {[][]byte{file("a"), end, times(1000, end[:512])}, nil, xxx("a")},
		"padding for ever":      {[][]byte{file("a"), times(4000, end[:512])}, tarstream.ErrFormat, xxx("a")},
		"entries after the end": {[][]byte{file("a"), end, file("b")}, nil, xxx("a")},
		"half an end":           {[][]byte{file("a"), end[:512], file("b")}, tarstream.ErrFormat, xxx("a")},
		"no end":                {[][]byte{file("a")}, nil, xxx("a")},
		"cut in a header":       {[][]byte{file("a"), file("b")[:300]}, tarstream.ErrFormat, xxx("a")},
		"cut in a file":         {[][]byte{file("a")[:514]}, tarstream.ErrFormat, nil},
		"cut extended header":   {[][]byte{pax('x', "path=a")[:515]}, tarstream.ErrFormat, xxx()},
		"extended header alone": {[][]byte{pax('x', "path=a")}, nil, xxx()},
		"nothing":               {nil, tarstream.ErrFormat, xxx()},
		"text":                  {[][]byte{[]byte("no archive at all, only some words")}, tarstream.ErrFormat, xxx()},
		"only magic":            {[][]byte{{0x1f, 0x8b}}, tarstream.ErrFormat, xxx()},
		"gzip cut short":        {[][]byte{packed[:len(packed)/2]}, tarstream.ErrFormat, nil},
		"gzip without its sum":  {[][]byte{packed[:len(packed)-8]}, tarstream.ErrFormat, nil},
		"gzip with another sum": {[][]byte{flipped(len(packed) - 6)}, tarstream.ErrFormat, nil},
		"gzip with other bits":  {[][]byte{flipped(len(packed) / 2)}, tarstream.ErrFormat, nil},
		"gzip in gzip":          {[][]byte{gzipped(gzipped(file("a")))}, tarstream.ErrFormat, xxx()},
		"members of gzip":       {[][]byte{gzipped(file("a")), gzipped(nil), gzipped(file("b")), gzipped(end)}, nil, xxx("a", "b")},
		"garbage after gzip":    {[][]byte{gzipped(file("a")), []byte("garbage")}, tarstream.ErrFormat, nil},
		"bomb in gzip":          {[][]byte{gzipped(raw('0', "a", 1<<24, strings.Repeat("\x00", 1<<24)))}, tarstream.ErrTooLarge, xxx()},
		"bomb after the end":    {[][]byte{gzipped(append(file("a"), make([]byte, 1<<24)...))}, tarstream.ErrFormat, xxx("a")},
		"many files in gzip":    {[][]byte{gzipped(times(20_000, raw('0', "d/f", 0, "")))}, tarstream.ErrTooLarge, nil},
	}
}

func TestHostileArchivesAreRefusedOrHarmless(t *testing.T) {
	t.Parallel()
	for name, test := range hostile() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			err := s.unpack(t, bytes.Join(test.entries, nil), tarstream.Limits{Bytes: 100, Entries: 4})
			if (err == nil) != (test.err == nil) || !errors.Is(err, test.err) {
				t.Errorf("error %v, want %v", err, test.err)
			}
			if test.want != nil {
				if diff := cmp.Diff(test.want, tree(t, s.root)); diff != "" {
					t.Error(diff)
				}
			}
		})
	}
}

func TestImpossibleArchivesAreRefusedWithoutLimits(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]error{"huge extended size": tarstream.ErrFormat, "headers for ever": tarstream.ErrTooLarge, "dotdot": tarstream.ErrUnsafe} {
		if err := newSite(t).unpack(t, bytes.Join(hostile()[name].entries, nil), tarstream.Limits{}); !errors.Is(err, want) {
			t.Errorf("%s: error %v, want %v", name, err, want)
		}
	}
}

func TestModesTimesAndAttributesAreHarmless(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	data := bytes.Join([][]byte{
		raw('0', "su", 0, "", mode("0006755")), raw('5', "d", 0, "", mode("0007555")), raw('0', "closed", 0, "", mode("0000000")),
		pax('x', "mtime=9223372036854775807", "SCHILY.xattr.user.evil=1"), raw('0', "late", 0, ""),
	}, nil)
	must(t, s.unpack(t, data, tarstream.Limits{}))
	for name, want := range map[string]fs.FileMode{"su": 0o755, "d": fs.ModeDir | 0o755, "closed": 0o400} {
		info, err := os.Stat(filepath.Join(s.root, name))
		must(t, err)
		if info.Mode() != want {
			t.Errorf("%s has mode %v, want %v", name, info.Mode(), want)
		}
	}
	late := filepath.Join(s.root, "late")
	info, err := os.Stat(late)
	must(t, err)
	if age := time.Since(info.ModTime()); age < -time.Hour || age > time.Hour {
		t.Errorf("its time is %v", info.ModTime())
	}
	if n, err := syscall.Getxattr(late, "user.evil", nil); err == nil {
		t.Errorf("an attribute of %d bytes", n)
	}
}

// If another process exchanges a directory for a link while an archive is written into it,
// nothing is written outside of the root.
func TestExchangedDirectoryLeadsNowhere(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	must(t, os.Mkdir(filepath.Join(s.root, "d"), 0o755))
	must(t, os.Symlink("../neighbour", filepath.Join(s.root, "l")))
	reading, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		at := func(name string) string { return filepath.Join(s.root, name) }
		for {
			select {
			case <-reading:
				return
			default:
				_ = errors.Join(os.Rename(at("d"), at("away")), os.Rename(at("l"), at("d")), os.Rename(at("d"), at("l")), os.Rename(at("away"), at("d")))
			}
		}
	}()
	var data []byte
	for i := range 300 { // "e" between, so that "d" is entered again each time
		data = append(data, raw('0', fmt.Sprintf("d/%d", i), 3, "xxx")...)
		data = append(data, file("e/f")...)
	}
	_, _ = tarstream.Unpack(t.Context(), bytes.NewReader(data), openRoot(t, s.root), tarstream.Limits{})
	close(reading)
	<-done
	if diff := cmp.Diff(s.before, s.outside(t)); diff != "" {
		t.Errorf("outside of the root (-before +after):\n%s", diff)
	}
}

func TestDeepTreesArePackedAndUnpackedWithFewOpenDirectories(t *testing.T) {
	t.Parallel()
	const deep, most = 300, 80
	s, again := newSite(t), newSite(t)
	var data []byte
	for i := 0; i < deep; i += 50 {
		data = append(data, pax('x', fmt.Sprintf("path=%sf", strings.Repeat("d/", deep-i)))...)
		data = append(data, file("")...)
	}
	few := func() {
		if n := openBelow(t, s.root) + openBelow(t, again.root); n > most {
			t.Errorf("%d files are open", n)
		}
	}
	watch := tarstream.Watch{Entry: func(string, *tar.Header) { few() }}
	_, err := tarstream.UnpackWatched(t.Context(), bytes.NewReader(data), openRoot(t, s.root), tarstream.Limits{}, watch)
	must(t, err)
	packed := pack(t, s.root, tarstream.PackOptions{Exclude: func(string, fs.DirEntry) bool { few(); return false }})
	must(t, again.unpack(t, packed, tarstream.Limits{}))
	if got := tree(t, again.root); len(got) != deep+6 || got[strings.Repeat("d/", deep)+"f"] != "xxx" {
		t.Errorf("%d entries", len(got))
	}
}

// openBelow counts this process's open files below a directory.
func openBelow(t *testing.T, dir string) (n int) {
	t.Helper()
	const open = "/proc/self/fd"
	entries, err := os.ReadDir(open)
	must(t, err)
	for _, e := range entries {
		if to, err := os.Readlink(filepath.Join(open, e.Name())); err == nil && strings.HasPrefix(to, dir) {
			n++
		}
	}
	return n
}
