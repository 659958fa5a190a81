package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/spelling"
)

// mostFound is the most bundles that a search returns (server/store: MaxFound). CodaLab's own server has no such bound.
const mostFound = 10_000

// mostRead is the most bundles whose files cl reads for a search by values on a server that does not know values.
const mostRead = mostFound

// everything returns keywords with the bound of all matches, unless they have one.
func everything(keywords []string) []string {
	if isLimited(keywords) {
		return keywords
	}
	return append(slices.Clone(keywords), fmt.Sprint(".limit=", mostFound+1))
}

func isLimited(keywords []string) bool {
	return slices.ContainsFunc(keywords, func(k string) bool { return strings.HasPrefix(k, ".limit=") })
}

// find searches for bundles on any server. It judges what CodaLab's own server does not: keywords that are misspelt, which
// find nothing there, and values in files.
func (w *workspace) find(ctx context.Context, worksheet string, keywords []string, keys ...string) (found []client.BundleInfo, number json.RawMessage, err error) {
	local, err := w.localSearch(ctx, keywords)
	if err != nil {
		return nil, nil, err
	}
	if local != nil {
		return w.findLocally(ctx, worksheet, *local)
	}
	found, number, err = w.ListBundles(ctx, worksheet, keywords, keys...)
	if err == nil {
		err = checkFound(found, number, keywords)
	}
	return found, number, err
}

// checkFound refuses a part that could be taken for the whole, and a search that has found nothing because of a keyword.
func checkFound(found []client.BundleInfo, number json.RawMessage, keywords []string) error {
	if len(found) > mostFound {
		return refusef("More than %d match; ask for them in parts, with .limit and .offset", mostFound)
	}
	if text := strings.TrimSpace(string(number)); len(found) > 0 || text != "" && text != "0" && text != "null" {
		return nil
	}
	if text := codalab.SearchMistake(keywords, spelling.Nearest); text != "" {
		return refusef("%s", text)
	}
	return nil
}

// knowsValues reports whether the server knows values in files. CodaLab's own does not.
func (w *workspace) knowsValues(ctx context.Context) (bool, error) {
	_, err := w.Queues(ctx)
	if errors.Is(err, errors.ErrUnsupported) {
		return false, nil
	}
	return err == nil, err
}

// localSearch is a search of which the server does a part, and cl the rest.
type localSearch struct {
	// words are the keywords for the server, with its order.
	words []string
	conds []codalab.Comparison
	// sort is the value in a file to sort by; empty to keep the server's order.
	sort          string
	descending    bool
	count         bool
	limit, offset int
}

// localSearch returns the search with what the server does not know done by cl; nil if the server knows all of it.
func (w *workspace) localSearch(ctx context.Context, keywords []string) (*localSearch, error) {
	isNew := func(word string) bool { _, ok := codalab.ParseComparison(word); return ok }
	if !slices.ContainsFunc(keywords, isNew) {
		return nil, nil //nolint:nilnil // as it says
	}
	if knows, err := w.knowsValues(ctx); err != nil || knows {
		return nil, err
	}
	return splitSearch(keywords)
}

// splitSearch splits a search.
func splitSearch(keywords []string) (*localSearch, error) {
	s := &localSearch{limit: searchLimit}
	for _, word := range keywords {
		c, isNew := codalab.ParseComparison(word)
		key, value, _ := strings.Cut(word, "=")
		switch {
		case word == ".count":
			s.count = true
		case key == ".limit" || key == ".offset":
			n, err := strconv.Atoi(value)
			if err != nil || n < 0 {
				return nil, refusef("%s must be a number of at least 0, not '%s'", key, value)
			}
			if key == ".limit" {
				s.limit = n
			} else {
				s.offset = n
			}
		case !isNew:
			s.words = append(s.words, word)
			if slices.Contains([]string{".sort", ".sort-"}, value) || word == ".last" {
				s.sort = ""
			}
		case c.Op == "=" && (c.Value == ".sort" || c.Value == ".sort-"):
			s.sort, s.descending = c.Key, c.Value == ".sort-"
			s.conds = append(s.conds, codalab.Comparison{Key: c.Key})
		case c.Op == "=" && c.Value == ".sum":
			return nil, refusef("CodaLab's own server does not know values in files, and cl adds none up; cl search --csv -f %s prints them", c.Key)
		default:
			if _, ok := c.Bound(); strings.ContainsAny(c.Op, "<>") && !ok {
				return nil, refusef("%s%s needs a number, not '%s'", c.Key, c.Op, c.Value)
			}
			s.conds = append(s.conds, c)
		}
	}
	return s, nil
}

// findLocally reads the values of the bundles that the server finds, and chooses and sorts by them.
func (w *workspace) findLocally(ctx context.Context, worksheet string, s localSearch) ([]client.BundleInfo, json.RawMessage, error) {
	all, number, err := w.SearchBundles(ctx, worksheet, append(slices.Clone(s.words), fmt.Sprint(".limit=", mostRead+1)))
	switch {
	case err != nil || number != nil:
		return nil, number, err
	case len(all) > mostRead:
		return nil, nil, refusef("CodaLab's own server does not know values in files: cl reads them itself, of at most %d bundles, "+
			"and more match; add a keyword, such as host_worksheet=UUID", mostRead)
	}
	var fields []string
	for _, c := range s.conds {
		if isFile(c.Key) && !slices.Contains(fields, c.Key) {
			fields = append(fields, c.Key)
		}
	}
	values, err := w.fileValues(ctx, all, fields)
	if err != nil {
		return nil, nil, err
	}
	of := func(b client.BundleInfo, key string) any {
		if isFile(key) {
			return values[fileField{b.UUID, key}]
		}
		return fieldOf(b, key)
	}
	found := slices.DeleteFunc(all, func(b client.BundleInfo) bool {
		return slices.ContainsFunc(s.conds, func(c codalab.Comparison) bool { return !c.Holds(of(b, c.Key)) })
	})
	if s.count {
		return nil, json.RawMessage(strconv.Itoa(len(found))), nil
	}
	if s.sort != "" {
		sortByValue(found, s.descending, func(b client.BundleInfo) any { return of(b, s.sort) })
	}
	found = found[min(s.offset, len(found)):]
	return found[:min(s.limit, len(found))], nil, checkFound(found, nil, s.words)
}

// sortByValue sorts bundles as our server does: numbers come before texts, and bundles with equal ones come by age.
func sortByValue(bundles []client.BundleInfo, descending bool, of func(client.BundleInfo) any) {
	sign := 1
	if descending {
		sign = -1
	}
	slices.SortStableFunc(bundles, func(a, b client.BundleInfo) int {
		textA, numberA, _ := codalab.ScalarValue(of(a))
		textB, numberB, _ := codalab.ScalarValue(of(b))
		switch {
		case numberA != nil && numberB != nil && *numberA != *numberB:
			return sign * cmp.Compare(*numberA, *numberB)
		case (numberA == nil) != (numberB == nil):
			if numberA != nil {
				return -1
			}
			return 1
		case numberA == nil && textA != textB:
			return sign * strings.Compare(textA, textB)
		}
		if n := cmp.Compare(a.Metadata.Float("created"), b.Metadata.Float("created")); n != 0 {
			return sign * n
		}
		return sign * strings.Compare(a.UUID, b.UUID)
	})
}

// isKeyword reports whether a word is one of cl search, and not the name of a bundle.
func isKeyword(word string) bool {
	return strings.HasPrefix(word, ".") || strings.ContainsAny(word, "=<>")
}
