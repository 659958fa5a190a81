package browsertest

import (
	"bytes"
	"cmp"
	"flag"
	"image"
	"image/color"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

var screenshots = flag.String("screenshots", "", "make the pictures of the documentation in `directory`")

// TestScreenshots makes the documentation's pictures (make screenshots).
func TestScreenshots(t *testing.T) {
	t.Parallel()
	if *screenshots == "" {
		t.Skip("makes no pictures without -screenshots")
	}
	s := newSite(t, "ann")
	s.startWorker()
	w := newShowroom(s)
	for name, page := range map[string]struct {
		path string
		on   screen
		sees string
	}{
		"runs":            {"/runs", desk, "running"},
		"runs-phone-dark": {"/runs", phone.inTheDark(), "running"},
		"bundle":          {"/bundles/" + w.running, desk, "epoch 12"},
		"worksheet":       {"/worksheets/" + w.worksheet, desk, "0.91"},
		"worksheet-phone": {"/worksheets/" + w.worksheet, phone, "0.91"},
	} {
		p := s.visit(page.on)
		p.signIn("ann")
		p.goTo(page.path)
		p.sees(page.sees)
		var shot []byte
		p.do(chromedp.CaptureScreenshot(&shot))
		testenv.Must(t, os.WriteFile(filepath.Join(*screenshots, name+".png"), small(t, shot), 0o644))
	}
}

// showroom has what the pictures show.
type showroom struct{ worksheet, running, done string }

func newShowroom(s *site) showroom {
	s.t.Helper()
	const user = "ann"
	w := showroom{worksheet: s.home(user)}
	s.write("digits/train.csv", "pixel,label\n0,7\n")
	s.write("train.py", "print('see the paper')\n")
	digits := s.cl(user, "upload", "digits")
	train := func(rate, seed, then string) string {
		return s.cl(user, "run", ":digits", "lr="+rate+" seed="+seed+"; echo training with lr $lr; "+then, "-n", "train-lr-"+rate, "--tags", "sweep")
	}
	const learn = `for i in 1 2 3 4 5 6 7 8 9 10 11 12; do echo "epoch $i: loss 0.$((90 - 6 * i)), accuracy 0.$((40 + 4 * i))"; done`
	const save = `; printf 'epoch,loss,accuracy\n1,0.84,0.44\n12,0.18,0.91\n' > scores.csv; printf '1\t0.44\n3\t0.61\n5\t0.74\n8\t0.85\n12\t0.91\n' > curve.tsv; `
	w.done = train("0.1", "7", learn+save+"echo 'accuracy: 0.91' > stats.yaml; echo saved")
	second := train("0.01", "7", learn+save+"echo 'accuracy: 0.88' > stats.yaml")
	s.cl(user, "wait", w.done, second)
	s.cl(user, "run", "echo reading; echo 'IndexError: label 10 of 10' >&2; exit 1", "-n", "train-all-labels")
	w.running = train("0.001", "7", learn+"; sleep 3600")
	s.cl(user, "run", "sleep 3600", "-n", "tune-batch-size", "--request-gpus", "8")
	lines := []string{
		"Which **learning rate** is best? Each run reads [the data](/bundles/" + digits + "), and writes `scores.csv`.", "",
		"% schema runs", "% add name", "% add accuracy /stats.yaml:accuracy", "% add time time duration", "% add state", "% display table runs",
	}
	for _, uuid := range []string{w.done, second, w.running} {
		lines = append(lines, "[run]{"+uuid+"}")
	}
	lines = append(lines, "", "## Accuracy by epoch", "% display graph /curve.tsv", "[run]{"+w.done+"}", "", "% display contents /scores.csv", "[run]{"+w.done+"}", "")
	text := ""
	for _, line := range lines {
		text += line + "\n"
	}
	s.cl(user, "wedit", w.worksheet, "-n", "digits", "-t", "Digits: learning rates")
	s.cl(user, "wedit", w.worksheet, "--file", s.write("lines", text))
	return w
}

// small returns a picture with its 256 most frequent colours, which text on a page hardly exceeds.
func small(t *testing.T, shot []byte) []byte {
	t.Helper()
	full, err := png.Decode(bytes.NewReader(shot))
	testenv.Must(t, err)
	count := map[color.Color]int{}
	b := full.Bounds()
	for y := b.Min.Y; y < b.Max.Y; y++ {
		for x := b.Min.X; x < b.Max.X; x++ {
			count[full.At(x, y)]++
		}
	}
	colors := slices.SortedFunc(maps.Keys(count), func(a, b color.Color) int { return cmp.Compare(count[b], count[a]) })
	paletted := image.NewPaletted(b, colors[:min(256, len(colors))])
	nearest := map[color.Color]uint8{}
	for c := range count {
		nearest[c] = uint8(paletted.Palette.Index(c))
	}
	for y := b.Min.Y; y < b.Max.Y; y++ {
		for x := b.Min.X; x < b.Max.X; x++ {
			paletted.SetColorIndex(x, y, nearest[full.At(x, y)])
		}
	}
	var out bytes.Buffer
	testenv.Must(t, (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, paletted))
	return out.Bytes()
}
