package manual_test

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/cmd/internal/manual"
)

var update = flag.Bool("update", false, "write the golden files")

// program is a program with everything that a page can show.
func program() *cobra.Command {
	run := func(*cobra.Command, []string) {}
	root := &cobra.Command{Use: "pot", Short: "Cook", Long: `pot cooks.
Its ^2 isn't ` + "`this`" + ` - and \ stays, and ~/.pot.

  pot boil <egg>   boil an egg
                   until it is hard
  pot wash --hot x wash it
  POT_LID, POT_HANDLE
                   where they are

.dots may begin a line:

  pot boil one
    pot boil two

Exit codes:
  0   done
  12  burnt`, Version: "v1"}
	root.PersistentFlags().Bool("json", false, "print JSON")
	root.AddGroup(&cobra.Group{ID: "hot", Title: "Hot commands:"})
	boil := &cobra.Command{Use: "boil EGG", Short: "Boil an egg", Aliases: []string{"b"}, GroupID: "hot", Example: "  pot boil egg", Run: run}
	boil.Flags().DurationP("time", "t", 4*time.Minute, "boil for this `time`")
	boil.Flags().Int("salt", 0, ".5 is half a spoon")
	root.AddCommand(
		boil, &cobra.Command{Use: "wash", Short: "Wash the pot", Run: run},
		&cobra.Command{Use: "secret", Hidden: true, Run: run},
		&cobra.Command{Use: "exit-codes", Short: "The exit codes", Long: "They are:\n\n    0  done"},
	)
	return root
}

func TestPagesSayWhatTheHelpSays(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if *update {
		dir = "testdata"
	}
	if err := (manual.Source{Version: "v1.2.3", Date: time.Unix(1_764_000_000, 0)}).Write(dir, program()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(pages(t, "testdata"), pages(t, dir)); diff != "" {
		t.Errorf("pages (-update writes them): %s", diff)
	}
}

func pages(t *testing.T, dir string) map[string]string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.1"))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		found[filepath.Base(name)] = string(text)
	}
	return found
}
