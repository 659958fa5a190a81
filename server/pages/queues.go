package pages

import (
	"fmt"
	"net/http"
)

// queues shows the load of the queues, and the time for which new runs wait.
func (p *Pages) queues(v *visit) error {
	found, err := v.api.Queues(v.Context())
	if err != nil {
		return fmt.Errorf("show queues: %w", err)
	}
	return p.show(v, http.StatusOK, "queues", "Queues", found)
}
