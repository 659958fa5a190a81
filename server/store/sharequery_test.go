package store

import (
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// An upload must not wait for a search through all bundles of its owner.
func TestSearchesForEqualContentsReadOneIndex(t *testing.T) {
	t.Parallel()
	s, err := Open(t.Context(), t.TempDir())
	testenv.Must(t, err)
	t.Cleanup(func() { testenv.Must(t, s.Close()) })
	for condition, index := range map[string]string{
		ofSize: "bundles_by_size (owner_id=? AND data_size=? AND entries=?)", ofName: "bundles_by_owner_and_name (owner_id=? AND name=?)",
	} {
		var steps []struct {
			ID, Parent, NotUsed int
			Detail              string
		}
		args := make([]any, strings.Count(condition, "?"))
		for i := range args {
			args[i] = "1"
		}
		testenv.Must(t, s.db.SelectContext(t.Context(), &steps, `EXPLAIN QUERY PLAN `+newestQuery(1, condition), args...))
		if want := "SEARCH bundles USING INDEX " + index; len(steps) != 1 || steps[0].Detail != want {
			t.Errorf("%+v, not %s", steps, want)
		}
	}
}
