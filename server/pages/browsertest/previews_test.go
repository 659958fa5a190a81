package browsertest

import (
	"bytes"
	"image/png"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// A log of numbers is shown as curves and as a table, a notebook with its texts, and a table of values as one.
func TestFilesAreShownAsWhatTheyAre(t *testing.T) {
	t.Parallel()
	s := newSite(t, "ann")
	s.write("out/log.jsonl", `{"step": 1, "loss": 0.9}`+"\n"+`{"step": 2, "loss": 0.5}`+"\n"+`{"step": 3, "loss": 0.25}`+"\n")
	s.write("out/scores.csv", "rate,accuracy\n0.1,0.87\n")
	s.write("out/analysis.ipynb", notebook)
	s.write("out/train.py", "import math\n\ndef loss(x):\n    return math.sqrt(x)\n")
	s.write("out/hostile.html", "<script>document.title = 'taken'</script><h1>hello</h1>")
	uuid := s.cl("ann", "upload", "out")
	p := s.visit(desk)
	p.signIn("ann")
	p.goTo("/bundles/" + uuid + "/files/log.jsonl")
	p.sees("loss", "0.25", "0.9")
	p.await("a curve is drawn", func() bool {
		return evaluate[bool](p, `[...document.querySelectorAll("canvas")].some((c) => c.getContext("2d").getImageData(0, 0, c.width, c.height).data.some((v) => v > 0))`)
	})
	p.goTo("/bundles/" + uuid + "/files/scores.csv")
	p.sees("rate accuracy 0.1 0.87")
	p.goTo("/bundles/" + uuid + "/files/analysis.ipynb")
	p.sees("A first look", "print(6 * 7)", "42")
	if !evaluate[bool](p, `[...document.querySelectorAll("main em")].some((e) => e.innerText === "first")`) {
		t.Errorf("the notebook's text is not rendered: %s", p.shown())
	}
	p.goTo("/bundles/" + uuid + "/files/train.py")
	p.sees("return math.sqrt(x)")
	if !evaluate[bool](p, `document.querySelectorAll("pre span").length > 0`) {
		t.Errorf("the program has no colours: %s", p.shown())
	}
	p.goTo("/bundles/" + uuid + "/files/hostile.html")
	p.sees("<h1>hello</h1>")
	if title := evaluate[string](p, `document.title`); strings.Contains(title, "taken") {
		t.Errorf("a file of a bundle has run")
	}
}

// A PDF is drawn by the browser's own viewer, under a policy that lets no script run: one that is a page, too, runs nothing.
func TestPDFOpensInTheBrowsersViewer(t *testing.T) {
	t.Parallel()
	s := newSite(t, "ann")
	s.write("out/red.pdf", redPDF)
	s.write("out/page.pdf", "<!doctype html><script>document.title = 'taken'</script><h1>hello</h1>"+redPDF)
	uuid := s.cl("ann", "upload", "out")
	p := s.visit(desk)
	p.signIn("ann")
	p.goTo("/bundles/" + uuid + "/files/red.pdf")
	if !evaluate[bool](p, `[...document.links].some((a) => a.target === "_blank" && a.rel === "noopener" && a.pathname === "/bundles/`+uuid+`/pdf/red.pdf")`) {
		t.Errorf("the page has no link to the PDF: %s", p.shown())
	}
	for _, name := range []string{"red.pdf", "page.pdf"} {
		p.goTo("/bundles/" + uuid + "/pdf/" + name)
		p.await(name+" is drawn", func() bool { return p.redPixels() > 10_000 })
		if got := evaluate[string](p, `document.contentType + " " + document.title`); !strings.HasPrefix(got, "application/pdf ") || strings.Contains(got, "taken") {
			t.Errorf("%s is shown as %s", name, got)
		}
	}
}

// redPixels is the number of red pixels that the browser shows.
func (p *person) redPixels() (n int) {
	p.t.Helper()
	var data []byte
	p.do(chromedp.CaptureScreenshot(&data))
	shown, err := png.Decode(bytes.NewReader(data))
	testenv.Must(p.t, err)
	for y := range shown.Bounds().Dy() {
		for x := range shown.Bounds().Dx() {
			if r, g, b, _ := shown.At(x, y).RGBA(); r > 0xf000 && g < 0x1000 && b < 0x1000 {
				n++
			}
		}
	}
	return n
}

// redPDF is a page that is red. Viewers find its objects without a table of them.
const redPDF = `%PDF-1.4
1 0 obj <</Type /Catalog /Pages 2 0 R>> endobj
2 0 obj <</Type /Pages /Kids [3 0 R] /Count 1>> endobj
3 0 obj <</Type /Page /Parent 2 0 R /MediaBox [0 0 300 300] /Contents 4 0 R>> endobj
4 0 obj <</Length 24>> stream
1 0 0 rg 0 0 300 300 re f
endstream endobj
trailer <</Root 1 0 R>>
%%EOF
`
