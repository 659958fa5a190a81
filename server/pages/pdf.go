package pages

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"path"
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/failures"
	"github.com/cl-slurm/cl-slurm/server/preview"
	"github.com/cl-slurm/cl-slurm/server/rest"
)

// pdfPolicy is the policy of a PDF. Most browsers show none under the directive sandbox, which all other files have. So this one
// takes away everything else: should a browser take the file for a page, it runs, loads and sends nothing. Browsers style the
// page around their viewer, and some by the policy of the file.
const pdfPolicy = "default-src 'none'; style-src 'unsafe-inline'; form-action 'none'; frame-ancestors 'none'; base-uri 'none'"

// pdfAddress is the address at which a browser shows a PDF.
func pdfAddress(uuid, subpath string) string {
	return (&url.URL{Path: "/bundles/" + uuid + "/pdf/" + subpath}).EscapedPath()
}

// pdf sends a PDF for the browser's own viewer. It refuses a file of any other kind, whatever its name.
func (p *Pages) pdf(v *visit) error {
	subpath := strings.Trim(v.PathValue("path"), "/")
	contents, err := v.api.OpenContents(v.Context(), p.target(v, subpath), nil)
	if err != nil {
		return fmt.Errorf("open PDF: %w", err)
	}
	defer contents.Close()
	text := bufio.NewReader(contents)
	begin, err := text.Peek(int(preview.Most(".pdf")))
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("open PDF: %w", err)
	}
	if contents.Type != codalab.TargetFile || !preview.IsPDF(begin) {
		return rest.Refuse(http.StatusUnsupportedMediaType, "This is no PDF.")
	}
	name := path.Base("/" + subpath)
	if subpath == "" {
		name = v.PathValue("uuid") + ".pdf"
	}
	h := v.Header()
	h.Set("Content-Type", "application/pdf")
	h.Set("Content-Disposition", mime.FormatMediaType("inline", map[string]string{"filename": name}))
	h.Set("Content-Security-Policy", pdfPolicy)
	h.Set("Cache-Control", "no-store")
	h.Add("Vary", "Cookie")
	v.WriteHeader(http.StatusOK)
	if v.Method == http.MethodHead {
		return nil
	}
	if _, err := io.Copy(v.ResponseWriter, text); err != nil {
		if v.Context().Err() == nil {
			failures.Log(v.Context(), p.config.Log, "GET "+v.URL.Path, err)
		}
		panic(http.ErrAbortHandler) // so that nobody takes a part for the whole
	}
	return nil
}
