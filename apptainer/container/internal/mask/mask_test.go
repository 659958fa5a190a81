package mask_test

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/apptainer/container/internal/mask"
)

// through returns what a Mask makes of a text in pieces.
func through(values []string, pieces ...string) string {
	m := mask.New(values)
	var out strings.Builder
	for _, p := range pieces {
		out.Write(m.Next([]byte(p)))
	}
	out.Write(m.Rest())
	return out.String()
}

func TestValuesAreReplacedHoweverTheyArePieced(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		values []string
		text   string
		want   string
	}{
		"none":                      {nil, "a secret", "a secret"},
		"one":                       {[]string{"secret"}, "a secret, secret", "a ***, ***"},
		"all of it":                 {[]string{"secret"}, "secret", "***"},
		"cut off":                   {[]string{"secret"}, "a secre", "a secre"},
		"begins again":              {[]string{"aab"}, "aaab aaaab", "a*** aa***"},
		"one in another":            {[]string{"cre", "secret"}, "secret cre secre", "*** *** se***"},
		"one begins another":        {[]string{"sec", "secret"}, "secret sec", "*** ***"},
		"the longer one is cut off": {[]string{"sec", "secret"}, "a secre", "a ***re"},
		"overlapping":               {[]string{"abcd", "cdef"}, "abcdef", "***ef"},
		"lines":                     {[]string{"-a-\nb\n"}, "x -a-\nb\ny -a-\nc", "x ***y -a-\nc"},
		"any bytes":                 {[]string{"\xff\x00x"}, "\xff\xff\x00x\x00", "\xff***\x00"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := through(test.values, test.text); got != test.want {
				t.Errorf("at once: %q, want %q", got, test.want)
			}
			if got := through(test.values, strings.Split(test.text, "")...); got != test.want {
				t.Errorf("byte by byte: %q, want %q", got, test.want)
			}
		})
	}
}

// TestNoPieceOfAValueIsWrittenEarly feeds random texts in random pieces, and compares with the text as a whole.
func TestNoPieceOfAValueIsWrittenEarly(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		values := []string{word(r, 1+r.IntN(6)), word(r, 1+r.IntN(6))}
		text := word(r, r.IntN(60))
		want := through(values, text)
		var pieces []string
		for rest := text; rest != ""; {
			n := 1 + r.IntN(len(rest))
			pieces, rest = append(pieces, rest[:n]), rest[n:]
		}
		if got := through(values, pieces...); got != want {
			t.Fatalf("%q in %q: %q, want %q", values, pieces, got, want)
		}
	}
}

// word returns a text of few letters.
func word(r *rand.Rand, n int) string {
	var b bytes.Buffer
	for range n {
		b.WriteByte("ab\n"[r.IntN(3)])
	}
	return b.String()
}

func TestMaskKeepsLittleBack(t *testing.T) {
	t.Parallel()
	m := mask.New([]string{strings.Repeat("a", 100) + "b"})
	in, out := 0, 0
	for range 1000 {
		text := bytes.Repeat([]byte("a"), 1000)
		in, out = in+len(text), out+len(m.Next(text))
		if in-out > 100 {
			t.Fatalf("it keeps %d bytes", in-out)
		}
	}
}

func BenchmarkMask(b *testing.B) {
	m := mask.New([]string{"correct horse battery staple", "0123456789abcdef0123456789abcdef"})
	text := bytes.Repeat([]byte("epoch 17: loss 0.0123, accuracy 0.98\n"), 1000)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		m.Next(text)
	}
}
