package apptainer_test

import (
	"archive/tar"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/cl-slurm/cl-slurm/apptainer"
	"github.com/cl-slurm/cl-slurm/apptainer/imagetest"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// latest is the last second that a squashfs can hold, and lastOf32Bits the last one that tar2sqfs
// gives the root directory.
const latest, lastOf32Bits = "2106-02-07 06:28", "2038-01-19 03:14"

// Time stamps that a squashfs cannot hold become its nearest. No time stamp is that of the
// conversion, the root directory's included.
func TestConversionsAreByteIdenticalWithAnyTimeStamps(t *testing.T) {
	t.Parallel()
	testenv.Containers(t)
	day := func(year int) time.Time { return time.Date(year, 1, 2, 3, 4, 5, 0, time.UTC) }
	for name, tt := range map[string]struct {
		times []time.Time // of files
		image time.Time   // in the configuration
		want  []string    // of the files, as unsquashfs lists them
		root  string
	}{
		"past":                    {[]time.Time{day(2020)}, day(2021), []string{"2020-01-02 03:04"}, "2021-01-02 03:04"},
		"before 1970":             {[]time.Time{time.Unix(-1, 0), day(1754), day(1)}, day(2021), []string{"1970-01-01 00:00", "1970-01-01 00:00", "1970-01-01 00:00"}, "2021-01-02 03:04"},
		"fractions":               {[]time.Time{time.Unix(59, 999_999_999), time.Unix(-1, 500_000_000)}, day(2021), []string{"1970-01-01 00:00", "1970-01-01 00:00"}, "2021-01-02 03:04"},
		"a file of the future":    {[]time.Time{day(2020), day(2100)}, day(2021), []string{"2020-01-02 03:04", "2100-01-02 03:04"}, "2100-01-02 03:04"},
		"after 2106":              {[]time.Time{day(2020), day(2107), day(9999), time.Unix(1<<40, 0)}, day(2021), []string{"2020-01-02 03:04", latest, latest, latest}, latest},
		"an image of the future":  {[]time.Time{day(2020)}, day(2100), []string{"2020-01-02 03:04"}, "2100-01-02 03:04"},
		"an image of after 2106":  {[]time.Time{day(2020)}, day(9999), []string{"2020-01-02 03:04"}, latest},
		"an image of before 1970": {[]time.Time{time.Unix(0, 0)}, day(1754), []string{"1970-01-01 00:00"}, "1970-01-01 00:00"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var files []imagetest.File
			for i, when := range tt.times {
				files = append(files, with(imagetest.Regular(string(rune('a'+i)), "content"), func(h *tar.Header) { h.ModTime, h.Format = when, tar.FormatPAX }))
			}
			img := withConfig(t, imagetest.Image(t, v1.Config{}, imagetest.GzipLayer(t, imagetest.TarStream(t, files...))),
				func(c *v1.ConfigFile) { c.Created.Time, c.History = tt.image, nil })
			resolved := published(t, img)
			for program, c := range writers(t) {
				first, second := converted(t, c, resolved), converted(t, c, resolved)
				list := unsquash(t, first, "-lls", first)
				want := append([]string{tt.root + " squashfs-root"}, tt.want...)
				if program == "tar2sqfs" && tt.root > lastOf32Bits {
					want[0] = lastOf32Bits + " squashfs-root"
				}
				for i := range tt.want {
					want[i+1] += " squashfs-root/" + string(rune('a'+i))
				}
				got := regexp.MustCompile(`\d+-\d\d-\d\d \d\d:\d\d squashfs-root(/[a-d])?\n`).FindAllString(list+"\n", -1)
				if diff := cmp.Diff(strings.Join(want, "\n")+"\n", strings.Join(got, "")); diff != "" {
					t.Errorf("%s (-want +got):\n%s", program, diff)
				}
				a, err := os.ReadFile(first)
				must(t, err)
				if b, err := os.ReadFile(second); err != nil || string(a) != string(b) {
					t.Errorf("%s: two conversions differ: %v", program, err)
				}
			}
		})
	}
}

// writers returns a Converter for each program here that writes a file system.
func writers(t *testing.T) map[string]apptainer.Converter {
	t.Helper()
	testenv.ImageTool(t, "tar2sqfs")
	return map[string]apptainer.Converter{
		"mksquashfs": {}, "tar2sqfs": {Mksquashfs: "/nonexistent/mksquashfs"},
	}
}

// The root's inode may lie across two blocks of inodes.
func TestRootsTimeIsSetWhereverItsInodeLies(t *testing.T) {
	t.Parallel()
	testenv.Containers(t)
	const fifos = 374 // of 20 bytes each; with them all inodes together fill a block of 8 KiB
	files := []imagetest.File{with(imagetest.Regular("new", "content"), func(h *tar.Header) { h.ModTime = time.Unix(1<<32-1, 0) })}
	for i := range fifos {
		files = append(files, special(fmt.Sprintf("p%d", i), tar.TypeFifo, 0, 0))
	}
	for more := range 16 { // a link's target moves the inodes behind it byte by byte
		link := imagetest.Symlink("a", strings.Repeat("x", more+1))
		img := imagetest.Image(t, v1.Config{}, imagetest.GzipLayer(t, imagetest.TarStream(t, append([]imagetest.File{link}, files...)...)))
		sif := converted(t, apptainer.Converter{}, published(t, img))
		if list := unsquash(t, sif, "-lls", sif); !strings.Contains(list, latest+" squashfs-root\n") {
			t.Errorf("the root's time in\n%.300s", list)
		}
	}
}

// mksquashfs has this option since version 4.6. This machine's may be older.
func TestNewerMksquashfsIsToldTheRootsTime(t *testing.T) {
	t.Parallel()
	args := filepath.Join(t.TempDir(), "args")
	c := apptainer.Converter{Source: imagetest.Source(), Mksquashfs: toolThat(t, `echo " $* " >'`+args+`'; echo 'no more' >&2; exit 1`)}
	file := with(imagetest.Regular("new", "content"), func(h *tar.Header) { h.ModTime = time.Unix(1<<32-1, 0) })
	img := published(t, imagetest.Image(t, v1.Config{}, imagetest.GzipLayer(t, imagetest.TarStream(t, file))))
	failedConversion(t, c, img, false, "no more")
	got, err := os.ReadFile(args)
	if must(t, err); !strings.Contains(string(got), " -root-time ") || strings.Contains(string(got), " -noI ") {
		t.Errorf("it was called with%s", got)
	}
}
