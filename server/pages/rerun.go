package pages

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"

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

// rerun makes runs again: members of a sweep that the user may change in it, others on the user's home worksheet. If some
// cannot run again, the others do, and the page tells the reasons.
func (p *Pages) rerun(v *visit, form url.Values, uuids []string) (answer, error) {
	if len(uuids) > mostAgain {
		return nil, rest.Refuse(http.StatusBadRequest, "One form runs at most %d bundles again.", mostAgain)
	}
	var page partlyPage
	var runs []codalab.Bundle
	for _, uuid := range uuids {
		b, err := v.api.Bundle(v.Context(), uuid)
		switch {
		case isUnreadable(err):
			page.Left = append(page.Left, leftBundle{UUID: uuid, Why: "There is no such bundle, or you may not read it."})
		case err != nil:
			return nil, fmt.Errorf("run again: %w", err)
		case b.Type != codalab.TypeRun:
			page.leave(b.Bundle, "It is no run: only runs can be run again.")
		default:
			runs = append(runs, b.Bundle)
		}
	}
	if err := p.makeAgain(v, &page, runs, form.Get("sweep")); err != nil {
		return nil, err
	}
	return p.partly(v, form, page)
}

// makeAgain makes runs like these ones, those of one worksheet with one request. It fails only if it has made none.
func (p *Pages) makeAgain(v *visit, page *partlyPage, runs []codalab.Bundle, sweep string) error {
	sheets, err := sheetsOf(v, runs, sweep)
	if err != nil {
		return err
	}
	lists := map[string][]codalab.Bundle{}
	for i, b := range runs {
		lists[sheets[i]] = append(lists[sheets[i]], b)
	}
	for _, sheet := range slices.Sorted(maps.Keys(lists)) {
		err := p.each(v, page, lists[sheet], func(some []codalab.Bundle) error {
			var list []client.NewBundle
			for _, b := range some {
				list = append(list, runLike(b, sheet))
			}
			_, err := v.api.CreateBundles(v.Context(), list)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// sheetsOf returns the worksheet of a run like each of these ones.
func sheetsOf(v *visit, runs []codalab.Bundle, sweep string) ([]string, error) {
	if sweep != "" {
		if w, err := v.api.WorksheetAccess(v.Context(), sweep); err != nil || !mayChange(w) {
			sweep = "" // a sweep of somebody else's
		}
	}
	home := ""
	sheets := make([]string, len(runs))
	for i, b := range runs {
		if sheets[i] = sweep; sweep != "" && b.Metadata.Sweep() == sweep {
			continue
		}
		if home == "" {
			w, err := v.api.FindWorksheet(v.Context(), "", client.HomeWorksheet)
			if err != nil {
				return nil, fmt.Errorf("run again: %w", err)
			}
			home = w.UUID
		}
		sheets[i] = home
	}
	return sheets, nil
}
