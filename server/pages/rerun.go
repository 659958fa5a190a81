package pages

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/server/rest"
)

// mostAgain is the number of runs that one form makes again.
const mostAgain = 100

// runLike is a run like another one, as cl run --like makes it. A member of the sweep that sheet is stays one.
func runLike(old codalab.Bundle, sheet string) client.NewBundle {
	m := old.MetadataLike(nil)
	if old.Metadata.Sweep() == sheet {
		m["tags"] = append(m.Strings("tags"), codalab.SweepTags(sheet, old.Metadata.Settings())...)
	}
	m.WithDefaults(codalab.TypeRun)
	return client.NewBundle{
		UUID: codalab.NewUUID(), Worksheet: sheet, Type: codalab.TypeRun, Command: old.CommandText(), Metadata: m, Dependencies: old.Dependencies,
		CheckRequests: true,
	}
}

// rerun makes runs again: members of a sweep that the user may change in it, others on the user's home worksheet.
func (p *Pages) rerun(v *visit, uuids []string, sweep string) error {
	if len(uuids) > mostAgain {
		return rest.Refuse(http.StatusBadRequest, "One form runs at most %d bundles again.", mostAgain)
	}
	if sweep != "" {
		if w, err := v.api.WorksheetAccess(v.Context(), sweep); err != nil || !mayChange(w) {
			sweep = "" // a sweep of somebody else's
		}
	}
	found, err := v.api.Bundles(v.Context(), "", uuids)
	if err != nil {
		return fmt.Errorf("run again: %w", err)
	}
	var home string
	lists := map[string][]client.NewBundle{}
	for _, b := range found {
		if b.Type != codalab.TypeRun {
			return rest.Refuse(http.StatusBadRequest, "%s is no run: only runs can be run again.", b.Metadata.String("name"))
		}
		sheet := sweep
		if sheet == "" || b.Metadata.Sweep() != sheet {
			if home == "" {
				w, err := v.api.FindWorksheet(v.Context(), "", client.HomeWorksheet)
				if err != nil {
					return fmt.Errorf("run again: %w", err)
				}
				home = w.UUID
			}
			sheet = home
		}
		lists[sheet] = append(lists[sheet], runLike(b.Bundle, sheet))
	}
	var failed error
	for _, list := range lists {
		_, err := v.api.CreateBundles(v.Context(), list)
		failed = errors.Join(failed, err)
	}
	if failed != nil {
		return fmt.Errorf("run again: %w", failed)
	}
	return nil
}
