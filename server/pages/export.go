package pages

import (
	"errors"
	"fmt"
	"net/http"
	"sync"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/codalab/export"
	"github.com/cl-slurm/cl-slurm/server/failures"
	"github.com/cl-slurm/cl-slurm/server/rest"
)

// mostExported bounds the files of an archive, for each of which the server needs up to 3 kB while it writes the archive.
const mostExported = 20_000

// mostExports bounds the exports at a time of one user, or of one network of those who have not signed in, and mostExportsOfAll
// those of all. That of a large worksheet takes some twenty megabytes while its reader does not read on, and hundreds for a moment at
// its end.
const (
	mostExports      = 2
	mostExportsOfAll = 8
)

// exports counts those under way. It is safe for concurrent use.
type exports struct {
	mu  sync.Mutex
	all int
	of  map[string]int
}

// begin counts one more of a user, or refuses it.
func (e *exports) begin(user string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.of[user] >= mostExports {
		return rest.Refuse(http.StatusTooManyRequests, "You download %d archives already: try again when one of them has ended, or use cl export.", mostExports)
	}
	if e.all >= mostExportsOfAll {
		return rest.Refuse(http.StatusTooManyRequests, "%d archives are being downloaded: try again later, or use cl export.", mostExportsOfAll)
	}
	e.of[user]++
	e.all++
	return nil
}

func (e *exports) end(user string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all--
	if e.of[user]--; e.of[user] == 0 {
		delete(e.of, user)
	}
}

// export sends a worksheet with its bundles as one archive, as far as its reader may read them. A worksheet of which the
// description is over a bound is refused before the first byte.
func (p *Pages) export(v *visit) error {
	uuid := v.PathValue("uuid")
	if v.Method == http.MethodHead {
		sheet, err := v.api.Worksheet(v.Context(), uuid)
		if err == nil {
			v.sendArchive(sheet.Name)
		}
		return err
	}
	user := p.counted(v)
	if err := p.exports.begin(user); err != nil {
		return err
	}
	defer p.exports.end(user)
	sheet, err := v.api.WorksheetItems(v.Context(), uuid)
	if err != nil {
		return tooLarge(fmt.Errorf("export worksheet: %w", err))
	}
	address := "http://" + v.Host
	if p.config.Encrypted(v.Request) {
		address = "https://" + v.Host
	}
	archive, err := export.Prepare(v.api, sheet, export.Options{Server: address, MostEntries: mostExported})
	if err != nil {
		return tooLarge(err)
	}
	v.sendArchive(sheet.Name)
	if _, err := archive.Write(v.Context(), v.ResponseWriter, nil); err != nil {
		if v.Context().Err() == nil {
			failures.Log(v.Context(), p.config.Log, "GET "+v.URL.Path, err)
		}
		panic(http.ErrAbortHandler) // so that nobody takes a part for the whole
	}
	return nil
}

// sendArchive begins an answer with the archive of a worksheet.
func (v *visit) sendArchive(name string) {
	if !codalab.IsName(name) {
		name = "worksheet"
	}
	v.Header().Set("Content-Type", "application/zip")
	v.Header().Set("Content-Disposition", `attachment; filename="`+name+`.zip"`)
	v.Header().Set("Cache-Control", "no-store")
	v.Header().Add("Vary", "Cookie")
	v.WriteHeader(http.StatusOK)
}

// tooLarge makes the error of a worksheet over a bound one that its reader sees.
func tooLarge(err error) error {
	bound := ""
	if over, ok := errors.AsType[*export.TooLargeError](err); ok {
		bound = over.Bound
	} else if errors.Is(err, client.ErrTooLarge) {
		bound = "the list of its items and bundles does not fit into memory"
	}
	if bound == "" {
		return err
	}
	return &codalab.Error{Status: http.StatusRequestEntityTooLarge, Message: "This worksheet is too large for an archive: " + bound +
		". cl export has the same bound. Put its bundles on several smaller worksheets, and export these."}
}
