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

// itemLines returns a worksheet's items as the lines that people edit and the server reads
// (codalab/lib/worksheet_util.py: get_worksheet_lines).
func itemLines(items []client.Item) []string {
	lines := make([]string, 0, len(items))
	for _, item := range items {
		line := item.Value
		switch {
		case item.Type == codalab.ItemBundle && item.Bundle != nil:
			line = codalab.ItemLine(item.Type, "", item.Bundle.Describe(), item.Bundle.UUID)
		case item.Type == codalab.ItemWorksheet && item.Worksheet != nil:
			line = codalab.ItemLine(item.Type, "", item.Worksheet.Name, item.Worksheet.UUID)
		case item.Type == codalab.ItemDirective:
			line = codalab.ItemLine(item.Type, item.Value, "", "")
		}
		lines = append(lines, line)
	}
	return lines
}
