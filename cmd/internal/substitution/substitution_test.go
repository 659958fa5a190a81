package substitution_test

import (
	"errors"
	"testing"

	"github.com/cl-slurm/cl-slurm/cmd/internal/substitution"
)

func TestOptionIsChangedHoweverItIsWritten(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ command, name, value, want string }{
		{"python train.py --lr 0.1", "lr", "0.3", "python train.py --lr 0.3"},
		{"python train.py --lr=0.1 -b 3", "lr", "0.3", "python train.py --lr=0.3 -b 3"},
		{"python train.py -lr 0.1", "lr", "0.3", "python train.py -lr 0.3"},
		{"python train.py lr=0.1 optim.lr=2", "lr", "0.3", "python train.py lr=0.3 optim.lr=2"},
		{"python train.py lr=0.1 optim.lr=2", "optim.lr", "5", "python train.py lr=0.1 optim.lr=5"},
		{"python train.py +lr=0.1", "lr", "0.3", "python train.py +lr=0.3"},
		{"lr=0.1 seed=2 ./train", "lr", "0.3", "lr=0.3 seed=2 ./train"},
		{"export lr=0.1; ./train", "lr", "0.3", "export lr=0.3; ./train"},
		{"cd src && ./train --lr 0.1 | tee log", "lr", "0.3", "cd src && ./train --lr 0.3 | tee log"},
		{"for s in 1 2; do ./train --lr 0.1 --seed $s; done", "lr", "0.3", "for s in 1 2; do ./train --lr 0.3 --seed $s; done"},
		{"x=$(./train --lr 0.1); echo $x", "lr", "0.3", "x=$(./train --lr 0.3); echo $x"},
		{`./train  --title "a b"  # --title old`, "title", "c d", `./train  --title 'c d'  # --title old`},
		{`./train "--title=a b"`, "title", "c", `./train "--title=c"`},
		{`./train --title="a b"`, "title", "it's", `./train --title="it's"`},
		{"./train --offset -0.5", "offset", "-1e-3", "./train --offset -1e-3"},
		{"./train --lr $LR", "lr", "0.3", "./train --lr 0.3"},
		{"./train --lr 0.1", "lr", "", "./train --lr ''"},
		{"./train --lr 0.1", "lr", "$HOME", "./train --lr '$HOME'"},
		{`sh -c './train --lr 0.1 --seed 2' && echo ok`, "lr", "0.3", `sh -c './train --lr 0.3 --seed 2' && echo ok`},
		{`sh -c "./train --lr 0.1 $x"`, "lr", "0.3", `sh -c "./train --lr 0.3 $x"`},
		{"bash -lc 'lr=0.1 ./train'", "lr", "0.3", "bash -lc 'lr=0.3 ./train'"},
		{"./train 'title=a b'", "title", "c", "./train 'title=c'"},
		{"./train --note 'with --lr 0.2' --lr 0.1", "lr", "0.3", "./train --note 'with --lr 0.2' --lr 0.3"},
		{"./train \\\n  --lr 0.1 \\\n  --seed 2", "lr", "0.3", "./train \\\n  --lr 0.3 \\\n  --seed 2"},
		{"cat <<E >f && ./train --lr 0.1\n--lr 9\nE\n", "lr", "0.3", "cat <<E >f && ./train --lr 0.3\n--lr 9\nE\n"},
	} {
		if got, err := substitution.Option(test.command, test.name, test.value); err != nil || got != test.want {
			t.Errorf("%s=%s in %q: %q, %v, want %q", test.name, test.value, test.command, got, err, test.want)
		}
	}
}

func TestOptionIsNeverGuessed(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		command, name, value string
		want                 error
	}{
		{"./train --lr-decay 0.1", "lr", "0.3", substitution.ErrNone},
		{"./train --seed 1", "lr", "0.3", substitution.ErrNone},
		{"./train --lr --seed 1", "lr", "0.3", substitution.ErrNone},
		{"./train --lr", "lr", "0.3", substitution.ErrNone},
		{"", "lr", "0.3", substitution.ErrNone},
		{"./train xlr=1", "lr", "0.3", substitution.ErrNone},
		{"./train --l.r 1", "l?r", "0.3", substitution.ErrNone},
		{"./a --lr 0.1; ./b --lr 0.1", "lr", "0.3", substitution.ErrSeveral},
		{"lr=0.1 ./train --lr 0.1", "lr", "0.3", substitution.ErrSeveral},
		{"sh -c './train --title x'", "title", "a b", substitution.ErrQuotes},
	} {
		if got, err := substitution.Option(test.command, test.name, test.value); !errors.Is(err, test.want) {
			t.Errorf("%s=%s in %q: %q, %v, want %v", test.name, test.value, test.command, got, err, test.want)
		}
	}
	if got, err := substitution.Option("./train 'x --lr 0.1", "lr", "0.3"); err == nil {
		t.Errorf("a command that no shell reads became %q", got)
	}
}

func TestWordIsReplacedWhereItIsOnce(t *testing.T) {
	t.Parallel()
	if got, err := substitution.Word("./train 0.1 10.1 2", "0.1", "0.3"); err != nil || got != "./train 0.3 10.1 2" {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := substitution.Word("./train 2 2", "2", "3"); !errors.Is(err, substitution.ErrSeveral) {
		t.Errorf("%q, %v", got, err)
	}
}
