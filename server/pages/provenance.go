package pages

import (
	"fmt"
	"net/http"

	"github.com/cl-slurm/cl-slurm/codalab/provenance"
)

// provenance sends the document about where a bundle came from. Its addresses are those by which the visitor has come.
func (p *Pages) provenance(v *visit) error {
	address := "http://" + v.Host
	if p.config.Encrypted(v.Request) {
		address = "https://" + v.Host
	}
	text, err := provenance.Of(v.Context(), v.api, address, v.PathValue("uuid"))
	if err != nil {
		return fmt.Errorf("show provenance: %w", err)
	}
	v.Header().Set("Content-Type", "application/ld+json")
	v.Header().Set("Cache-Control", "no-store")
	v.Header().Add("Vary", "Cookie")
	v.WriteHeader(http.StatusOK)
	_, _ = v.ResponseWriter.Write(text) // fails if the client has gone
	return nil
}
