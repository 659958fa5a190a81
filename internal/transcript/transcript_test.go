package transcript_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/internal/transcript"
)

const page = `# A page

~~~console
$ printf 'a\nb\n' > file
$ cat > script <<'END'
> echo one
>
>   echo two
> END
$ cl upload script
0xf4850357f1be426287f897f58a5f7b98
~~~

~~~
$ not a session
~~~

~~~console
$ cl ls
ref  uuid      created
------------------------------------
 ^1  0xf48503  2026-11-22 22:06:32 UTC
…
~~~
The end.
`

func text() string { return strings.ReplaceAll(page, "~~~", "```") }

func TestStepsOfAPage(t *testing.T) {
	t.Parallel()
	want := []transcript.Step{
		{Line: 4, Command: `printf 'a\nb\n' > file`},
		{Line: 5, Command: "cat > script <<'END'\necho one\n\n  echo two\nEND"},
		{Line: 10, Command: "cl upload script", Answer: "0xf4850357f1be426287f897f58a5f7b98\n"},
		{Line: 19, Command: "cl ls", Answer: "ref  uuid      created\n------------------------------------\n ^1  0xf48503  2026-11-22 22:06:32 UTC\n…\n"},
	}
	if diff := cmp.Diff(want, transcript.Parse(text())); diff != "" {
		t.Error(diff)
	}
}

func TestAnswersThatAreTheSame(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		page, answer string
		same         bool
	}{
		{"", "", true},
		{"", "a\n", false},
		{"a\n", "", false},
		{"0xf48503 in 1m35s on n1 (Slurm job 12)\n", "0x123456 in 4s on n2 (Slurm job 345)\n", true},
		{"name   size\n------------\nx         3\n", "name        size\n----------------\nx              3\n", true},
		{"name size 3\n", "name size 4\n", false},
		{"a\n…\nz\n", "a\nz\n", true},
		{"a\n…\nz\n", "a\nb\nc\nz\n", true},
		{"a\n…\nz\n", "a\nb\nc\n", false},
		{"…\n", "", true},
		{"begins\nfailed: Exit code 1\n", "preparing: Waiting.\nbegins\nrunning: Uploading results: 0 of 418.\nfailed: Exit code 1\n", true},
		{"failed: Exit code 1\n", "failed: Exit code 2\n", false},
	} {
		if same := transcript.Same(c.page, c.answer); same != c.same {
			t.Errorf("%q and %q: %t", c.page, c.answer, same)
		}
	}
}

func TestRewriteChangesOnlyWhatDiffers(t *testing.T) {
	t.Parallel()
	same := []string{"", "", "0x00000357f1be426287f897f58a5f7b98\n", "ref  uuid  created\n-----\n ^1  0x123456  2027-01-01 00:00:00 UTC\n"}
	if diff := cmp.Diff(text(), transcript.Rewrite(text(), same)); diff != "" {
		t.Error(diff)
	}
	differs := []string{"new\nlines\n", "", "", "nothing\n"}
	want := strings.NewReplacer(
		"> file\n", "> file\nnew\nlines\n", "0xf4850357f1be426287f897f58a5f7b98\n", "",
		text()[strings.Index(text(), "ref  uuid"):strings.Index(text(), "```\nThe end.")], "nothing\n",
	).Replace(text())
	got := transcript.Rewrite(text(), differs)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if again := transcript.Rewrite(got, differs); again != got {
		t.Error(cmp.Diff(got, again))
	}
}
