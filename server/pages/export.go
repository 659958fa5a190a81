package pages

import (
	"fmt"
	"net/http"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/export"
	"github.com/cl-slurm/cl-slurm/server/failures"
)

// mostExported bounds the files of an archive, for each of which the server needs up to 3 kB while it writes the archive.
const mostExported = 20_000

// export sends a worksheet with its bundles as one archive, as far as its reader may read them.
func (p *Pages) export(v *visit) error {
	if !codalab.IsUUID(v.PathValue("uuid")) {
		return &codalab.Error{Status: http.StatusNotFound, Message: "There is no such worksheet."}
	}
	sheet, err := v.api.WorksheetItems(v.Context(), v.PathValue("uuid"))
	if err != nil {
		return fmt.Errorf("export worksheet: %w", err)
	}
	address := "http://" + v.Host
	if p.config.Encrypted(v.Request) {
		address = "https://" + v.Host
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
	if _, err := export.WriteSheet(v.Context(), v.ResponseWriter, v.api, sheet, export.Options{Server: address, MostEntries: mostExported}); err != nil {
		if v.Context().Err() == nil {
			failures.Log(v.Context(), p.config.Log, "GET "+v.URL.Path, err)
		}
		panic(http.ErrAbortHandler) // so that nobody takes a part for the whole
	}
	return nil
}
