package browsertest

import (
	"archive/zip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// TestArchivesPageOpensFromTheDisk: formulas are shown, and nothing on the page is forbidden by its policy. Without scripts
// formulas are as they are written.
func TestArchivesPageOpensFromTheDisk(t *testing.T) {
	t.Parallel()
	s := newSite(t, "ann")
	data := s.cl("ann", "upload", s.write("numbers.csv", "1,2\n"))
	s.cl("ann", "run", "data:"+data, "python train.py", "-n", "train", "--request-queue", "none")
	s.cl("ann", "add", "text", `Let $x \in \mathbb{R}^2$, $\mathcal{L}$ and $$\frac{\mathbf{x}1}{\boldsymbol{\theta}}$$ but $\nosuch{x}$.`)
	s.cl("ann", "add", "text", `<img src=x onerror="document.title = 1"><script>document.title = 1</script>`)
	s.cl("ann", "export", "--no-contents", "-o", "paper.zip", s.home("ann"))
	dir := filepath.Join(s.dir, "paper")
	packed, err := zip.OpenReader(filepath.Join(s.dir, "paper.zip"))
	testenv.Must(t, err)
	testenv.Must(t, os.CopyFS(dir, packed))
	testenv.Must(t, packed.Close())
	address := chromedp.Navigate("file://" + filepath.Join(dir, "index.html"))

	p := s.visit(phone)
	p.do(address)
	p.sees("ℒ")
	if got := evaluate[int](p, `document.querySelectorAll(".math > .katex > math").length`); got != 3 {
		t.Errorf("%d formulas are shown", got)
	}
	text := p.shown()
	for _, want := range []string{"ℝ", "𝐱", `$\nosuch{x}$`} {
		if !strings.Contains(text, want) {
			t.Errorf("the page does not show %s:\n%s", want, text)
		}
	}
	if wide := evaluate[int](p, `document.documentElement.scrollWidth`); wide > phone.width {
		t.Errorf("the page is %d wide", wide)
	}
	p.clicks("train")
	if at := evaluate[string](p, `location.hash`); !strings.HasPrefix(at, "#0x") {
		t.Errorf("the use of the data leads to %q", at)
	}
	plain := s.visit(desk)
	plain.withoutScripts()
	plain.do(address)
	plain.sees(`Let $x \in \mathbb{R}^2$, $\mathcal{L}$ and`)
}
