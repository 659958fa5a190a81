package pages

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
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

func trajectory(lines ...string) client.Trajectory {
	t := client.Trajectory{UUID: "0x00000000000000000000000000000001", Name: "a", Path: "/acc.tsv"}
	for _, line := range lines {
		t.Points = append(t.Points, strings.Split(line, "\t"))
	}
	return t
}

func TestGraphFitsItsPicture(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		of   []client.Trajectory
		want string
	}{
		"nothing":              {nil, ""},
		"one point":            {[]client.Trajectory{trajectory("1\t2")}, ""},
		"a line":               {[]client.Trajectory{trajectory("0\t1", "10\t2")}, "0.0,240.0 640.0,0.0 "},
		"one column":           {[]client.Trajectory{trajectory("1", "2")}, "0.0,240.0 640.0,0.0 "},
		"no numbers between":   {[]client.Trajectory{trajectory("0\t1", "x\ty", "5\tNaN", "6\tInf", "10\t2")}, "0.0,240.0 640.0,0.0 "},
		"flat":                 {[]client.Trajectory{trajectory("0\t1", "1\t1")}, "0.0,120.0 640.0,120.0 "},
		"between round bounds": {[]client.Trajectory{trajectory("0\t0.5", "9\t9.5")}, "0.0,228.0 576.0,12.0 "},
		"bounds of all floats": {[]client.Trajectory{trajectory("0\t-1.7e308", "1\t1.7e308")}, "0.0,240.0 640.0,0.0 "},
		"without a file":       {[]client.Trajectory{{Name: "a"}}, ""},
	} {
		got := ""
		if g := newGraph(client.Block{Trajectories: test.of}); len(g.Curves) > 0 {
			got = g.Curves[0].Points
		}
		if got != test.want {
			t.Errorf("%s: %q instead of %q", name, got, test.want)
		}
	}
	many := make([]client.Trajectory, mostCurves+3)
	for i := range many {
		many[i] = trajectory("0\t1", "1\t2")
	}
	if g := newGraph(client.Block{Trajectories: many}); len(g.Curves) != mostCurves || g.Left != 3 || len(g.XTicks) < 2 || len(g.XTicks) > 4 {
		t.Errorf("%d curves, and %d are left; %v", len(g.Curves), g.Left, g.XTicks)
	}
	if g := newGraph(client.Block{Trajectories: make([]client.Trajectory, mostCurves+3)}); len(g.Empty) != mostCurves || g.EmptyLeft != 3 {
		t.Errorf("%d files are empty, and %d are left", len(g.Empty), g.EmptyLeft)
	}
	if s := share(1, math.NaN(), 2); s != 0.5 {
		t.Errorf("a share of NaN is %v", s)
	}
}

// A block of a worksheet leaves a trace, and a way to its file, also if there is nothing in it to show.
func TestBlocksShowWhatThereIs(t *testing.T) {
	t.Parallel()
	p := New(Config{})
	const uuid = "0x00000000000000000000000000000001"
	file := func(b client.Block) client.Block {
		b.Path = "/a.txt"
		b.BundlesSpec.Bundles = []client.BlockBundle{{UUID: uuid}}
		return b
	}
	link := `<a href="/bundles/` + uuid + `/files/a.txt">/a.txt</a>`
	graphLink := `<a href="/bundles/` + uuid + `/files/acc.tsv"><bdi>a /acc.tsv</bdi></a>`
	for name, test := range map[string]struct {
		b    client.Block
		want []string
	}{
		"graph": {client.Block{Mode: "graph_block", XLabel: "epoch", YLabel: "loss <x>", Trajectories: []client.Trajectory{trajectory("0\t0.1", "10\t0.9")}}, []string{
			"<p>loss &lt;x&gt;</p>", `<p class="x">epoch</p>`, `aria-label="Curves of loss &lt;x&gt; over epoch, from 0 to 10, of values from 0.1 to 0.9"`,
			`<text x="0%" y="100%" dy="18" text-anchor="start">0</text>`, `text-anchor="end">10</text>`, `y="0%" text-anchor="end" dominant-baseline="middle">1</text>`, `points="0.0,216.0 640.0,24.0 "`,
		}},
		"graph of nothing":         {client.Block{Mode: "graph_block", Trajectories: []client.Trajectory{trajectory("a\tb")}}, []string{graphLink + " (it has fewer than two lines with numbers)."}},
		"graph of no file":         {client.Block{Mode: "graph_block", Trajectories: []client.Trajectory{trajectory()}}, []string{graphLink + " (no such file, or an empty one)."}},
		"contents of nothing":      {file(client.Block{Mode: "contents_block", Lines: []string{}}), []string{"(no lines to show)", link}},
		"contents of no file":      {file(client.Block{Mode: "contents_block"}), []string{"(no such file)", link}},
		"contents with colours":    {file(client.Block{Mode: "contents_block", Lines: []string{"\x1b[32mgreen\x1b[0m\n"}}), []string{">green</pre>", link}},
		"an image":                 {file(client.Block{Mode: "image_block"}), []string{"<img ", link}},
		"an image that is missing": {file(client.Block{Mode: "image_block", Status: client.BlockStatus{Code: "not_found"}}), []string{"(no such file)</pre>", link}},
	} {
		got, err := p.part("worksheet", "blocks", []block{newBlock(test.b, p.markup.Page())})
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range test.want {
			if !strings.Contains(got, text) {
				t.Errorf("%s does not show %q:\n%s", name, text, got)
			}
		}
	}
}

func TestSentenceAboutAState(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		b    codalab.Bundle
		want string
	}{
		"failed": {codalab.Bundle{State: codalab.StateFailed, Metadata: codalab.Metadata{"failure_message": "Exit code 1", "run_status": "Finished"}}, "Exit code 1"},
		"ready":  {codalab.Bundle{State: codalab.StateReady, StateDetails: "x", Metadata: codalab.Metadata{"run_status": "Finished"}}, ""},
		"staged": {codalab.Bundle{State: codalab.StateStaged, StateDetails: "No worker has room."}, "No worker has room."},
		"over":   {codalab.Bundle{State: codalab.StateFailed, StateDetails: "Bundle has failed."}, ""},
		"waits": {codalab.Bundle{State: codalab.StateCreated, Type: codalab.TypeRun, StateDetails: "x", Dependencies: []codalab.Dependency{
			{ParentName: "live", ParentUUID: "0x1", ParentState: codalab.StateRunning}, {ParentName: "data", ParentUUID: "0x2", ParentState: codalab.StateReady},
		}}, "Waiting for its inputs: live(0x1), which is running."},
		"running": {codalab.Bundle{State: codalab.StateRunning, Metadata: codalab.Metadata{"run_status": "Running job"}}, "Running job"},
	} {
		if got := why(test.b); got != test.want {
			t.Errorf("%s: %q instead of %q", name, got, test.want)
		}
	}
}

// Values of all kinds are read by people: texts of a list as words, and JSON as it is written by hand.
func TestCellsAreForPeople(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{
		`["<script>","b c"]`: "<script> b c", `["Forbidden"]`: "Forbidden", `[]`: "", `[1,"a"]`: `[1,"a"]`,
		`{"a":"<b>&"}`: `{"a":"<b>&"}`, `1.0`: "1.0", `"x"`: "x", `null`: "", `true`: "true",
	} {
		decoded, err := codalab.DecodeExact([]byte(value))
		if err != nil {
			t.Fatal(err)
		}
		if got := cellText(decoded); got != want {
			t.Errorf("%s: %q instead of %q", value, got, want)
		}
	}
}

func TestLineOfAFile(t *testing.T) {
	t.Parallel()
	b := bundlePage{row: row{BundleInfo: client.BundleInfo{Bundle: codalab.Bundle{UUID: "0x1"}}}}
	for path, want := range map[string]string{"": "cl cat 0x1", "sub/a b": "cl cat '0x1/sub/a b'", "caf\xe9": ""} {
		b.File, b.Files = &file{Path: path}, nil
		asFile := b.CL()
		b.File, b.Files = nil, &directory{Path: path}
		if got := b.CL(); got != want || asFile != want {
			t.Errorf("%q: %q and %q instead of %q", path, asFile, got, want)
		}
	}
}

// A form offers what the server does in this state.
func TestActionsFitTheState(t *testing.T) {
	t.Parallel()
	frozen := "2026-01-01T00:00:00.000000"
	for name, test := range map[string]struct {
		b    codalab.Bundle
		want string
	}{
		"staged":  {codalab.Bundle{State: codalab.StateStaged, Permission: codalab.PermissionAll}, "true true"},
		"running": {codalab.Bundle{State: codalab.StateRunning, Permission: codalab.PermissionAll}, "true false"},
		"offline": {codalab.Bundle{State: codalab.StateWorkerOffline, Permission: codalab.PermissionAll}, "true true"},
		"ready":   {codalab.Bundle{State: codalab.StateReady, Permission: codalab.PermissionAll}, "false true"},
		"frozen":  {codalab.Bundle{State: codalab.StateReady, Permission: codalab.PermissionAll, Frozen: &frozen}, "false false"},
		"others'": {codalab.Bundle{State: codalab.StateRunning, Permission: codalab.PermissionRead}, "false false"},
	} {
		p := bundlePage{row: row{BundleInfo: client.BundleInfo{Bundle: test.b}}}
		if got := fmt.Sprint(p.Killable(), p.Removable()); got != test.want {
			t.Errorf("%s: kill and remove are %s instead of %s", name, got, test.want)
		}
	}
}

// The time of a sign-in has the form of all times.
func TestTimesHaveTheirZone(t *testing.T) {
	t.Parallel()
	at := "Sun Nov  9 22:21:49 2026"
	for want, p := range map[string]person{
		"never":                   {codalab.User{Account: &codalab.Account{}}},
		"2026-11-09 22:21:49 UTC": {codalab.User{Account: &codalab.Account{LastLogin: &at}}},
	} {
		if got := p.Signed(); got != want {
			t.Errorf("%q instead of %q", got, want)
		}
	}
}
