package browsertest

import (
	"strings"
	"testing"
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
