package pages

import (
	"fmt"
	"net/http"
	"net/url"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/failures"
)

// partlyPage has the contents of partly.html: what became of a form that acts on several bundles, if it could not act on all.
type partlyPage struct {
	// Action is that of the form, and Did the number of bundles on which it has acted.
	Action string
	Did    int
	Left   []leftBundle
	// Next is the address of the page that has sent the form.
	Next string
}

// leftBundle is a bundle on which the form has not acted.
type leftBundle struct {
	// Name is empty for one that the user may not read.
	UUID, Name, Why string
}

// Heading is the page's heading.
func (page partlyPage) Heading() string {
	return map[string]string{"kill": "Kill", "remove": "Remove", "rerun": "Run again"}[page.Action]
}

// Done is a sentence about the bundles on which the form has acted.
func (page partlyPage) Done() string { return didTo(page.Action, page.Did) }

func (page *partlyPage) leave(b codalab.Bundle, why string) {
	page.Left = append(page.Left, leftBundle{b.UUID, b.Metadata.String("name"), why})
}

// partly answers a form of a list that has acted on all bundles but those which the page has left.
func (p *Pages) partly(v *visit, form url.Values, page partlyPage) (answer, error) {
	if len(page.Left) == 0 {
		return goTo(afterAction(form, page.Did)), nil
	}
	path, q := backTo(form)
	page.Action, page.Next = form.Get("action"), path+"?"+q.Encode()
	if page.Did == 0 { // such a form may be sent again
		return nil, p.show(v, http.StatusBadRequest, "partly", page.Heading(), page)
	}
	return func(v *visit) error { return p.show(v, http.StatusOK, "partly", page.Heading(), page) }, nil
}

// mostNamed is the number of bundles that are read for their names alone.
const mostNamed = 100

// eachOf is each for bundles that have not been read.
func (p *Pages) eachOf(v *visit, form url.Values, uuids []string, act func([]string) error) (answer, error) {
	if len(uuids) == 1 { // the refusal of one needs no table
		if err := act(uuids); err != nil {
			return nil, fmt.Errorf("act on a bundle: %w", err)
		}
		return goTo(afterAction(form, 1)), nil
	}
	var page partlyPage
	bundles := make([]codalab.Bundle, len(uuids))
	for i, uuid := range uuids {
		bundles[i].UUID = uuid
	}
	err := p.each(v, &page, bundles, func(some []codalab.Bundle) error {
		var uuids []string
		for _, b := range some {
			uuids = append(uuids, b.UUID)
		}
		return act(uuids)
	})
	if err != nil {
		return nil, err
	}
	for i := range page.Left[:min(len(page.Left), mostNamed)] {
		left := &page.Left[i]
		if b, err := v.api.Bundle(v.Context(), left.UUID); err == nil { // else it has its UUID
			left.Name = b.Metadata.String("name")
		}
	}
	return p.partly(v, form, page)
}

// each acts on as many of the bundles as the server lets it, in few requests: on all at once, and if the server refuses that
// on the one half and the other. It fails only if it has acted on none.
func (p *Pages) each(v *visit, page *partlyPage, bundles []codalab.Bundle, act func([]codalab.Bundle) error) error {
	if len(bundles) == 0 {
		return nil
	}
	err := act(bundles)
	why, refused := sentence(err)
	switch {
	case err == nil:
		page.Did += len(bundles)
		return nil
	case refused && len(bundles) > 1:
		half := len(bundles) / 2
		if err := p.each(v, page, bundles[:half], act); err != nil {
			return err
		}
		return p.each(v, page, bundles[half:], act)
	case !refused && page.Did == 0:
		return fmt.Errorf("act on bundles: %w", err)
	case !refused:
		failures.Log(v.Context(), p.config.Log, "act on bundles", err)
		why = "The server failed. Try it again."
	}
	for _, b := range bundles {
		page.leave(b, why)
	}
	return nil
}
