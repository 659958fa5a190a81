package docs_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/server"
)

var update = flag.Bool("update", false, "write docs/compatibility.md, and the tables of docs/security.md and docs/containers.md")

// restHeading begins the part of docs/compatibility.md that is made of the server's routes. A test of cmd/cl
// writes what comes before.
const restHeading = "\n## Calls of the REST API\n"

// compatibility is the part of the document about the REST API.
func compatibility() string {
	counts := map[string]int{}
	var rows strings.Builder
	for _, one := range server.Calls() {
		counts[one.Verdict]++
		who := "users"
		switch {
		case one.Verdict == "absent":
			who = ""
		case one.Public:
			who = "everybody"
		}
		if one.Worker {
			who += ", workers"
		}
		if one.WorkerToken {
			who += ", tokens"
		}
		if one.Manager {
			who += ", managers"
		}
		fmt.Fprintf(&rows, "| `%s` | %s | %s | %s |\n", strings.TrimSuffix(one.Pattern, "{$}"), who, one.Verdict, one.Why)
	}
	return fmt.Sprintf(`
This compares `+"`cl-server`"+` with CodaLab's own server, for each call below `+"`/rest`"+`: %d are the same, %d differ on
purpose, and %d are absent.

*Everybody* need not sign in, unless the server runs with `+"`--require-sign-in`"+`; they see the objects that the
group `+"`public`"+` may read. *Workers* are worker accounts ([Accounts](server.md#accounts)), which may make
no other calls; *tokens* are [worker tokens](server.md#accounts) and
[program tokens](server.md#tokens-of-bridges-and-workers), which allow no other calls either, but those for *managers*
with a program token of a worker manager.

For all calls: refusals are one sentence of plain text, labelled `+"`text/plain`"+` and not as HTML, since they
repeat what clients send. Bodies and answers must move 64 KiB within five minutes. JSON is at most 8 MiB.
A bundle that hides its owner does so from all but those who may change it, as CodaLab's comments say;
CodaLab's own server hides it from the owner, too.

| call | for | | |
|---|---|---|---|
%s`, counts["same"], counts["differs"], counts["absent"], rows.String())
}

func TestCompatibilityIsUpToDate(t *testing.T) {
	t.Parallel()
	name := filepath.Join(root, "docs", "compatibility.md")
	commands, calls, _ := strings.Cut(read(t, name), restHeading)
	if *update {
		if err := os.WriteFile(name, []byte(commands+restHeading+compatibility()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if calls != compatibility() {
		t.Error("docs/compatibility.md is not what the routes say; write it with: go test ./docs -update")
	}
}
