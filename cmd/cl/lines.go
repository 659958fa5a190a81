package main

import (
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
)

// textItem returns the item for `cl add text`: a directive if the text begins with a percent sign, else
// markup.
func textItem(text string) client.Item {
	item := codalab.WorksheetItem{Type: codalab.ItemMarkup, Value: text}
	if directive, ok := strings.CutPrefix(text, "%"); ok {
		item = codalab.WorksheetItem{Type: codalab.ItemDirective, Value: strings.TrimSpace(directive)}
	}
	return client.Item{WorksheetItem: item}
}
