package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab/client"
)

// placeError is the server's error about the specs of bundles on a worksheet, most often that one of them names none.
type placeError struct {
	error
	at    *workspace
	specs []string
}

// Unwrap returns the server's error.
func (e *placeError) Unwrap() error { return e.error }

// names reports whether the error is about a spec. Both servers write it so (codalab/lib/canonicalize.py:
// get_bundle_uuid).
func (e *placeError) names(spec string) bool {
	return strings.Contains(e.Error(), "bundle spec "+spec+" doesn't match any bundles")
}

var plainName = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_.-]*$`)

// tellPlace adds to the error about a name without a bundle where the user has bundles of that name, because names hold on
// one worksheet: after cl work, the bundles of before have to be named with their worksheet.
func (c *cli) tellPlace(ctx context.Context, err error) error {
	missing, ok := errors.AsType[*placeError](err)
	if !ok || !isNotFound(err) || c.quiet {
		return err
	}
	if _, done := errors.AsType[*explained](err); done {
		return err
	}
	for _, spec := range missing.specs {
		if plainName.MatchString(spec) && missing.names(spec) {
			if place := missing.at.place(ctx, spec); place != "" {
				return &explained{error: err, text: fmt.Sprintf("%v on this worksheet. Your newest bundle of that name is %s", explain(err), place)}
			}
		}
	}
	return err
}

// place returns a spec, valid everywhere on the server, of the user's newest bundle of a name; empty if there is none or
// nobody answers.
func (w *workspace) place(ctx context.Context, name string) string {
	sheet, err := w.worksheetUUID(ctx)
	if err != nil {
		return ""
	}
	found, _, err := w.SearchBundles(ctx, sheet, []string{".mine", "name=" + name, "id=.sort-", ".limit=1"})
	if err != nil || len(found) == 0 {
		return ""
	}
	b, err := w.Bundle(ctx, found[0].UUID, client.IncludeWorksheets)
	if err != nil || len(b.HostWorksheets) == 0 {
		return found[0].UUID
	}
	return b.HostWorksheets[0].Name + "//" + name
}
