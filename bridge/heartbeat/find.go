package heartbeat

import (
	"context"
	"fmt"
	"strings"

	"github.com/cl-slurm/cl-slurm/bridge/ledger"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// AmbiguousError means that a word names no single bundle: it is no UUID, job id or name, or it names
// several.
type AmbiguousError struct{ text string }

// Error names the fault of the word.
func (e *AmbiguousError) Error() string { return e.text }

// mostFound bounds the bundles that a search reads; the error for several names one fewer.
const mostFound = 4

// mostOfJob bounds the bundles of one job that are named, and is more than a pack has members.
const mostOfJob = 10_000

// FindBundle returns the bundle that a word names: by its UUID or the beginning of it, by the id of a job that it has
// or had, or by its name. name is that of the ledger, for errors. It returns an *AmbiguousError for a word that no one
// could resolve.
func FindBundle(ctx context.Context, r *ledger.Reader, name, word string) (string, error) {
	job, notJob := sbatch.ParseJobID(word)
	switch {
	case codalab.IsUUID(word):
		return word, nil
	case codalab.IsUUIDPrefix(word):
		bundles, err := r.Bundles(ctx, word, mostFound)
		return single(bundles, err, fmt.Sprintf("no bundle whose UUID begins with %s in the ledger %s", word, name), word+" is the beginning of several bundles")
	case notJob == nil:
		bundles, err := r.BundlesOfJob(ctx, job, mostOfJob)
		if len(bundles) > 1 {
			return "", &AmbiguousError{fmt.Sprintf("job %s is of %d bundles, which share it, or Slurm has used its id again: %s", word, len(bundles), strings.Join(bundles, ", "))}
		}
		return single(bundles, err, fmt.Sprintf("no bundle of job %s in the ledger %s", word, name), "")
	case codalab.IsName(word):
		return findNamed(ctx, r, name, word)
	}
	return "", &AmbiguousError{fmt.Sprintf("%q names no bundle: want its UUID or the beginning of it (0x and hexadecimal digits), the id of its job, or its name", termtext.Line(word))}
}

// findNamed returns the bundle with a name. Names are often used again: with several, the error has the phases.
func findNamed(ctx context.Context, r *ledger.Reader, ledgerName, word string) (string, error) {
	rows, err := r.RowsNamed(ctx, word)
	var bundles []string
	for _, row := range rows {
		bundles = append(bundles, fmt.Sprintf("%s (%s, claimed %s)", row.Bundle, row.Phase, termtext.Clock(row.OfferedAt)))
	}
	if len(rows) == 1 {
		bundles[0] = rows[0].Bundle
	}
	return single(bundles[:min(len(bundles), mostFound)], err,
		fmt.Sprintf("no bundle named %s in the ledger %s: names are known until keep_after_ack after a bundle's end, and then its UUID or its job id names it", word, ledgerName),
		word+" is the name of several bundles")
}

// single returns the only one of the bundles, or an error.
func single(bundles []string, err error, none, several string) (string, error) {
	switch {
	case err != nil:
		return "", err
	case len(bundles) == 0:
		return "", fmt.Errorf("%s", none)
	case len(bundles) == 1:
		return bundles[0], nil
	}
	shown := strings.Join(bundles[:min(len(bundles), mostFound-1)], ", ")
	if len(bundles) == mostFound {
		shown += ", …"
	}
	return "", &AmbiguousError{several + ": " + shown}
}
