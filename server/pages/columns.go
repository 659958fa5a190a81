package pages

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sync/errgroup"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
)

// columnsCookie remembers the values of result files that tables of runs show.
const columnsCookie = "cl_columns"

const (
	mostColumns   = 8
	longestColumn = 200
	// mostOffered is the number of values to choose from.
	mostOffered = 60
)

// valueColumns are the values of result files that a table of runs has, and a form that chooses them.
type valueColumns struct {
	// Chosen are the values that the reader has chosen, Known those to choose from, and Typed those of Chosen that are not in
	// Known.
	Chosen []string
	Known  []choice
	Typed  string
	// Problem is a sentence about what the reader has typed.
	Problem string
}

// choice is an entry of a list of columns.
type choice struct {
	Value, Label string
	Chosen       bool
}

func newValueColumns(v *visit) valueColumns { return valueColumns{Chosen: columns(v.Request)} }

// offer sets the values to choose from. It keeps the typed names that runs do not have yet.
func (c *valueColumns) offer(known []codalab.ValuePath) {
	var others []string
	for _, k := range known {
		if len(c.Known) < mostOffered || slices.Contains(c.Chosen, k.Path) {
			c.Known = append(c.Known, choice{k.Path, k.Path, slices.Contains(c.Chosen, k.Path)})
		}
	}
	for _, path := range c.Chosen {
		if !slices.ContainsFunc(c.Known, func(one choice) bool { return one.Value == path }) {
			others = append(others, path)
		}
	}
	c.Typed = strings.Join(others, " ")
}

// rememberColumns remembers the values that a form chooses. If wrong is not nil, it is a sentence about the names that the reader
// has typed.
func (p *Pages) rememberColumns(v *visit) (typed string, wrong, err error) {
	form, err := readForm(v)
	if err != nil {
		return "", nil, err
	}
	typed = form.Get("columns")
	list, wrong := checkColumns(append(form["column"], splitColumns(typed)...))
	if wrong == nil {
		setColumns(v, p.config.Encrypted(v.Request), list)
	}
	return typed, wrong, nil
}

// splitColumns splits names of values, such as /stats.json:acc, at blanks and commas.
func splitColumns(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(", \n\r\t", r) })
}

// checkColumns checks names of values, and drops those that are there twice. The error is a sentence.
func checkColumns(names []string) ([]string, error) {
	var list []string
	for _, name := range names {
		switch {
		case !strings.HasPrefix(name, "/"):
			return nil, fmt.Errorf("%q is no value of a file: write it as /stats.json:acc", name)
		case len(name) > longestColumn || !utf8.ValidString(name):
			return nil, fmt.Errorf("a name of a value has at most %d bytes", longestColumn)
		case !slices.Contains(list, name):
			list = append(list, name)
		}
	}
	if len(list) > mostColumns {
		return nil, fmt.Errorf("a table shows at most %d values", mostColumns)
	}
	return list, nil
}

// columns returns the values that the reader has chosen.
func columns(r *http.Request) []string {
	c, err := r.Cookie(columnsCookie)
	if err != nil {
		return nil
	}
	text, err := base64.RawURLEncoding.DecodeString(c.Value)
	if err != nil {
		return nil
	}
	list, err := checkColumns(strings.FieldsFunc(string(text), func(r rune) bool { return r == '\n' }))
	if err != nil {
		return nil
	}
	return list
}

// setColumns remembers the values that the reader has chosen, for a year; secure means that requests are encrypted.
func setColumns(v *visit, secure bool, list []string) {
	//nolint:gosec // it is a choice of columns, and no secret
	http.SetCookie(v.ResponseWriter, &http.Cookie{
		Name: columnsCookie, Value: base64.RawURLEncoding.EncodeToString([]byte(strings.Join(list, "\n"))), Path: "/",
		MaxAge: int((365 * 24 * time.Hour).Seconds()), HttpOnly: true, SameSite: http.SameSiteLaxMode, Secure: secure,
	})
}

// values has what the result files of runs have, by uuid and path.
type values map[string]map[string]any

// readValues returns the values that runs have at some paths, and the paths that they have at all. Those of running runs come
// from their files, except for values of last rows.
func readValues(v *visit, runs []client.BundleInfo, paths []string) (values, []codalab.ValuePath, error) {
	have, known, err := readIndex(v, runs, paths)
	if err != nil {
		return nil, nil, err
	}
	return have, known, have.readRunning(v, runs, paths)
}

// readIndex is readValues for runs that have ended: their values are in the server's index.
func readIndex(v *visit, runs []client.BundleInfo, paths []string) (values, []codalab.ValuePath, error) {
	const aQuestion = 5000 // bundles of one request
	have := values{}
	var uuids []string
	for _, b := range runs {
		uuids = append(uuids, b.UUID)
		have[b.UUID] = map[string]any{}
	}
	var known []codalab.ValuePath
	for some := range slices.Chunk(uuids, aQuestion) {
		answer, err := v.api.Values(v.Context(), codalab.ValueQuery{Bundles: some, Paths: paths})
		if err != nil {
			return nil, nil, fmt.Errorf("read values: %w", err)
		}
		if known == nil { // the first are enough to choose from
			known = answer.Paths
		}
		for uuid, texts := range answer.Values {
			for path, text := range texts {
				have[uuid][path] = text
			}
		}
	}
	return have, known, nil
}

// readRunning adds the values of running runs.
func (have values) readRunning(v *visit, runs []client.BundleInfo, paths []string) error {
	const aQuestion = 250 // values of one request, which the server answers one after the other
	var queries []codalab.FileQuery
	for _, b := range runs {
		for _, path := range paths {
			if b.State == codalab.StateRunning && !strings.Contains(path, ":-1:") {
				queries = append(queries, codalab.FileQuery{BundleUUID: b.UUID, Genpath: path})
			}
		}
	}
	questions := slices.Collect(slices.Chunk(queries, aQuestion))
	answers := make([][]any, len(questions))
	g, ctx := errgroup.WithContext(v.Context())
	g.SetLimit(4)
	for i, q := range questions {
		g.Go(func() (err error) {
			answers[i], err = v.api.FileValues(ctx, q)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return fmt.Errorf("read values: %w", err)
	}
	for i, q := range questions {
		for n, one := range q {
			have[one.BundleUUID][one.Genpath] = answers[i][n]
		}
	}
	return nil
}

// of returns a value; nil if there is none.
func (have values) of(uuid, path string) any { return have[uuid][path] }
