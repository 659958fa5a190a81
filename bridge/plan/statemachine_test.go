package plan_test

import (
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
)

const stateMachine = "../../docs/state-machine.md"

// TestStateMachineOnPaperIsTheOneInTheCode writes docs/state-machine.md anew
// from the source and the scenarios, and compares.
func TestStateMachineOnPaperIsTheOneInTheCode(t *testing.T) {
	t.Parallel()
	p := &paper{t: t, atlas: toldBy(t), docs: constantDocs(t)}
	p.write()
	if *rewrite {
		writeDown(t, stateMachine, p.String())
		return
	}
	before, err := os.ReadFile(stateMachine)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(before), "\n"), strings.Split(p.String(), "\n")); diff != "" {
		t.Errorf("docs/state-machine.md is stale: go test ./bridge/plan -run StateMachine -rewrite (-written +now):\n%s", diff)
	}
}

// constantDocs are the comments of the package's text constants, by their
// values: one sentence on, without the constant's name.
func constantDocs(t *testing.T) map[string]string {
	t.Helper()
	files, err := source()
	if err != nil {
		t.Fatal(err)
	}
	docs := map[string]string{}
	for _, f := range files {
		ast.Inspect(f, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || len(spec.Values) != 1 || spec.Doc == nil {
				return true
			}
			if lit, ok := spec.Values[0].(*ast.BasicLit); ok && lit.Kind == token.STRING {
				value, _ := strconv.Unquote(lit.Value)
				text := strings.Join(strings.Fields(spec.Doc.Text()), " ")
				text = strings.TrimPrefix(text, spec.Names[0].Name)
				docs[value] = strings.TrimSpace(strings.TrimPrefix(text, ":"))
			}
			return true
		})
	}
	return docs
}

// paper is docs/state-machine.md in the making.
type paper struct {
	t     *testing.T
	atlas *atlas
	docs  map[string]string
	strings.Builder
}

func (p *paper) line(format string, args ...any) { fmt.Fprintf(&p.Builder, format+"\n", args...) }

func (p *paper) row(cells ...string) { p.line("| %s |", strings.Join(cells, " | ")) }

func (p *paper) write() {
	p.line(`# The state machine of a bundle

What the bridge does with a bundle, from the server's offer to the last file's
removal. The code is [bridge/plan](../bridge/plan/doc.go), the word of which counts.
This page is written by

    go test ./bridge/plan -run StateMachine -rewrite

from the code's comments and from what the [scenarios](../bridge/plan/testdata) show
when they are played. Tests fail when the page is stale, and when %d random lives
show a transition that no scenario shows.
`, walks)
	p.diagram()
	p.phases()
	p.transitions()
	p.effects()
	p.promises()
	p.hazards()
}

func (p *paper) sorted() []transition {
	return slices.SortedFunc(maps.Keys(p.atlas.shown), compareTransitions)
}

func (p *paper) diagram() {
	p.line("```mermaid\nstateDiagram-v2\n    [*] --> claiming: offered")
	var edges []string
	for _, t := range p.sorted() {
		edge := fmt.Sprintf("    %s --> %s", t.from, t.to)
		if t.from != t.to && !slices.Contains(edges, edge) {
			edges = append(edges, edge)
			p.line("%s", edge)
		}
	}
	p.line("    done --> [*]: forgotten\n```\n")
}

func (p *paper) phases() {
	p.line(`## Phases

A row is decided when something arrived that may concern it, when it is due, and once
after each start of the bridge. "Minds" says what has made a difference to a row of the
phase, beside that start; what it may want is in the table of effects. On the wire is the
state that a check-in reports, before the attempt began and after.
`)
	p.row("phase", "meaning", "on the wire", "minds", "may want")
	p.row("---", "---", "---", "---", "---")
	for _, phase := range plan.Phases() {
		minds := slices.Sorted(maps.Keys(p.atlas.wakes[phase]))
		minds = slices.DeleteFunc(minds, func(s string) bool { return s == "restart" })
		var wants []string
		for _, k := range plan.Kinds() {
			if _, ok := p.atlas.wants[phase][k]; ok {
				wants = append(wants, string(k))
			}
		}
		p.row(string(phase), p.docs[string(phase)], wire(phase), strings.Join(minds, ", "), strings.Join(wants, ", "))
	}
	p.line("")
}

// wire is the state that is reported of a row in a phase.
func wire(phase plan.Phase) string {
	r := rowIn(phase)
	if !r.Reported() {
		return "not reported"
	}
	unbegun := r
	unbegun.Begun = nil
	after, before := r.Report("").State, unbegun.Report("").State
	if after != before {
		return fmt.Sprintf("%s, then %s", before, after)
	}
	return string(after)
}

func (p *paper) transitions() {
	p.line(`## Transitions

One decision may pass through several phases; what counts here is where it begins and
where it ends. The reason is what ` + "`cl-bridge explain`" + ` says, with … for what varies.
`)
	p.table(func(t transition) bool { return t.from != t.to })
	p.line(`## Within a phase

Decisions that leave a row in its phase with a new reason.
`)
	p.table(func(t transition) bool { return t.from == t.to })
}

func (p *paper) table(which func(transition) bool) {
	p.row("from", "to", "reason", "on", "for example")
	p.row("---", "---", "---", "---", "---")
	for _, t := range p.sorted() {
		if which(t) {
			p.row(string(t.from), string(t.to), strings.ReplaceAll(t.reason, "|", `\|`), strings.Join(p.on(t), ", "), link(p.atlas.shown[t]))
		}
	}
	p.line("")
}

// on is what makes a transition: single news, or where none does it alone,
// several.
func (p *paper) on(t transition) []string {
	all := slices.Sorted(maps.Keys(p.atlas.on[t]))
	single := slices.DeleteFunc(slices.Clone(all), func(s string) bool { return strings.Contains(s, " and ") })
	if len(single) > 0 {
		return single
	}
	return all[:1]
}

func link(scenario string) string {
	return fmt.Sprintf("[%s](../bridge/plan/testdata/%s.txt)", strings.ReplaceAll(scenario, "-", " "), scenario)
}

// repeated says of each effect what its repetition does, and which promises
// lean on that.
var repeated = map[plan.Kind][2]string{
	plan.Claim:           {"yes: the server answers its owner the same again", "I1"},
	plan.Stage:           {"yes: what the cache has is not fetched again", "I1"},
	plan.Prepare:         {"yes: the same is written again", "I1"},
	plan.Submit:          {"no: only when it is proven that the last one made no job", "I2, I3"},
	plan.QueryAccounting: {"yes: a question", "I3"},
	plan.ReadRecords:     {"yes: a question", "I3, I7"},
	plan.Fence:           {"yes: the record that stands is the answer, whoever wrote it", "I4"},
	plan.Cancel:          {"yes: a job that has ended is left alone", "I4, I5"},
	plan.Collect:         {"yes: the server keeps the last upload", "I6"},
	plan.Confirm:         {"yes: a question", "I6"},
	plan.Release:         {"yes: what is gone is gone", "I6"},
	plan.Forget:          {"the ledger's own, done with the decision", "I6"},
}

func (p *paper) effects() {
	p.line(`## Effects

Effects are wanted by a row as it was saved, and at most one of a kind runs for an attempt.
A crash loses them, and the next decision wants them again.
`)
	p.row("effect", "what it does", "wanted in", "may it be repeated?", "promise")
	p.row("---", "---", "---", "---", "---")
	for _, k := range plan.Kinds() {
		say, ok := repeated[k]
		if !ok || p.docs[string(k)] == "" {
			p.t.Errorf("nothing is said of the effect %s", k)
		}
		var in []string
		for _, phase := range plan.Phases() {
			if _, ok := p.atlas.wants[phase][k]; ok {
				in = append(in, string(phase))
			}
		}
		p.row(string(k), p.docs[string(k)], strings.Join(in, ", "), say[0], say[1])
	}
	p.line("")
}

// promised are the promises in a line each.
var promised = []string{
	"A row is saved before its effects run.",
	"A submission is made once; what a lost answer left behind is found by its name and adopted.",
	"Missing knowledge is no change of state; absence needs proof.",
	"An attempt begins at most once, and is closed before the next one.",
	"A live job without a row is cancelled after a grace; an old ledger touches nothing.",
	"A result is delivered, its verdict reported until the server has it, and it is kept after that.",
	"A reported verdict never changes; before, the attempt's own record outranks Slurm's word.",
	"Every phase has an answer to every news.",
}

func (p *paper) promises() {
	p.line("## Promises, and the scenarios that show them\n")
	stories := p.stories()
	for i, promise := range promised {
		mark := fmt.Sprintf("I%d", i+1)
		var shown []string
		for _, s := range stories {
			if strings.Contains(s.text, mark) {
				shown = append(shown, link(s.name))
			}
		}
		if len(shown) == 0 {
			p.t.Errorf("no scenario shows %s", mark)
		}
		p.line("- **%s** %s %s.", mark, promise, strings.Join(shown, ", "))
	}
	p.line("")
}

func (p *paper) hazards() {
	p.line("## Hazards\n")
	for _, s := range p.stories() {
		hazard, _, _ := strings.Cut(s.text, "\n\n")
		p.line("- %s: %s", link(s.name), strings.Join(strings.Fields(hazard), " "))
	}
}

type story struct{ name, text string }

// stories are what stands at the head of the scenarios.
func (p *paper) stories() []story {
	var stories []story
	for _, name := range scenarios(p.t) {
		text, err := os.ReadFile(name)
		if err != nil {
			p.t.Fatal(err)
		}
		var head strings.Builder
		for line := range strings.Lines(string(text)) {
			comment, ok := strings.CutPrefix(line, "#")
			if !ok {
				break
			}
			head.WriteString(strings.TrimPrefix(comment, " "))
		}
		if head.Len() == 0 {
			p.t.Errorf("%s tells no story", name)
		}
		stories = append(stories, story{strings.TrimSuffix(filepath.Base(name), ".txt"), head.String()})
	}
	return stories
}
