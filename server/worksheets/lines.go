package worksheets

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/access"
	"github.com/cl-slurm/cl-slurm/server/interpret"
	"github.com/cl-slurm/cl-slurm/server/rest"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// lines answers with a worksheet as people edit it (codalab/lib/worksheet_util.py: get_worksheet_lines). The ETag is a digest
// of the items.
func (s *Worksheets) lines(w http.ResponseWriter, r *http.Request, u store.User) error {
	ctx := r.Context()
	sheet, _, err := s.config.Access.OpenWorksheet(ctx, u, r.PathValue("uuid"), store.PermissionRead)
	if err != nil {
		return err
	}
	items, err := s.config.Store.Items(ctx, sheet.UUID)
	if err != nil {
		return err
	}
	var shown interpret.Worksheet
	if shown.Bundles, err = s.bundlesWithoutHosts(ctx, u, bundleIDs(items), "name"); err != nil {
		return err
	}
	if err := s.addItemsTo(ctx, u, &shown, items); err != nil {
		return err
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("ETag", `"`+store.ItemsTag(items)+`"`)
	_, _ = io.WriteString(w, strings.Join(interpret.Lines(shown.Items, shown.Bundles, shown.Worksheets), "\n")) // fails if the client has gone
	return nil
}

// readLines reads the lines of a worksheet that a person has written.
func readLines(w http.ResponseWriter, r *http.Request) ([]string, error) {
	text, err := rest.ReadBody(w, r)
	if err != nil {
		return nil, err
	}
	lines := strings.Split(strings.ToValidUTF8(strings.ReplaceAll(string(text), "\x00", "\ufffd"), "\ufffd"), "\n") // as readJSON does
	return lines, checkItems(len(lines))
}

// storedItems returns items as the store has them.
func storedItems(items []interpret.Item) []store.Item {
	list := make([]store.Item, 0, len(items))
	for _, one := range items {
		item := store.Item{Type: one.Type, Value: one.Value}
		if one.BundleUUID != "" {
			item.BundleUUID = &one.BundleUUID
		}
		if one.SubworksheetUUID != "" {
			item.Subworksheet = &one.SubworksheetUUID
		}
		list = append(list, item)
	}
	return list
}

// setLines replaces the items of a worksheet by those that a person has written as lines
// (codalab/rest/worksheets.py: update_worksheet_raw).
func (s *Worksheets) setLines(w http.ResponseWriter, r *http.Request, u store.User) error {
	ctx := r.Context()
	lines, err := readLines(w, r)
	if err != nil {
		return err
	}
	sheet, err := s.config.Access.Changeable(ctx, u, r.PathValue("uuid"))
	if err != nil {
		return err
	}
	resolve, err := s.keepingLinks(ctx, sheet, s.resolver(ctx, u, sheet))
	if err != nil {
		return err
	}
	parsed, err := interpret.ParseForm(lines, resolve)
	if err != nil {
		return usage(err)
	}
	for _, one := range parsed {
		if err := checkItem(one.Value); err != nil {
			return err
		}
	}
	tag, err := matchedTag(r.Header.Values("If-Match"))
	if err != nil {
		return err
	}
	err = s.config.Store.EditItems(ctx, sheet.UUID, tag, storedItems(parsed), store.Time{Time: s.config.Now()})
	if errors.Is(err, store.ErrChanged) {
		return rest.Refuse(http.StatusPreconditionFailed, "The worksheet has changed since it was read; nothing was saved.")
	}
	if err != nil {
		return access.FullWorksheet(err)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// keepingLinks returns a resolver that also finds the worksheets to which the worksheet leads already: who edits it need not
// be able to read them, and others are.
func (s *Worksheets) keepingLinks(ctx context.Context, sheet store.Worksheet, resolve interpret.Resolver) (interpret.Resolver, error) {
	items, err := s.config.Store.Items(ctx, sheet.UUID)
	if err != nil {
		return resolve, err
	}
	linked := map[string]bool{}
	for _, item := range items {
		if item.Subworksheet != nil {
			linked[*item.Subworksheet] = true
		}
	}
	find := resolve.Worksheet
	resolve.Worksheet = func(spec string) (string, error) {
		if linked[spec] {
			return spec, nil
		}
		return find(spec)
	}
	return resolve, nil
}

// matchedTag is the tag of If-Match (RFC 9110, 13.1.1); empty for any state of the worksheet.
func matchedTag(values []string) (string, error) {
	if len(values) == 0 || len(values) == 1 && values[0] == "*" {
		return "", nil
	}
	tag := strings.Trim(strings.TrimPrefix(values[0], "W/"), `"`) // a proxy that compresses weakens tags
	if len(values) > 1 || tag == "" || strings.ContainsAny(tag, `",`) {
		return "", rest.Refuse(http.StatusPreconditionFailed, "If-Match has to have one tag; nothing was saved.")
	}
	return tag, nil
}

// resolver finds the bundles and worksheets that lines of a worksheet name.
func (s *Worksheets) resolver(ctx context.Context, u store.User, sheet store.Worksheet) interpret.Resolver {
	return interpret.Resolver{
		Bundle: func(spec string) (string, error) {
			return s.config.Access.ResolveBundle(ctx, u, sheet.UUID, spec)
		},
		Worksheet: func(spec string) (string, error) {
			found, err := s.config.Access.ResolveWorksheet(ctx, u, spec)
			return found.UUID, shownMistake(err)
		},
	}
}

const (
	// mostPartItems bounds the items of a part.
	mostPartItems = 1000
	// mostTextLines bounds the lines by which a part is longer, so that it does not end within a text.
	mostTextLines = 500
)

// interpretPart shows some of a worksheet's items.
func (s *Worksheets) interpretPart(w http.ResponseWriter, r *http.Request, u store.User, sheet store.Worksheet) error {
	ctx, first, most := r.Context(), 0, 0
	if err := errors.Join(rest.IntParam(r.URL.Query(), "first", &first), rest.IntParam(r.URL.Query(), "items", &most)); err != nil {
		return rest.Refuse(http.StatusBadRequest, "items and first must be numbers")
	}
	first = min(first, store.MostItems)
	end := first + min(most, mostPartItems)
	items, err := s.config.Store.FirstItems(ctx, sheet.UUID, end+mostTextLines+1)
	if err != nil {
		return err
	}
	end = behindText(items, end)
	part, err := s.part(ctx, u, sheet.UUID, items, first, end)
	if err != nil {
		return err
	}
	return rest.WriteJSON(w, http.StatusOK, part)
}

// behindText returns the end of a part that would end at this item. If lines of markup are before and behind it, the part ends
// behind all of them: a list, a table or code may go on there, across blank lines, too. If they are too many, it ends here.
func behindText(items []store.Item, end int) int {
	isText := func(i int) bool { return i < len(items) && items[i].Type == codalab.ItemMarkup }
	behind := end
	for behind > 0 && isText(behind-1) && isText(behind) {
		behind++
	}
	if behind > end+mostTextLines {
		return end
	}
	return behind
}

// part shows the items from the first one on, before the end. There may be more items.
func (s *Worksheets) part(ctx context.Context, u store.User, uuid string, items []store.Item, first, end int) (interpret.Part, error) {
	var next *int
	if len(items) > end {
		items, next = items[:end], &end
	}
	first = min(first, len(items))
	var shown interpret.Worksheet
	shown.UUID = uuid
	bundles := s.shownBundles
	if !slices.ContainsFunc(items, namesHosts) {
		bundles = func(ctx context.Context, u store.User, uuids []string) (map[string]interpret.Bundle, error) {
			return s.bundlesWithoutHosts(ctx, u, uuids, partKeys(items)...)
		}
	}
	var err error
	if shown.Bundles, err = bundles(ctx, u, bundleIDs(items[first:])); err != nil {
		return interpret.Part{}, err
	}
	if err := s.addItemsTo(ctx, u, &shown, items); err != nil {
		return interpret.Part{}, err
	}
	part, err := s.interpreter(u).Part(ctx, shown, first)
	part.Next = next
	return part, usage(err)
}

// namesHosts reports whether an item may be a column with the worksheets that have a bundle.
func namesHosts(item store.Item) bool {
	return item.Type == codalab.ItemDirective && strings.Contains(item.Value, "host_worksheet")
}

// partKeys returns the keys of bundles' metadata that items may show; none if these may show any, or what needs all of
// them. Most worksheets show a few, and the rest is most of the work of showing thousands of bundles.
func partKeys(items []store.Item) []string {
	keys := []string{"name", "data_size", "time", "description", "created"} // of the schemas that every worksheet has
	for _, item := range items {
		if item.Type != codalab.ItemDirective {
			continue
		}
		words, err := codalab.SplitWords(item.Value)
		if err != nil {
			return nil
		}
		for _, genpath := range genpaths(words) {
			switch {
			case strings.HasPrefix(genpath, "/"), slices.Contains(plainFields(), genpath), strings.HasPrefix(genpath, "dependencies/"):
			case isMetadataKey(genpath):
				keys = append(keys, genpath)
			default:
				return nil
			}
		}
	}
	return keys
}

// genpaths are those in a directive's words.
func genpaths(words []string) []string {
	var found []string
	for _, word := range words {
		if name, ok := strings.CutPrefix(word, "display_name="); ok {
			found = append(found, name)
		}
	}
	if len(words) > 1 && words[0] == "add" {
		found = append(found, words[min(2, len(words)-1)])
	}
	return found
}

// plainFields are genpaths of a bundle's fields outside its metadata.
func plainFields() []string {
	return []string{
		"uuid", "bundle_type", "owner", "owner_id", "command", "state", "frozen", "is_anonymous", "permission", "dependencies", "summary", "id", "sort_key",
	}
}

func isMetadataKey(name string) bool {
	return slices.ContainsFunc([]string{codalab.TypeRun, codalab.TypeDataset, codalab.TypeMake}, func(kind string) bool {
		return slices.ContainsFunc(codalab.MetadataKeys(kind), func(k codalab.MetadataKey) bool { return k.Key == name })
	})
}

// previewLines shows lines as they would look if they were the worksheet's items, and tells of the mistakes in them.
func (s *Worksheets) previewLines(w http.ResponseWriter, r *http.Request, u store.User) error {
	ctx, most := r.Context(), mostPartItems
	if err := rest.IntParam(r.URL.Query(), "items", &most); err != nil {
		return err
	}
	lines, err := readLines(w, r)
	if err != nil {
		return err
	}
	sheet, _, err := s.config.Access.OpenWorksheet(ctx, u, r.PathValue("uuid"), store.PermissionRead)
	if err != nil {
		return err
	}
	resolve := s.resolver(ctx, u, sheet)
	bundle := resolve.Bundle
	resolve.Bundle = func(spec string) (string, error) {
		uuid, err := bundle(spec)
		return uuid, shownMistake(err)
	}
	parsed, mistakes, err := interpret.CheckForm(lines, resolve)
	if err != nil {
		return err
	}
	items := storedItems(parsed)
	for i := range items { // as if they were stored
		items[i].ID, items[i].SortKey = int64(i+1), int64(i+1)
	}
	missing, err := s.missingBundles(ctx, u, items)
	if err != nil {
		return err
	}
	part, err := s.part(ctx, u, sheet.UUID, items, 0, min(most, mostPartItems))
	if err != nil {
		return err
	}
	part.Mistakes = slices.SortedStableFunc(slices.Values(append(mistakes, missing...)), func(a, b interpret.Mistake) int { return cmp.Compare(a.Line, b.Line) })
	return rest.WriteJSON(w, http.StatusOK, part)
}

// missingBundles returns the items whose bundles do not exist, or cannot be read by the user. Item i comes from line i+1.
func (s *Worksheets) missingBundles(ctx context.Context, u store.User, items []store.Item) ([]interpret.Mistake, error) {
	heads, err := s.config.Store.Heads(ctx, bundleIDs(items))
	if err != nil {
		return nil, err
	}
	have, err := s.config.Access.BundlePermissions(ctx, u, heads...)
	if err != nil {
		return nil, err
	}
	var missing []interpret.Mistake
	for i, item := range items {
		if uuid := rest.Deref(item.BundleUUID); uuid != "" && have[uuid] < store.PermissionRead {
			missing = append(missing, interpret.Mistake{Line: i + 1, Message: "There is no bundle " + uuid + " that you may read."})
		}
	}
	return missing, nil
}
