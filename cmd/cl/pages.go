package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/cl-slurm/cl-slurm/codalab/client"
)

// bundleQuery is a search whose results are read in pages.
type bundleQuery struct {
	keywords []string
	// include names related objects beside the owner.
	include []string
	// keys are the keys of metadata that are needed; none means all.
	keys []string
}

const (
	// bundlesPage is the number of bundles that one request asks for: a server of any kind answers within a second.
	bundlesPage = 500
	// mostBundles bounds a query, so that a command never asks without end.
	mostBundles = 100_000
)

// everyBundle returns all bundles that a query finds, in the order in which they were made.
func (w *workspace) everyBundle(ctx context.Context, q bundleQuery) ([]client.BundleInfo, error) {
	var all []client.BundleInfo
	seen := map[string]bool{}
	for offset := 0; offset < mostBundles; offset += bundlesPage {
		words := append([]string{}, q.keywords...)
		words = append(words, "id=.sort", ".limit="+strconv.Itoa(bundlesPage), ".offset="+strconv.Itoa(offset))
		page, _, err := w.FindBundles(ctx, "", words, append([]string{client.IncludeOwner}, q.include...), q.keys)
		if err != nil {
			return nil, err
		}
		for _, b := range page {
			if !seen[b.UUID] { // others may change what is found meanwhile
				seen[b.UUID] = true
				all = append(all, b)
			}
		}
		if len(page) < bundlesPage {
			return all, nil
		}
	}
	return nil, refusef("More than %d bundles match: choose fewer.", mostBundles)
}

// countOf spells a number of things in words.
func countOf(n int, one, several string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, several)
}

// bundleCount spells a number of bundles.
func bundleCount(n int) string { return countOf(n, "bundle", "bundles") }
