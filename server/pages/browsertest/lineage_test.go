package browsertest

import "testing"

// The graph of a bundle leads to its inputs, and to what came of it, by the mouse and by the keyboard.
func TestGraphLeadsToInputsAndUses(t *testing.T) {
	t.Parallel()
	s := newSite(t, "ann")
	data := s.cl("ann", "upload", s.write("numbers.csv", "1,2\n"))
	code := s.cl("ann", "upload", s.write("a-program-with-a-rather-long-name.py", "pass\n"))
	train := s.cl("ann", "run", "train.py:"+code, "data:"+data, "python train.py", "-n", "train")
	s.cl("ann", "run", "model:"+train, "data:"+data, "python eval.py", "-n", "evaluate")
	plot := s.cl("ann", "run", "model:"+train, "python plot.py", "-n", "plot")
	s.cl("ann", "run", "picture:"+plot, "python paper.py", "-n", "paper")
	p := s.visit(desk)
	p.signIn("ann")
	p.goTo("/bundles/" + train)
	p.sees("Inputs and what came of it", "numbers.csv", "evaluate", "paper")
	p.walks("/bundles/" + train)
	p.click(`.lineage a[href="/bundles/` + plot + `"]`)
	p.sees("A run of ann", "python plot.py")
	p.click(`.lineage a[href="/bundles/` + train + `"]`)
	p.sees("python train.py")
	p.clicks("The same as a list")
	p.sees("What has it as an input")
	p.click(`details a[href="/bundles/` + data + `"]`)
	p.sees("A dataset of ann")
	small := s.visit(phone.inTheDark())
	small.signIn("ann")
	small.goTo("/bundles/" + train)
	small.sees("evaluate")
	if wide := evaluate[int](small, `document.documentElement.scrollWidth`); wide > phone.width {
		t.Errorf("the page is %d wide", wide)
	}
}
