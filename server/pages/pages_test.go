package pages

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
)

// Files of other projects are those of which third-party.txt tells the origin and the digest.
func TestFilesOfOthersAreThoseThatAreNamed(t *testing.T) {
	t.Parallel()
	list, err := staticFiles.ReadFile("static/third-party.txt")
	if err != nil {
		t.Fatal(err)
	}
	own := map[string]bool{"editor.js": true, "icon.svg": true, "pages.js": true, "style.css": true, "third-party.txt": true}
	files, err := staticFiles.ReadDir("static")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		data, err := staticFiles.ReadFile("static/" + f.Name())
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(data)
		_, entry, named := strings.Cut(string(list), "\n\n"+f.Name()+"\n")
		entry, _, _ = strings.Cut(entry, "\n\n")
		if named == own[f.Name()] || named && !strings.Contains(entry, "sha256 "+hex.EncodeToString(sum[:])) {
			t.Errorf("%s has the digest %x; third-party.txt says %q", f.Name(), sum, entry)
		}
	}
}

// A page has at most 150 kB without its contents.
func TestPagesAreSmall(t *testing.T) {
	t.Parallel()
	const most = 150_000
	total := 0
	files, err := staticFiles.ReadDir("static")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		info, err := f.Info()
		if err != nil {
			t.Fatal(err)
		}
		if f.Name() != "third-party.txt" {
			total += int(info.Size())
		}
	}
	if total > most {
		t.Errorf("a page loads %d bytes", total)
	}
}

func TestPreviewFitsTheFile(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 2*longestCell)
	for name, test := range map[string]struct {
		path, begin string
		size        int64
		want        string
	}{
		"text":                 {"a.txt", "a\nb", 3, "text [] 0 false"},
		"text goes on":         {"a.txt", "a\nb", 9, "text [] 0 true"},
		"cut in a character":   {"a.txt", "a\xe2\x82", 9, "text [] 0 true"},
		"no text":              {"a.txt", "a\xff", 2, "other [] 0 false"},
		"zero bytes":           {"a.txt", "a\x00", 2, "other [] 0 false"},
		"picture":              {"a.PNG", "\x89PNG", 4, "image [] 0 false"},
		"table":                {"a.csv", "a,b\n1,2\n3,4\n", 12, "table [a b] 2 false"},
		"table goes on":        {"a.csv", "a,b\n1,2\n3,4", 12, "table [a b] 1 true"},
		"tabs":                 {"a.tsv", "a\tb\n1\t2\n", 8, "table [a b] 1 false"},
		"no table":             {"a.csv", "a\n1\n", 4, "text [] 0 false"},
		"ragged":               {"a.csv", "a,b\n1\n1,2,3\n", 12, "table [a b] 2 false"},
		"many rows":            {"a.csv", "a,b\n" + strings.Repeat("1,2\n", 2*mostRows), 4 + 8*mostRows, fmt.Sprintf("table [a b] %d true", mostRows)},
		"a quote that is open": {"a.csv", "a,b\n\"1,2\n", 9, "table [a b] 1 false"},
		"a long cell":          {"a.csv", "a,b\n1," + long + "\n", int64(7 + len(long)), "table [a b] 1 false"},
	} {
		f := preview(test.path, "", test.size, []byte(test.begin))
		if got := fmt.Sprint(f.Kind, " ", f.Header, " ", len(f.Rows), " ", f.Cut); got != test.want {
			t.Errorf("%s: %s instead of %s", name, got, test.want)
		}
		for _, cells := range f.Rows {
			for _, c := range cells {
				if len(c) > longestCell+len("…") {
					t.Errorf("%s: a cell has %d bytes", name, len(c))
				}
			}
		}
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

// Markup of users has no part of the page's own language.
func TestMarkupIsCleaned(t *testing.T) {
	t.Parallel()
	m := newMarkup()
	for text, want := range map[string]string{
		"*a*": "<p><em>a</em></p>\n", "<script>x</script>": "", "[a](javascript:x)": "<p>a</p>\n", "<b hx-get=/x id=main class=skip>a</b>": "<p><b>a</b></p>\n",
		"<img src=http://evil.example/x.png onerror=x>": "", "![x](/rest/account/logout)": "<p><img alt=\"x\"></p>\n", "<img src='/runs/events?q=a'>": "",
		"![x](/rest/bundles/0x00000000000000000000000000000001/contents/blob/a.png)": "<p><img src=\"/rest/bundles/0x00000000000000000000000000000001/contents/blob/a.png\" alt=\"x\"></p>\n",
		"<img src='/rest/bundles/0x00000000000000000000000000000001/netcurl/80/x'>":  "",
	} {
		if got := string(m.html(text)); got != want {
			t.Errorf("%q becomes %q instead of %q", text, got, want)
		}
	}
}
