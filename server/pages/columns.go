package pages

import (
	"encoding/base64"
	"fmt"
	"net/http"
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
)

// readColumns reads names of values, such as /stats.json:acc, apart by blanks or commas. The error is a sentence.
func readColumns(text string) ([]string, error) {
	var list []string
	for _, name := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' || r == '\n' || r == '\r' || r == '\t' }) {
		switch {
		case !strings.HasPrefix(name, "/"):
			return nil, fmt.Errorf("%q is no value of a file: write it as /stats.json:acc", name)
		case strings.Contains(name, ":-1:"):
			return nil, fmt.Errorf("%q is in the last line of a file: this table shows values of JSON and YAML files, cl top also such ones", name)
		case len(name) > longestColumn || !utf8.ValidString(name):
			return nil, fmt.Errorf("a name of a value has at most %d bytes", longestColumn)
		}
		list = append(list, name)
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
	list, err := readColumns(string(text))
	if err != nil {
		return nil
	}
	return list
}

// setColumns remembers the values that the reader has chosen, for a year.
func setColumns(v *visit, list []string) {
	//nolint:gosec // it is a choice of columns, and no secret
	http.SetCookie(v.ResponseWriter, &http.Cookie{
		Name: columnsCookie, Value: base64.RawURLEncoding.EncodeToString([]byte(strings.Join(list, " "))), Path: "/",
		MaxAge: int((365 * 24 * time.Hour).Seconds()), HttpOnly: true, SameSite: http.SameSiteLaxMode, Secure: v.TLS != nil,
	})
}

// values has values of files. A page's stream keeps it, so that values of runs that have ended are read once.
type values map[codalab.FileQuery]any

// read reads the values of runs that are not there yet, or may have changed.
func (have values) read(v *visit, runs []client.BundleInfo, genpaths []string) error {
	const aQuestion = 250 // values of one request, which the server answers one after the other
	var missing []codalab.FileQuery
	for _, b := range runs {
		for _, g := range genpaths {
			q := codalab.FileQuery{BundleUUID: b.UUID, Genpath: g}
			if _, known := have[q]; b.State == codalab.StateReady && !known || b.State == codalab.StateFailed && !known || b.State == codalab.StateRunning {
				missing = append(missing, q)
			}
		}
	}
	var questions [][]codalab.FileQuery
	for len(missing) > 0 {
		n := min(aQuestion, len(missing))
		questions, missing = append(questions, missing[:n]), missing[n:]
	}
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
			have[one] = answers[i][n]
		}
	}
	return nil
}

// of returns a value; nil if there is none.
func (have values) of(uuid, genpath string) any {
	return have[codalab.FileQuery{BundleUUID: uuid, Genpath: genpath}]
}
