package browsertest

import (
	"bytes"
	"image"
	"image/color"
	"image/png"
	"strings"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// gallery is a worksheet with an example of all that pages show.
type gallery struct {
	worksheet, data, secret, failed, waiting, sweep string
}

// newGallery makes one of ann, without a worker.
func newGallery(s *site) *gallery {
	s.t.Helper()
	const user = "ann"
	g := &gallery{worksheet: s.home(user)}
	s.write("results/scores.csv", "rate,accuracy\n0.1,0.87\n0.01,0.91\n0.001,0.78\n")
	s.write("results/log.txt", "epoch 1\n"+strings.Repeat("a long line of a log ", 40)+"\n")
	s.write("results/log.jsonl", `{"step": 1, "loss": 0.9}`+"\n"+`{"step": 2, "loss": 0.5}`+"\n")
	s.write("results/accuracy.tsv", "0\t0.5\n1\t0.7\n2\t0.85\n3\t0.91\n")
	s.write("results/analysis.ipynb", notebook)
	s.write("results/stats.yaml", "accuracy: 0.91\nseed: 7\n")
	s.write("results/deep/er/file", "x")
	s.write("results/curve.png", picture(s))
	g.data = s.cl(user, "upload", "results")
	g.secret = s.cl(user, "upload", s.write("secret", "nobody else reads this\n"))
	g.waiting = s.cl(user, "run", "data:results", "python train.py --learning-rate 0.01 --with-a-very-long-name-of-an-option-that-goes-on "+strings.Repeat("--more ", 30), "-n", "a-run-with-a-rather-long-name-as-people-give-them-0123456789")
	g.failed = s.cl(user, "run", "false", "-n", "fails")
	s.cl(user, "run", "--each", "lr=0.1,0.01", "--each", "seed=1..2", "python train.py --learning-rate {lr} --seed {seed}", "-n", "train", "--sweep", "rates")
	g.sweep = s.worksheet("rates")
	results := "[dataset results]{" + g.data + "}"
	s.cl(user, "wedit", g.worksheet, "--file", s.write("worksheet.txt", strings.Join([]string{
		"# Learning rates", "A text with `code`, *emphasis* and a [link](https://example.org/).", "",
		"% schema s", "% add name", "% add accuracy /stats.yaml:accuracy", "% add seed /stats.yaml:seed", "% display table s", results, "",
		"% display image /curve.png", results, "", "% display contents /log.txt", results, "", "% display record s", results, "",
		"% display graph /accuracy.tsv", results, "", "## All runs", "% search .mine type=run", "",
	}, "\n")))
	return g
}

// pages are the addresses of one page of each kind.
func (g *gallery) pages() []string {
	return []string{
		"/runs", "/runs?q=.mine", "/runs?q=.mine&choose=1", "/runs?q=tag%3Dx", "/bundles/" + g.data, "/bundles/" + g.waiting, "/bundles/" + g.data + "/files/", "/bundles/" + g.data + "/files/scores.csv", "/bundles/" + g.data + "/files/log.jsonl",
		"/bundles/" + g.data + "/files/analysis.ipynb", "/sweeps", "/sweeps/" + g.sweep, "/runs/new", "/runs/new?like=" + g.waiting,
		"/bundles/" + g.data + "/files/log.txt", "/bundles/" + g.data + "/files/curve.png", "/worksheets", "/worksheets/" + g.worksheet, "/worksheets/" + g.worksheet + "/edit",
		"/worksheets/" + g.worksheet + "/settings", "/queues", "/bundles/0x" + strings.Repeat("0", 32),
	}
}

// notebook has a text, and a cell with its output.
const notebook = `{"cells": [{"cell_type": "markdown", "metadata": {}, "source": ["## A *first* look\n"]},
	{"cell_type": "code", "execution_count": 4, "metadata": {}, "source": ["print(6 * 7)"], "outputs": [{"output_type": "stream", "name": "stdout", "text": ["42\n"]}]}],
	"metadata": {"kernelspec": {"language": "python", "name": "python3", "display_name": "Python 3"}}, "nbformat": 4, "nbformat_minor": 5}`

// picture is a PNG.
func picture(s *site) string {
	s.t.Helper()
	img := image.NewGray(image.Rect(0, 0, 320, 120))
	for x := range 320 {
		for y := range 120 {
			img.SetGray(x, y, color.Gray{Y: uint8((x * y) % 251)})
		}
	}
	var out bytes.Buffer
	testenv.Must(s.t, png.Encode(&out, img))
	return out.String()
}
