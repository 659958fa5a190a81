package pages

import (
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"math"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
)

// assetSizes returns the compressed size of each static file but the list of third parties.
func assetSizes(t *testing.T) map[string]int {
	t.Helper()
	sizes := map[string]int{}
	if err := (files{}).each(func(name string, _ []byte) error {
		if path.Base(name) == "third-party.txt" || path.Base(name) == "license.txt" {
			return nil
		}
		r := httptest.NewRequest(http.MethodGet, "/"+name, nil)
		r.Header.Set("Accept-Encoding", "gzip")
		w := httptest.NewRecorder()
		compressing()(http.HandlerFunc(newDigests().serve)).ServeHTTP(w, r)
		sizes[strings.TrimPrefix(name, "static/")] = w.Body.Len()
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return sizes
}

// Files of other projects are those of which third-party.txt tells the origin and the digest.
func TestFilesOfOthersAreThoseThatAreNamed(t *testing.T) {
	t.Parallel()
	list, err := fs.ReadFile(files{}, "static/third-party.txt")
	if err != nil {
		t.Fatal(err)
	}
	ofKaTeX, err := fs.ReadFile(files{}, "static/katex/third-party.txt")
	if err != nil {
		t.Fatal(err)
	}
	own := map[string]bool{"editor.js": true, "icon.svg": true, "pages.js": true, "style.css": true, "curves.js": true, "math.js": true}
	for name := range assetSizes(t) {
		data, err := fs.ReadFile(files{}, "static/"+name)
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(data)
		in, short := list, name
		if below, ok := strings.CutPrefix(name, "katex/"); ok {
			in, short = ofKaTeX, below
		}
		_, entry, named := strings.Cut(string(in), "\n\n"+short+"\n")
		entry, _, _ = strings.Cut(entry, "\n\n")
		if named == own[name] || named && !strings.Contains(entry, "sha256 "+hex.EncodeToString(sum[:])) {
			t.Errorf("%s has the digest %x; third-party.txt says %q", name, sum, entry)
		}
	}
}

// A page has at most 150 kB without its contents, also one with curves, and one with formulas and the fonts of most of them. The
// scripts of the editor and of streams are on other pages.
func TestPagesAreSmall(t *testing.T) {
	t.Parallel()
	const most = 150_000
	sizes := assetSizes(t)
	total := 0
	for name, size := range sizes {
		if !strings.HasPrefix(name, "katex/fonts/") && !strings.HasPrefix(name, "uplot.") && name != "curves.js" && name != "editor.js" && name != "sse.js" {
			total += size
		}
	}
	for _, font := range []string{"Main-Regular", "Math-Italic"} {
		total += sizes["katex/fonts/KaTeX_"+font+".woff2"]
	}
	if curves := sizes["uplot.min.js"] + sizes["uplot.min.css"] + sizes["curves.js"]; total > most || curves > 40_000 {
		t.Errorf("a page with formulas loads %d bytes, and one with curves %d more", total, curves)
	}
}

func TestGraphFitsItsPicture(t *testing.T) {
	t.Parallel()
	points := func(lines ...string) client.Trajectory {
		t := client.Trajectory{Name: "a"}
		for _, line := range lines {
			t.Points = append(t.Points, strings.Split(line, "\t"))
		}
		return t
	}
	for name, test := range map[string]struct {
		of   []client.Trajectory
		want string
	}{
		"nothing":              {nil, ""},
		"one point":            {[]client.Trajectory{points("1\t2")}, ""},
		"a line":               {[]client.Trajectory{points("0\t1", "10\t2")}, "0.0,240.0 640.0,0.0 "},
		"one column":           {[]client.Trajectory{points("1", "2")}, "0.0,240.0 640.0,0.0 "},
		"no numbers between":   {[]client.Trajectory{points("0\t1", "x\ty", "5\tNaN", "6\tInf", "10\t2")}, "0.0,240.0 640.0,0.0 "},
		"flat":                 {[]client.Trajectory{points("0\t1", "1\t1")}, "0.0,120.0 640.0,120.0 "},
		"bounds of all floats": {[]client.Trajectory{points("0\t-1.7e308", "1\t1.7e308")}, "0.0,240.0 640.0,0.0 "},
		"without a file":       {[]client.Trajectory{{Name: "a"}}, ""},
	} {
		got := ""
		if g := newGraph(test.of); g != nil {
			got = g.Curves[0].Points
		}
		if got != test.want {
			t.Errorf("%s: %q instead of %q", name, got, test.want)
		}
	}
	many := make([]client.Trajectory, mostCurves+3)
	for i := range many {
		many[i] = points("0\t1", "1\t2")
	}
	if g := newGraph(many); len(g.Curves) != mostCurves || g.Left != 3 {
		t.Errorf("%d curves, and %d are left", len(g.Curves), g.Left)
	}
	if s := share(1, math.NaN(), 2); s != 0.5 {
		t.Errorf("a share of NaN is %v", s)
	}
}

func TestSentenceAboutAState(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		b    codalab.Bundle
		want string
	}{
		"failed":  {codalab.Bundle{State: codalab.StateFailed, Metadata: codalab.Metadata{"failure_message": "Exit code 1", "run_status": "Finished"}}, "Exit code 1"},
		"ready":   {codalab.Bundle{State: codalab.StateReady, StateDetails: "x", Metadata: codalab.Metadata{"run_status": "Finished"}}, ""},
		"staged":  {codalab.Bundle{State: codalab.StateStaged, StateDetails: "No worker has room."}, "No worker has room."},
		"running": {codalab.Bundle{State: codalab.StateRunning, Metadata: codalab.Metadata{"run_status": "Running job"}}, "Running job"},
	} {
		if got := why(test.b); got != test.want {
			t.Errorf("%s: %q instead of %q", name, got, test.want)
		}
	}
}
