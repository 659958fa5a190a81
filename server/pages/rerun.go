package pages

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/server/failures"
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

// rerunPage has the contents of again.html: what became of a form that runs bundles again, if not all can be.
type rerunPage struct {
	Made    int
	Refused []refusedRun
	// Next is the address of the page that has sent the form.
	Next string
}

// refusedRun is a bundle that does not run again.
type refusedRun struct {
	// Name is empty for one that the user may not read.
	UUID, Name, Why string
}

// rerun makes runs again: members of a sweep that the user may change in it, others on the user's home worksheet. If some
// cannot run again, the others do, and the page tells the reasons.
func (p *Pages) rerun(v *visit, form url.Values, uuids []string) (answer, error) {
	if len(uuids) > mostAgain {
		return nil, rest.Refuse(http.StatusBadRequest, "One form runs at most %d bundles again.", mostAgain)
	}
	path, q := backTo(form)
	page := rerunPage{Next: path + "?" + q.Encode()}
	var runs []codalab.Bundle
	for _, uuid := range uuids {
		b, err := v.api.Bundle(v.Context(), uuid)
		switch {
		case isUnreadable(err):
			page.Refused = append(page.Refused, refusedRun{UUID: uuid, Why: "There is no such bundle, or you may not read it."})
		case err != nil:
			return nil, fmt.Errorf("run again: %w", err)
		case b.Type != codalab.TypeRun:
			page.refuse(b.Bundle, "It is no run: only runs can be run again.")
		default:
			runs = append(runs, b.Bundle)
		}
	}
	if err := p.makeAgain(v, &page, runs, form.Get("sweep")); err != nil {
		return nil, err
	}
	if len(page.Refused) == 0 {
		return goTo(afterAction(form, page.Made)), nil
	}
	if page.Made == 0 { // such a form may be sent again
		return nil, p.show(v, http.StatusBadRequest, "again", "Run again", page)
	}
	return func(v *visit) error { return p.show(v, http.StatusOK, "again", "Run again", page) }, nil
}

func (page *rerunPage) refuse(b codalab.Bundle, why string) {
	page.Refused = append(page.Refused, refusedRun{b.UUID, b.Metadata.String("name"), why})
}

// makeAgain makes runs like these ones, those of one worksheet with one request. It fails only if it has made none.
func (p *Pages) makeAgain(v *visit, page *rerunPage, runs []codalab.Bundle, sweep string) error {
	sheets, err := sheetsOf(v, runs, sweep)
	if err != nil {
		return err
	}
	lists := map[string][]codalab.Bundle{}
	for i, b := range runs {
		lists[sheets[i]] = append(lists[sheets[i]], b)
	}
	for _, sheet := range slices.Sorted(maps.Keys(lists)) {
		if err := p.makeOn(v, page, sheet, lists[sheet]); err != nil {
			return err
		}
	}
	return nil
}

// makeOn is makeAgain for one worksheet. If the server refuses the request, which it does for one wrong run, each run has its own.
func (p *Pages) makeOn(v *visit, page *rerunPage, sheet string, runs []codalab.Bundle) error {
	var list []client.NewBundle
	for _, b := range runs {
		list = append(list, runLike(b, sheet))
	}
	_, err := v.api.CreateBundles(v.Context(), list)
	why, refused := sentence(err)
	switch {
	case err == nil:
		page.Made += len(runs)
		return nil
	case refused && len(runs) > 1:
		for _, b := range runs {
			if err := p.makeOn(v, page, sheet, []codalab.Bundle{b}); err != nil {
				return err
			}
		}
		return nil
	case !refused && page.Made == 0:
		return fmt.Errorf("run again: %w", err)
	case !refused:
		failures.Log(v.Context(), p.config.Log, "run bundles again", err)
		why = "The server failed. Try it again."
	}
	for _, b := range runs {
		page.refuse(b, why)
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
