package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// verb is a command of CodaLab's own cl, version 1.7.3 (codalab/lib/bundle_cli.py: Commands.command), and the
// difference of ours. It is absent if absentCommands has it.
type verb struct {
	name, aliases string
	// flags are long names, each with its short name after a slash.
	flags string
	// differs is empty if ours is the same, except for the differences of all commands.
	differs string
}

const (
	metadataOfAll = "name/n description/d tags "
	requestsOfRun = "allow-failed-dependencies store request-docker-image request-time request-memory request-disk request-cpus request-gpus " +
		"request-queue request-priority request-network exclude-patterns "
	flagsOfMimic = metadataOfAll + requestsOfRun + "depth shadow/s dry-run/i worksheet-spec/w memoize/m wait/W tail/t verbose/v"
)

func verbs() []verb {
	return []verb{
		{
			"upload", "up", metadataOfAll + "contents/c follow-symlinks/L exclude-patterns/x git/g pack/p force-compression/z worksheet-spec/w ignore/i link/l " +
				"use-azure-blob-beta/a license source-url link-url link-format store edit/e",
			"`-` uploads standard input; an upload that fails or is interrupted leaves no bundle; cl's own directory with its tokens is left out, and pipes, sockets and devices, which it names",
		},
		{"make", "", metadataOfAll + "allow-failed-dependencies store edit/e worksheet-spec/w", ""},
		{
			"run", "", metadataOfAll + requestsOfRun + "worksheet-spec/w after_sort_key/a memoize/m interactive/i edit/e wait/W tail/t verbose/v",
			"with `-W` and `-t` it fails if the run does; it warns of a time below a minute and of memory below 4 MiB, and refuses a time, memory or disk of 0; `--interactive` is refused; `--secret` gives it secrets of its owner; `--resume N` gives it the tag `resume=N`, by which a bridge lets it go on after an interruption; `--each` and `--each-line` make many runs with different settings (`cl sweep`), whose tags tell them, `--max-parallel` on `cl-server` alone; on `cl-server` it warns of a queue that is not there, and refuses what its queue can never run; `--like RUN` makes a run like another one, and `--sub` changes its command; `--upload DIR` sends a directory, once for each state of its files",
		},
		{
			"edit", "e", "name/n tags/T description/d freeze unfreeze anonymous not-anonymous worksheet-spec/w field/f",
			"`-T` and `-d ''` empty the field; `-f` sends a value in its type, and refuses what the server sets",
		},
		{"detach", "de", "index/n worksheet-spec/w", "items that others add to the worksheet at the same time stay"},
		{"rm", "", "force recursive/r data-only/d dry-run/i worksheet-spec/w", "at least one bundle is needed, or a choice of your own ones: `--older` and `--state` show what they choose, and ask; a refusal names the dependents with their number"},
		{"search", "s", "field/f append/a uuid-only/u worksheet-spec/w", "shows the summary, and values in files as columns; sorts and chooses by them; `-u`, `--json`, `--csv`, `--append`, a pipe and a file get all matches, not ten; a search that finds nothing is refused if it names a key or a state that there is not"},
		{"ls", "", "field/f uuid-only/u worksheet-spec/w", "shows the summary, and values in files as columns; takes keywords like search; `--csv`"},
		{
			"info", "i", "field/f raw/r verbose/v worksheet-spec/w",
			"shows in a sentence what a bundle waits for or how it ended, and no status of a wait that is over; says in words who may read and change it; `--history` has who did what with it; takes WORKSHEET//BUNDLE",
		},
		{"cat", "", "head tail/t worksheet-spec/w", "what is not there prints nothing on standard output; contents do not steer a terminal"},
		{"wait", "", "tail/t worksheet-spec/w", "takes several bundles and sweeps, and counts them; prints the reason of a failure, and on a terminal of a wait; prints all of the output, not from near its end; contents do not steer a terminal"},
		{"download", "down", "output-path/o force/f worksheet-spec/w", "a file is continued where a transfer broke off; fails if the target exists"},
		{"mimic", "", flagsOfMimic, ""},
		{"macro", "", flagsOfMimic, ""},
		{"kill", "", "worksheet-spec/w", "kills each bundle that has not ended, and prints those"},
		{"write", "", "worksheet-spec/w", ""},
		{"mount", "", "", ""},
		{"netcat", "", "file/f verbose worksheet-spec/w", ""},
		{"store", "", "name/n storage-type storage-format url authentication", ""},
		{"open", "o", "", ""},
		{"new", "", "worksheet-spec/w", ""},
		{"add", "", "dest-worksheet copy-dependencies/d", ""},
		{"wadd", "", "replace/r", "bundles are copied before the worksheet shows them"},
		{"work", "w", "uuid-only/u", "all terminals share the choice, unless CODALAB_SESSION names another; `--private` makes a worksheet for you alone"},
		{"print", "p", "raw/r", ""},
		{
			"wedit", "we", "name/n title/t tags/T owner-spec/o freeze unfreeze anonymous not-anonymous file/f",
			"`-o` offers the worksheet on `cl-server`, as `chown` does; contents that the server refuses are kept in a file; `-f` together with a change of the name and so on is refused; blanks at the ends of lines stay",
		},
		{"wrm", "", "force", ""},
		{"wls", "wsearch ws", "address/a uuid-only/u", ""},
		{"wopen", "wo", "", ""},
		{"gls", "", "worksheet-spec/w", "the group public has no owner"},
		{"gnew", "", "", ""},
		{"grm", "", "", ""},
		{"ginfo", "", "", ""},
		{"uadd", "", "admin/a", ""},
		{"urm", "", "", "removes the user: CodaLab's cl ends in a traceback"},
		{"perm", "", "worksheet-spec/w", "says in words who may read and change the bundles then"},
		{"wperm", "", "", "says in words who may read and change the worksheet then"},
		{"chown", "", "worksheet-spec/w", "offers the bundles on `cl-server`: the new owner accepts by the same command or `cl offers accept`, and root's gives them at once"},
		{"uinfo", "", "field/f", ""},
		{"uedit", "", "first-name last-name affiliation url time-quota/t parallel-run-quota/p disk-quota/d grant-access remove-access", ""},
		{"ufarewell", "", "", ""},
		{"uls", "", "field/f", "takes keywords after `-f`, too"},
		{"workers", "", "", ""},
		{"bs-add-partition", "", "", ""},
		{"bs-rm-partition", "", "", ""},
		{"bs-ls-partitions", "", "", ""},
		{"bs-health-check", "", "", ""},
		{"help", "", "verbose/v markdown/m", "has texts of its own"},
		{"status", "st", "", "client_version is cl-slurm's"},
		{"alias", "", "remove/r", ""},
		{"config", "", "remove/r", "uses `cli/default_address` and `aliases/…` alone, and keeps other keys"},
		{"logout", "", "", "ends the session at the server, too"},
		{"events", "", "", ""},
		{"reset", "", "", ""},
	}
}

// TestEveryCommandAndFlagOfCodaLabsClIsThere compares the commands, their aliases and their flags.
func TestEveryCommandAndFlagOfCodaLabsClIsThere(t *testing.T) {
	t.Parallel()
	root := (&cli{}).root()
	root.InitDefaultHelpCmd()
	known := map[string]bool{"completion": true, "exit-codes": true, "environment": true, "fields": true, "man": true, "passwd": true, "sessions": true, "queues": true, "usage": true, "du": true, "best": true, "diff": true, "rerun": true, "plot": true, "doctor": true, "token": true, "secret": true, "sweep": true, "offers": true, "login": true, "top": true, "notify": true, "export": true, "import": true} // ours alone
	for _, v := range verbs() {
		known[v.name] = true
		for _, name := range append(strings.Fields(v.aliases), v.name) {
			cmd, _, err := root.Find([]string{name})
			if err != nil || cmd == root || cmd.Name() != v.name {
				t.Errorf("cl %s is not there as %s", v.name, name)
				continue
			}
			for _, flag := range strings.Fields(v.flags) {
				long, short, _ := strings.Cut(flag, "/")
				if f := cmd.Flags().Lookup(long); f == nil || f.Shorthand != short {
					t.Errorf("cl %s has no flag --%s, -%s", v.name, long, short)
				}
			}
		}
	}
	for _, cmd := range root.Commands() {
		if !known[cmd.Name()] {
			t.Errorf("cl %s is in no table", cmd.Name())
		}
	}
}

// restHeading begins the part of docs/compatibility.md that package docs writes.
const restHeading = "\n## Calls of the REST API\n"

// compatibility is the part of docs/compatibility.md about cl.
func compatibility() string {
	absent := absentCommands()
	counts := map[string]int{}
	var rows strings.Builder
	for _, v := range verbs() {
		verdict, why := "same", v.differs
		if why != "" {
			verdict = "differs"
		}
		if reason, ok := absent[v.name]; ok {
			verdict, why = "absent", reason
		}
		counts[verdict]++
		name := v.name
		if v.aliases != "" {
			name += ", " + strings.ReplaceAll(v.aliases, " ", ", ")
		}
		fmt.Fprintf(&rows, "| `%s` | %s | %s |\n", name, verdict, why)
	}
	return fmt.Sprintf(`# Compatibility with CodaLab

CodaLab's own `+"`cl`"+` and `+"`cl-worker`"+`, version 1.7.3, work with `+"`cl-server`"+`, and our `+"`cl`"+` works with CodaLab's own
server. The tests write this page (`+"`go test ./cmd/cl ./docs -update`"+`).

## Commands of cl

Of the commands of CodaLab's own `+"`cl`"+`, %d are the same here, with the same flags, output and exit codes, %d
differ on purpose, and %d are absent. Tests play the same scripts, of a thousand commands, with both, and fail at a
difference that is not in a table of theirs (`+"`cmd/cl/recorded_differences_test.go`"+`). For all commands:

- What `+"`cl`"+` itself refuses ends with CodaLab's exit code, 1 or 2, and sends nothing. The refusal is one sentence,
  with the nearest right word. An unknown field is such a mistake.
- Two percent signs in a command stand for one: `+"`date +%%%%Y-%%%%m`"+`. CodaLab's cl has no way to write that.
- Times for people are in the zone of the machine, and name it.
- The error about a name that no bundle on the worksheet has tells where the user's newest bundle of that name is.
- Standard output has what scripts read, and nothing else: notes, and progress on a terminal, are on standard error.
- `+"`--json`"+` prints JSON, and `+"`--server`"+` names the server for one call.
- Sizes and times are also read as `+"`8GiB`, `1h30m` and `1:30:00`"+`, and sent as CodaLab writes them.
- Options and words may come in any order.
- A server that does not answer is exit code 3; CodaLab's cl prints a traceback.
- `+"`cl best`, `diff`, `rerun`, `plot`, `du`, `sweep`, `top` and `doctor`"+` are of this cl alone, and work on CodaLab's own server, too.
  `+"`cl diff`"+` has the exit codes of diff(1), in which 1 means that the bundles differ, and 2 trouble.

| command | | |
|---|---|---|
%s`, counts["same"], counts["differs"], counts["absent"], rows.String())
}

// TestCompatibilityIsUpToDate compares docs/compatibility.md with the table; -update writes it.
func TestCompatibilityIsUpToDate(t *testing.T) {
	t.Parallel()
	file := filepath.Join("..", "..", "docs", "compatibility.md")
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	ours, rest, found := strings.Cut(string(page), restHeading)
	if !found {
		rest = ours
	}
	if *update {
		if err := os.WriteFile(file, []byte(compatibility()+restHeading+rest), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if ours != compatibility() {
		t.Error("docs/compatibility.md is not what the table says; write it with: go test ./cmd/cl -update")
	}
}
