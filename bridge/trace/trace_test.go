package trace

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/spool"
)

const bundle = "0x0123456789abcdef0123456789abcdef"

func policy() plan.Policy {
	return plan.Policy{
		Bridge: "b1b2b3", Owner: "ann", Layout: "/shared", Queues: map[string]plan.Queue{"cpu": {Name: "cpu", Tag: "cpu"}},
		SubmitGrace: time.Minute, LongestAckPause: 10 * time.Minute, KeepAfterAck: time.Hour, StagePatience: time.Minute, MaxAttempts: 3,
	}
}

// life decides a bundle from its offer until its job is submitted.
func life(p plan.Policy, bundle string) []plan.Decision {
	now := time.Unix(1_800_000_000, 0)
	r := plan.NewRow(now, "cpu", codalab.Message{Bundle: &codalab.RunBundle{UUID: bundle, Command: "true"}})
	var decisions []plan.Decision
	for _, n := range []plan.News{
		{},
		{Claimed: &plan.Claimed{Accepted: true}},
		{Staged: &plan.StageEnd{Outcome: plan.Outcome{Failure: "no route to host"}}},
		{Staged: &plan.StageEnd{Inputs: spool.Inputs{SIF: "/x.sif"}}},
		{},
		{Submitted: &plan.SbatchAnswer{Attempt: 1, Job: 7}},
		{Messages: []codalab.Message{{Type: codalab.MessageKill, UUID: bundle}}},
	} {
		now = now.Add(time.Second)
		if r.WaitsToSubmit(now) {
			r = p.NewAttempt(now, r, 4)
		}
		next, effects := p.Next(now, r, n)
		decisions = append(decisions, plan.Decision{Now: now, Row: r, News: n, Next: next, Effects: plan.KindsOf(effects)})
		r = next
	}
	return decisions
}

// recorded writes decisions to a trace, as one life of a bridge.
func recorded(t *testing.T, path string, p plan.Policy, decisions ...plan.Decision) {
	t.Helper()
	w, err := Open(path, Header{Build: "test", Policy: p}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	write(t, w, decisions...)
}

func write(t *testing.T, w *Writer, decisions ...plan.Decision) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.Run(ctx)
	}()
	for _, d := range decisions {
		w.Record(d)
	}
	cancel()
	<-done
}

// replayed replays a trace, and returns the decisions with another result.
func replayed(t *testing.T, path, bundle string) (Summary, []Decision) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var wrong []Decision
	sum, err := Replay(f, bundle, func(d Decision) error {
		if len(d.Different)+len(d.Discontinuous) > 0 {
			wrong = append(wrong, d)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return sum, wrong
}

func TestTraceIsDecidedAgainAsItWas(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "trace")
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	other := strings.Replace(bundle, "0x0", "0xf", 1)
	recorded(t, path, policy(), append(life(policy(), bundle), life(policy(), other)...)...)
	sum, wrong := replayed(t, path, "")
	if diff := cmp.Diff(Summary{Decisions: 14, Rows: 2}, sum); diff != "" || wrong != nil {
		t.Errorf("%+v %s", wrong, diff)
	}
	if sum, _ := replayed(t, path, "0xf"); sum.Decisions != 7 || sum.Rows != 1 {
		t.Errorf("of one bundle: %+v", sum)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v: others may read it", info.Mode(), err)
	}
}

func TestChangedPolicyShowsWhatItChanges(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "trace")
	changed := policy()
	changed.StagePatience = 0
	changed.Queues = map[string]plan.Queue{"cpu": {Name: "cpu", Tag: "cpu", MaxTime: time.Hour}}
	decisions := life(policy(), bundle)
	decisions[1].Row.Resources.Time, decisions[1].Next.Resources.Time = 7200, 7200
	recorded(t, path, changed, decisions[1])
	sum, wrong := replayed(t, path, "")
	if sum.Different != 1 || len(wrong) != 1 {
		t.Fatalf("%+v, %+v", sum, wrong)
	}
	got := map[string][2]string{}
	for _, d := range wrong[0].Different {
		got[d.Field] = [2]string{d.Was, d.Is}
	}
	if got["phase"] != [2]string{`"staging"`, `"finalizing"`} || got["effects"] != [2]string{"[stage]", "[]"} || got["verdict"][0] != "-" {
		t.Errorf("differences %v", got)
	}
}

func TestDecisionsThatDoNotFollowFromOneAnotherAreSaid(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "trace")
	decisions := life(policy(), bundle)
	recorded(t, path, policy(), append(decisions[:2:2], decisions[3:]...)...)
	sum, wrong := replayed(t, path, "")
	if sum.Different != 1 || len(wrong) != 1 || wrong[0].Line != 4 || wrong[0].Different != nil || wrong[0].Discontinuous[0].Field != "decided_at" {
		t.Errorf("%+v, %+v", sum, wrong)
	}
	// A bridge that is started again reads its rows from the ledger, which may lack its last decisions.
	recorded(t, path, policy(), decisions[1:]...)
	if again, _ := replayed(t, path, ""); again.Different != 1 || again.Decisions != 12 {
		t.Errorf("after a restart: %+v", again)
	}
}

func TestTornLinesAreLeftOut(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "trace")
	tear := func() {
		data, err := os.ReadFile(path)
		if err == nil {
			err = os.WriteFile(path, data[:len(data)-20], 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	decisions := life(policy(), bundle)
	recorded(t, path, policy(), decisions[:4]...)
	tear()
	if sum, _ := replayed(t, path, ""); sum != (Summary{Decisions: 3, Rows: 1, Torn: 1}) {
		t.Errorf("at the end: %+v", sum)
	}
	recorded(t, path, policy(), decisions[3:]...)
	tear()
	if sum, _ := replayed(t, path, ""); sum != (Summary{Decisions: 6, Rows: 1, Torn: 2}) {
		t.Errorf("and in the middle: %+v", sum)
	}
}

func TestUsageOfARunningAttemptIsNotRecorded(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "trace")
	row := plan.Row{Bundle: bundle, Queue: "cpu", Phase: plan.Running, Attempt: plan.Attempt{Number: 1, SubmissionName: "m", Begun: &spool.Started{Token: "t"}, RunningAt: time.Unix(1, 0)}}
	var decisions []plan.Decision
	for _, n := range []plan.News{
		{Records: &plan.Records{Attempt: 1, Records: spool.Records{Status: &spool.Status{Token: "t"}}}},
		{Records: &plan.Records{Attempt: 1, Records: spool.Records{Exit: &spool.Exit{Token: "another"}}}},
		{Records: &plan.Records{Attempt: 1}, RecordsFailure: "stale file handle"},
	} {
		next, effects := policy().Next(time.Unix(2, 0), row, n)
		decisions = append(decisions, plan.Decision{Now: time.Unix(2, 0), Row: row, News: n, Next: next, Effects: plan.KindsOf(effects)})
	}
	recorded(t, path, policy(), decisions...)
	if sum, wrong := replayed(t, path, ""); sum.Decisions != 2 || wrong != nil {
		t.Errorf("%+v, %+v; want what was ignored, and not what is routine", sum, wrong)
	}
}

func TestTraceKeepsToItsSize(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "trace")
	w, err := Open(path, Header{Policy: policy()}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	w.Limit = 64 << 10
	var decisions []plan.Decision
	for range 20 {
		decisions = append(decisions, life(policy(), bundle)...)
	}
	write(t, w, decisions...)
	seen := 0
	for _, part := range []string{path + ".1", path} {
		info, err := os.Stat(part)
		if err != nil || info.Size() > w.Limit/2 || info.Mode().Perm() != 0o600 {
			t.Fatalf("%s: %v, %v", part, info, err)
		}
		sum, _ := replayed(t, part, "")
		seen += sum.Decisions
	}
	if seen < 15 || seen >= len(decisions) {
		t.Errorf("%d of %d decisions are kept", seen, len(decisions))
	}
}

func TestTraceThatCannotBeWrittenEndsAndIsSaidOnce(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	w, err := Open(filepath.Join(t.TempDir(), "trace"), Header{Policy: policy()}, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	if err := w.file.Close(); err != nil {
		t.Fatal(err)
	}
	decisions := life(policy(), bundle)
	write(t, w, decisions...)
	write(t, w, decisions...)
	if n := strings.Count(log.String(), "the trace ends here"); n != 1 || len(w.pending) != 0 {
		t.Errorf("said %d times, %d wait:\n%s", n, len(w.pending), &log)
	}
}

func TestCloseThatFailsIsLogged(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	w, err := Open(filepath.Join(t.TempDir(), "trace"), Header{}, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	if err := w.file.Close(); err != nil { // so that the next one fails
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w.Run(ctx)
	if !strings.Contains(log.String(), "the trace ends here: it cannot be written") {
		t.Errorf("the log is %q", log.String())
	}
}

func TestDecisionsThatComeTooFastAreCounted(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "trace")
	w, err := Open(path, Header{Policy: policy()}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	w.pending = make([]pending, maxPending)
	decisions := life(policy(), bundle)
	for _, d := range decisions[1:4] {
		w.Record(d)
	}
	w.pending = []pending{{Decision: decisions[0]}} // the others were written
	write(t, w, decisions[4:]...)
	if sum, wrong := replayed(t, path, ""); sum != (Summary{Decisions: 4, Rows: 1, Lost: 3}) || wrong != nil {
		t.Errorf("%+v, %+v", sum, wrong)
	}
}

func TestWhatIsNoTraceIsRefused(t *testing.T) {
	t.Parallel()
	d := life(policy(), bundle)[0]
	headless, err := json.Marshal(record{Decision: &plan.Decision{Now: d.Now, Row: d.Row, Next: d.Next}})
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"":                                 "no trace",
		"hello\n":                          "no trace",
		`{"header":{"format":9}}` + "\n":   "format 9",
		string(headless) + "\n":            "before any header",
		`{"header":{"format":3}}` + "\n{}": "neither header nor decision",
		`{"header":{"format":3}}` + "\nhello\n" + string(headless): "cannot be read",
	} {
		_, err := Replay(strings.NewReader(text), "", func(Decision) error { return nil })
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// A policy that follows Slurm's settings changes while the bridge runs.
func TestDecisionsAreReplayedWithThePolicyOfTheirTime(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "trace")
	w, err := Open(path, Header{Policy: policy()}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	later := policy()
	later.MaxAttempts, later.SubmitGrace = 1, time.Hour
	const other = "0x22222222222222222222222222222222"
	for _, d := range life(policy(), bundle) {
		w.Record(d)
	}
	w.SetPolicy(later)
	write(t, w, life(later, other)...)
	if sum, wrong := replayed(t, path, ""); sum.Rows != 2 || sum.Different != 0 || wrong != nil {
		t.Errorf("%+v, %+v", sum, wrong)
	}
	data, err := os.ReadFile(path)
	if headers := strings.Count(string(data), `{"header":`); err != nil || headers != 2 {
		t.Errorf("%d headers, %v", headers, err)
	}
}
