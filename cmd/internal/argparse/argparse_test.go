package argparse_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/cmd/internal/argparse"
)

// newCommand returns a command with flags of each kind and a subcommand.
func newCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "pot"}
	cmd.Flags().Int("min-workers", 0, "")
	cmd.Flags().Int("max-workers", 0, "")
	cmd.Flags().BoolP("verbose", "v", false, "")
	cmd.Flags().StringP("name", "n", "", "")
	argparse.WordsFlag(cmd.Flags(), "search", "s", "")
	cmd.AddCommand(&cobra.Command{Use: "boil", Run: func(*cobra.Command, []string) {}})
	return cmd
}

func TestWordsBeforeASubcommandEndAtIt(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ in, options, rest []string }{
		{nil, nil, nil},
		{[]string{"boil", "--name", "x"}, nil, []string{"boil", "--name", "x"}},
		{[]string{"--search", "a", "b", "boil", "-x"}, []string{`--search=["a","b"]`}, []string{"boil", "-x"}},
		{[]string{"--search", "a", "--min-w", "-1", "boil"}, []string{`--search=["a"]`, "--min-workers=-1"}, []string{"boil"}},
		{[]string{"--search", "boil"}, []string{"--search=[]"}, []string{"boil"}},
		{[]string{"--search=boil", "boil"}, []string{`--search=["boil"]`}, []string{"boil"}},
		{[]string{"--name", "boil", "-v", "boil"}, []string{"--name=boil", "--verbose"}, []string{"boil"}},
		{[]string{"-v", "other", "boil"}, []string{"--verbose"}, []string{"other", "boil"}},
	} {
		options, rest, err := argparse.ReadBefore(newCommand(), test.in)
		if diff := cmp.Diff([][]string{test.options, test.rest}, [][]string{options, rest}); err != nil || diff != "" {
			t.Errorf("%q: %v%s", test.in, err, diff)
		}
	}
}

func TestOptionsAndArgumentsComeInAnyOrder(t *testing.T) {
	t.Parallel()
	options, arguments, err := argparse.Read(newCommand(), []string{"a", "--search", "x", "boil", "-n=y", "b", "--", "-c"})
	want := [][]string{{`--search=["x","boil"]`, "--name=y"}, {"a", "b", "-c"}}
	if diff := cmp.Diff(want, [][]string{options, arguments}); err != nil || diff != "" {
		t.Errorf("%v%s", err, diff)
	}
	for in, want := range map[string]string{
		"--m":    "--m may be --max-workers or --min-workers: write more of it",
		"--nsme": "there is no option --nsme: did you mean --name?",
		"--name": "-n/--name needs a value",
	} {
		if _, _, err := argparse.Read(newCommand(), []string{in}); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", in, err, want)
		}
	}
}
