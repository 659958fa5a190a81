package worksheets

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/contents"
	"github.com/cl-slurm/cl-slurm/server/interpret"
	"github.com/cl-slurm/cl-slurm/server/rest"
	"github.com/cl-slurm/cl-slurm/server/search"
	"github.com/cl-slurm/cl-slurm/server/store"
)

func (s *Worksheets) interpretRoutes() []rest.Route {
	return []rest.Route{
		{Pattern: "GET /interpret/worksheet/{uuid}", Serve: s.interpretWorksheet, Public: true, Differs: "a mistake in one item becomes a block that tells of it; regular expressions are RE2; files, tables and searches are bounded; blocks of contents, images and graphs have an empty list of rows; of a progress bar contents have its last state; with items=N there are only the blocks of N items, from the one with the number first on, with bundles' uuids, types and states alone, and next is the number of the item behind them"},
		{Pattern: "POST /interpret/worksheet/{uuid}", Serve: search.Bounded(s.previewLines), Differs: "only this server has it: the first blocks of lines that would be the worksheet's items, as with items=N, and the mistakes in them; it saves nothing"},
		{Pattern: "POST /interpret/genpath-table-contents", Serve: s.interpretTable, Public: true, Differs: "bounded, as above"},
		{Pattern: "POST /interpret/search", Serve: search.Bounded(s.interpretSearch), Public: true, Differs: "searches as those of GET /bundles; bounded, as above"},
		{Pattern: "POST /interpret/wsearch", Serve: search.Bounded(s.interpretWorksheetSearch), Public: true, Differs: "searches as those of GET /worksheets; bounded, as above; the answer has no permissions"},
		{Pattern: "POST /interpret/file-genpaths", Serve: s.interpretFiles, Public: true, Differs: "bounded, as above"},
		{Pattern: "POST /interpret/values", Serve: search.Bounded(s.interpretValues), Public: true, Differs: "ours: the values in small result files of bundles, and the paths that they have"},
		{Pattern: "GET /worksheets/{uuid}/raw", Serve: s.lines, Public: true, Differs: "only this server has it: the worksheet as lines, with an ETag"},
		{Pattern: "POST /worksheets/{uuid}/raw", Serve: s.setLines, Differs: "with If-Match it saves only while the worksheet still is the one of that ETag"},
		{Pattern: "PUT /worksheets/{uuid}/raw", Serve: s.setLines, Differs: "as POST"},
	}
}

// interpretWorksheet shows a worksheet in blocks (codalab/rest/interpret.py:
// fetch_interpreted_worksheet).
func (s *Worksheets) interpretWorksheet(w http.ResponseWriter, r *http.Request, u store.User) error {
	ctx, q := r.Context(), r.URL.Query()
	brief, err := rest.BoolParam(q, "brief", false)
	if err != nil {
		return err
	}
	sheet, have, err := s.config.Access.OpenWorksheet(ctx, u, r.PathValue("uuid"), store.PermissionRead)
	if err != nil {
		return err
	}
	if q.Has("items") {
		return s.interpretPart(w, r, u, sheet)
	}
	shown, err := s.wholeWorksheet(ctx, u, sheet, have)
	if err != nil {
		return err
	}
	answer, err := s.interpreter(u).Worksheet(ctx, shown, interpret.Options{Brief: brief, Directive: q.Get("directive"), BundleUUIDs: q["bundle_uuid"]})
	if err != nil {
		return usage(err)
	}
	whole, err := withMeta(answer)
	if err != nil {
		return err
	}
	rest.WriteBody(w, http.StatusOK, whole)
	return nil
}

// withMeta returns an object in JSON with the server's version, which all of CodaLab's answers have.
func withMeta(object any) ([]byte, error) {
	text, err := json.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("encode answer: %w", err)
	}
	members, ok := bytes.CutSuffix(text, []byte("}"))
	if !ok || len(members) < len(`{"`) {
		return nil, fmt.Errorf("add meta to answer: %.20q is no object with members", text)
	}
	return append(members, `,"meta":{"version":"`+codalab.Version+`"}}`...), nil
}

// interpretTable fills in the cells of a table (codalab/rest/interpret.py:
// interpret_genpath_table_contents).
func (s *Worksheets) interpretTable(w http.ResponseWriter, r *http.Request, u store.User) error {
	var in struct {
		Contents []map[string]json.RawMessage `json:"contents"`
	}
	if err := rest.ReadJSON(w, r, &in); err != nil {
		return err
	}
	rows, err := s.interpreter(u).TableContents(r.Context(), in.Contents)
	if err != nil {
		return usage(err)
	}
	return rest.WriteJSON(w, http.StatusOK, map[string]any{"contents": rows, "meta": map[string]string{"version": codalab.Version}})
}

// interpretFiles reads genpaths of files (codalab/rest/interpret.py: interpret_file_genpaths).
func (s *Worksheets) interpretFiles(w http.ResponseWriter, r *http.Request, u store.User) error {
	var in struct {
		Queries []codalab.FileQuery `json:"queries"`
	}
	if err := rest.ReadJSON(w, r, &in); err != nil {
		return err
	}
	values, err := s.interpreter(u).FileGenpaths(r.Context(), in.Queries)
	if err != nil {
		return usage(err)
	}
	return rest.WriteDocument(w, values, nil)
}

// usage makes a refusal of a user's mistake that package interpret has found.
func usage(err error) error {
	if mistake, ok := errors.AsType[*interpret.UsageError](err); ok {
		return rest.Refuse(http.StatusBadRequest, "%s", mistake.Message)
	}
	return err
}

// shownMistake makes a user's mistake of a refusal, for package interpret.
func shownMistake(err error) error {
	if no, ok := errors.AsType[*rest.RefusalError](err); ok {
		return &interpret.UsageError{Message: no.Message}
	}
	return err
}

// interpreter shows worksheets to a user.
func (s *Worksheets) interpreter(u store.User) interpret.Interpreter {
	return interpret.Interpreter{
		Log: s.config.Log,
		Read: func(ctx context.Context, uuid, path string, limit int64) (data []byte, err error) {
			data, err = s.config.Files.FirstBytes(ctx, u, uuid, path, limit)
			return data, readError(err)
		},
		SearchBundles: func(ctx context.Context, words []string) (interpret.BundleSearch, error) {
			found, err := s.searchShown(ctx, u, words)
			return found, shownMistake(err)
		},
		SearchWorksheets: func(ctx context.Context, words []string) ([]interpret.WorksheetInfo, error) {
			found, err := s.searchShownWorksheets(ctx, u, words)
			return found, shownMistake(err)
		},
	}
}

// readError returns an error of contents.Files.FirstBytes as package interpret wants it.
func readError(err error) error {
	switch {
	case errors.Is(err, contents.ErrDirectory):
		return interpret.ErrDirectory
	case rest.HasStatus(err, http.StatusNotFound):
		return fmt.Errorf("%w: %w", fs.ErrNotExist, err)
	case rest.HasStatus(err, http.StatusForbidden):
		return fmt.Errorf("%w: %w", fs.ErrPermission, err)
	}
	return err
}

// searchShown finds bundles for a directive of a worksheet.
func (s *Worksheets) searchShown(ctx context.Context, u store.User, words []string) (interpret.BundleSearch, error) {
	ctx, done := context.WithTimeout(ctx, search.Limit)
	defer done()
	q, err := search.Read(ctx, s.config.Access, u, words)
	if err != nil {
		return interpret.BundleSearch{}, err
	}
	uuids, number, err := search.Bundles(ctx, s.config.Access, u, q)
	if err != nil {
		return interpret.BundleSearch{}, err
	}
	if q.Aggregate() {
		text := "0"
		if number != nil {
			text = codalab.PythonStr(number)
		}
		return interpret.BundleSearch{Aggregate: &text}, nil
	}
	shown, err := s.shownBundles(ctx, u, uuids)
	var found interpret.BundleSearch
	for _, uuid := range uuids {
		if b, ok := shown[uuid]; ok {
			found.Bundles = append(found.Bundles, b)
		}
	}
	return found, err
}

// searchShownWorksheets finds worksheets for a directive of a worksheet.
func (s *Worksheets) searchShownWorksheets(ctx context.Context, u store.User, words []string) ([]interpret.WorksheetInfo, error) {
	ctx, done := context.WithTimeout(ctx, search.Limit)
	defer done()
	found, err := search.Worksheets(ctx, s.config.Access, u, words)
	if err != nil {
		return nil, err
	}
	shown, err := s.shownWorksheets(ctx, u, found)
	var sheets []interpret.WorksheetInfo
	for _, sheet := range found {
		sheets = append(sheets, shown[sheet.UUID])
	}
	return sheets, err
}

// readKeywords reads the keywords of a search by the web page.
func readKeywords(w http.ResponseWriter, r *http.Request) ([]string, error) {
	var in struct {
		Keywords []string `json:"keywords"`
	}
	if err := rest.ReadJSON(w, r, &in); err != nil {
		return nil, err
	}
	if in.Keywords == nil {
		return nil, rest.Refuse(http.StatusBadRequest, "Missing `keywords`")
	}
	return in.Keywords, nil
}

// writeResponse answers with what the web page reads as a response.
func writeResponse(w http.ResponseWriter, response any) error {
	return rest.WriteJSON(w, http.StatusOK, map[string]any{"response": response, "meta": map[string]string{"version": codalab.Version}})
}

// interpretSearch tells the web page the bundles that a search finds, or the number that it asks for (codalab/rest/interpret.py:
// interpret_search; codalab/rest/bundles.py: search_bundles).
func (s *Worksheets) interpretSearch(w http.ResponseWriter, r *http.Request, u store.User) error {
	ctx := r.Context()
	words, err := readKeywords(w, r)
	if err != nil {
		return err
	}
	q, err := search.Read(ctx, s.config.Access, u, words)
	if err != nil {
		return err
	}
	uuids, number, err := search.Bundles(ctx, s.config.Access, u, q)
	if err != nil {
		return err
	}
	var result any = append([]string{}, uuids...)
	if q.Aggregate() {
		result = number
	}
	return writeResponse(w, map[string]any{"result": result, "is_aggregate": q.Aggregate()})
}

// interpretWorksheetSearch tells the web page the worksheets that a search finds (codalab/rest/interpret.py:
// interpret_wsearch).
func (s *Worksheets) interpretWorksheetSearch(w http.ResponseWriter, r *http.Request, u store.User) error {
	words, err := readKeywords(w, r)
	if err != nil {
		return err
	}
	found, err := s.searchShownWorksheets(r.Context(), u, words)
	if err != nil {
		return err
	}
	return writeResponse(w, append([]interpret.WorksheetInfo{}, found...))
}

// samples is the number of worksheets that a front page shows after the home page.
const samples = 3

// sampleWorksheets returns worksheets for a front page: the home page, and the last changed of those with certain tags
// (codalab/rest/worksheets.py: get_sample_worksheets, which picks some of them at random).
func (s *Worksheets) sampleWorksheets(w http.ResponseWriter, r *http.Request, u store.User) error {
	type sample struct {
		UUID      string  `json:"uuid"`
		Name      string  `json:"display_name"`
		OwnerName *string `json:"owner_name"`
	}
	list := []sample{}
	for _, words := range [][]string{{"name=home", ".limit=1"}, {"tag=paper,software,data", fmt.Sprintf(".limit=%d", samples)}} {
		found, err := s.searchShownWorksheets(r.Context(), u, words)
		if err != nil {
			return err
		}
		for _, sheet := range found {
			list = append(list, sample{sheet.UUID, cmp.Or(rest.Deref(sheet.Title), sheet.Name), sheet.OwnerName})
		}
	}
	return rest.WriteJSON(w, http.StatusOK, list)
}
