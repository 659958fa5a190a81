package ledger

import (
	"encoding/json"
	"fmt"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
)

// format is the format in which Save writes rows. Rows of other formats are refused.
const format = 2

// document is a row as the ledger stores it.
type document struct {
	Version  int64
	Format   int64
	Document string
}

func (d document) row() (plan.Row, error) {
	data, err := packs.unpack(d.Document)
	if err == nil && d.Format != format {
		err = fmt.Errorf("its format is %d, and this version reads %d", d.Format, format)
	}
	var r plan.Row
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	if err != nil {
		return plan.Row{}, fmt.Errorf("read row: %w", err)
	}
	r.Version = d.Version
	return r, nil
}
