package pages

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/codalab/export"
	"github.com/cl-slurm/cl-slurm/server/failures"
)

// mostExported bounds the files of an archive, for each of which the server needs up to 3 kB while it writes the archive.
const mostExported = 20_000

// export sends a worksheet with its bundles as one archive, as far as its reader may read them. A worksheet over a bound is
// refused before the first byte.
func (p *Pages) export(v *visit) error {
	if !codalab.IsUUID(v.PathValue("uuid")) {
		return &codalab.Error{Status: http.StatusNotFound, Message: "There is no such worksheet."}
	}
	sheet, err := v.api.WorksheetItems(v.Context(), v.PathValue("uuid"))
	if err != nil {
		return tooLarge(fmt.Errorf("export worksheet: %w", err))
	}
	address := "http://" + v.Host
	if p.config.Encrypted(v.Request) {
		address = "https://" + v.Host
	}
	archive, err := export.Prepare(v.Context(), v.api, sheet, export.Options{Server: address, MostEntries: mostExported})
	if err != nil {
		return tooLarge(err)
	}
	name := "worksheet"
	if codalab.IsName(sheet.Name) {
		name = sheet.Name
	}
	v.Header().Set("Content-Type", "application/zip")
	v.Header().Set("Content-Disposition", `attachment; filename="`+name+`.zip"`)
	v.Header().Set("Cache-Control", "no-store")
	v.Header().Add("Vary", "Cookie")
	v.WriteHeader(http.StatusOK)
	if v.Method == http.MethodHead {
		return nil
	}
	if _, err := archive.Write(v.Context(), v.ResponseWriter, nil); err != nil {
		if v.Context().Err() == nil {
			failures.Log(v.Context(), p.config.Log, "GET "+v.URL.Path, err)
		}
		panic(http.ErrAbortHandler) // so that nobody takes a part for the whole
	}
	return nil
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
