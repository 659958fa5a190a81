package ledger_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"
	_ "modernc.org/sqlite" // the driver

	"github.com/cl-slurm/cl-slurm/bridge/ledger"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
)

// usualRows returns rows like those of a site: they differ in their digits.
func usualRows(tb testing.TB, n int) []plan.Row {
	tb.Helper()
	template, err := os.ReadFile("testdata/usual.json")
	if err != nil {
		tb.Fatal(err)
	}
	random, digits := rand.New(rand.NewPCG(1, 2)), regexp.MustCompile(`[0-9a-f]{12,}`)
	rows := make([]plan.Row, n)
	for i := range rows {
		own := map[string]string{}
		text := digits.ReplaceAllStringFunc(string(template), func(old string) string {
			if own[old] == "" {
				for len(own[old]) < len(old) {
					own[old] += fmt.Sprintf("%016x", random.Uint64())
				}
			}
			return own[old][:len(old)]
		})
		if err := json.Unmarshal([]byte(text), &rows[i]); err != nil {
			tb.Fatal(err)
		}
	}
	return rows
}

// reasons are the reasons in a bundle's usual life.
var reasons = []struct {
	phase  plan.Phase
	reason string
}{
	{plan.Claiming, "the server offered the bundle"},
	{plan.Staging, "the server confirmed the claim"},
	{plan.Staging, "image and dependencies are ready"},
	{plan.Submitting, "attempt 1 goes to Slurm"},
	{plan.Queued, "job 123456: sbatch accepted it"},
	{plan.Running, "the attempt began on node0417"},
	{plan.Collecting, "the attempt ended: succeeded"},
	{plan.Collecting, "try 1 failed: PUT /bundles/contents/blob/: cannot reach the server: connection refused"},
	{plan.Finalizing, "the results are with the server: 97.7k in 3 entries"},
	{plan.Done, "the server acknowledged the verdict"},
}

// used returns the number of bytes of the file that are used.
func used(t *testing.T, where string) (used, all int64) {
	t.Helper()
	db, err := sqlx.Open("sqlite", where)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var pages, free int64
	if err := db.Get(&pages, `PRAGMA page_count`); err != nil {
		t.Fatal(err)
	}
	if err := db.Get(&free, `PRAGMA freelist_count`); err != nil {
		t.Fatal(err)
	}
	return (pages - free) * 4096, pages * 4096
}

// A hundred thousand bundles a day keep their rows for a day and their histories for
// DefaultKeepHistory. The file must stay below a gigabyte.
func TestHundredThousandBundlesADayTakeLessThanAGigabyte(t *testing.T) {
	t.Parallel()
	where := file(t)
	l := open(t, where)
	empty, _ := used(t, where)
	const bundles = 500
	rows := usualRows(t, bundles)
	for _, life := range reasons {
		for part := range slices.Chunk(rows, 256) {
			for i := range part {
				part[i].Phase, part[i].Reason = life.phase, life.reason
			}
			save(t, l, part...)
		}
	}
	row, _ := used(t, where)
	for _, r := range rows {
		if err := l.Delete(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	forgotten, size := used(t, where)
	row, forgotten = (row-empty)/bundles, (forgotten-empty)/bundles
	const daily = 100_000
	days := int64(ledger.DefaultKeepHistory / (24 * time.Hour))
	total := daily*row + daily*days*forgotten
	t.Logf("a row and its history take %d bytes, a history alone %d; together %d MB", row, forgotten, total>>20)
	if total > 1<<30 {
		t.Errorf("a row and its history take %d bytes, a history alone %d: together %d MB, want less than 1024", row, forgotten, total>>20)
	}
	if size > 2*forgotten*bundles+16*256<<10 {
		t.Errorf("the file has %d kB, of which %d are used", size>>10, forgotten*bundles>>10)
	}
	if got := entries(t, l, rows[7].Bundle); len(got) != len(reasons) || got[9].Reason != reasons[9].reason || got[9].Phase != plan.Done {
		t.Errorf("the history of a forgotten bundle: %+v", got)
	}
}
