package plan_test

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
)

// TestDecisionSurvivesJSON: a trace holds rows and news as JSON, which must contain everything that a decision
// depends on.
func TestDecisionSurvivesJSON(t *testing.T) {
	t.Parallel()
	p := throughJSON(t, policy())
	if diff := cmp.Diff(policy(), p); diff != "" {
		t.Fatalf("policy (-want +got):\n%s", diff)
	}
	news := everyNews()
	names := slices.Sorted(maps.Keys(news))
	const pairs = 50
	random := rand.New(rand.NewPCG(1, 2))
	for name, row := range everyRow() {
		traced := throughJSON(t, row)
		traced.Version = row.Version // it is the ledger's
		for i := range len(names) + pairs {
			one, two := "nothing", names[i%len(names)]
			if i >= len(names) {
				one, two = names[random.IntN(len(names))], names[random.IntN(len(names))]
			}
			now := epoch.Add(time.Duration(random.IntN(7300)) * time.Second)
			n := both(news[one], news[two])
			n.Restarted = random.IntN(2) == 0
			want, wantEffects := p.Next(now, row, n)
			got, gotEffects := p.Next(now, traced, throughJSON(t, n))
			if !reflect.DeepEqual(want, got) || !slices.Equal(plan.KindsOf(wantEffects), plan.KindsOf(gotEffects)) {
				t.Fatalf("%s, %s and %s (-direct +through JSON):\n%s%s", name, one, two,
					cmp.Diff(want, got), cmp.Diff(plan.KindsOf(wantEffects), plan.KindsOf(gotEffects)))
			}
		}
	}
}

func throughJSON[T any](t *testing.T, v T) (out T) {
	t.Helper()
	data, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(data, &out)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}
