package pages

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

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
	// calls is the number of requests so far.
	calls int
	// over is the reason for which no further bundle is tried; empty if there is none.
	over string
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

func (page *partlyPage) leaveAll(bundles []codalab.Bundle, why string) {
	for _, b := range bundles {
		page.leave(b, why)
	}
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

const (
	// mostOfAForm is the number of bundles on which one form acts: the rows of the longest page that has such a form.
	mostOfAForm = 1000
	// mostNamed is the number of bundles that one search reads, and that a page names before it removes them.
	mostNamed = 100
	// mostCalls is the number of requests of one form after which no refused one is tried again in parts.
	mostCalls = 200
)

// eachOf is each for bundles that have not been read.
func (p *Pages) eachOf(v *visit, form url.Values, uuids []string, act func([]string) error) (answer, error) {
	if len(uuids) == 1 { // the refusal of one needs no table
		if err := act(uuids); err != nil {
			return nil, fmt.Errorf("act on a bundle: %w", err)
		}
		return goTo(afterAction(form, 1)), nil
	}
	bundles, err := p.named(v, uuids)
	if err != nil {
		return nil, err
	}
	var page partlyPage
	err = p.each(v, &page, usersFirst(bundles), func(some []codalab.Bundle) error {
		var uuids []string
		for _, b := range some {
			uuids = append(uuids, b.UUID)
		}
		return act(uuids)
	})
	if err != nil {
		return nil, err
	}
	return p.partly(v, form, page)
}

// named returns bundles with their names, states, sizes and dependencies. Those that the user may not read have their UUIDs alone.
func (p *Pages) named(v *visit, uuids []string) ([]codalab.Bundle, error) {
	bundles, place := make([]codalab.Bundle, len(uuids)), map[string]int{}
	var asked []string
	for i, uuid := range uuids {
		bundles[i].UUID, place[uuid] = uuid, i
		if codalab.IsUUID(uuid) { // a form may have any text
			asked = append(asked, uuid)
		}
	}
	for some := range slices.Chunk(asked, mostNamed) {
		words := []string{"uuid=" + strings.Join(some, ","), ".limit=" + strconv.Itoa(mostNamed)}
		found, _, err := v.api.FindBundles(v.Context(), "", words, nil, []string{"name", "data_size"})
		if err != nil {
			return nil, fmt.Errorf("read the names of bundles: %w", err)
		}
		for _, b := range found {
			bundles[place[b.UUID]] = b.Bundle
		}
	}
	return bundles, nil
}

// usersFirst returns bundles in an order in which each comes after those of them that depend on it, because the server removes
// no bundle on which others depend. Else the order stays.
func usersFirst(bundles []codalab.Bundle) []codalab.Bundle {
	place, added := map[string]int{}, make([]bool, len(bundles))
	for i, b := range bundles {
		place[b.UUID] = i
	}
	var ordered []codalab.Bundle // from the end
	var add func(int)
	add = func(i int) {
		if added[i] {
			return
		}
		added[i] = true
		for _, d := range bundles[i].Dependencies {
			if parent, there := place[d.ParentUUID]; there {
				add(parent)
			}
		}
		ordered = append(ordered, bundles[i])
	}
	for i := len(bundles) - 1; i >= 0; i-- {
		add(i)
	}
	slices.Reverse(ordered)
	return ordered
}

// each acts on as many of the bundles as the server lets it, in few requests: on all at once, and if the server refuses that
// on the one half, and then on the other. After mostCalls requests it splits nothing more: the parts that it has still to try are
// few, one of each size. It fails only if it has acted on none.
func (p *Pages) each(v *visit, page *partlyPage, bundles []codalab.Bundle, act func([]codalab.Bundle) error) error {
	if len(bundles) == 0 {
		return nil
	}
	if page.over != "" {
		page.leaveAll(bundles, page.over)
		return nil
	}
	page.calls++
	err := act(bundles)
	why, refused := sentence(err)
	switch {
	case err == nil:
		page.Did += len(bundles)
		return nil
	case !refused || isStatus(err, http.StatusTooManyRequests): // it concerns all bundles
		if page.Did == 0 {
			return fmt.Errorf("act on bundles: %w", err)
		}
		if !refused {
			failures.Log(v.Context(), p.config.Log, "act on bundles", err)
			why = "The server failed. Try it again."
		}
		page.over = why
	case len(bundles) > 1 && page.calls < mostCalls:
		half := len(bundles) / 2
		if err := p.each(v, page, bundles[:half], act); err != nil {
			return err
		}
		return p.each(v, page, bundles[half:], act)
	case len(bundles) > 1:
		why = "The server refused this bundle and others together. Try this one alone."
	}
	page.leaveAll(bundles, why)
	return nil
}
