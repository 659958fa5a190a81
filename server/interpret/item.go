package interpret

import "github.com/cl-slurm/cl-slurm/codalab"

// Item is one item of a worksheet, as it is stored.
type Item struct {
	// ID and SortKey are nil for an item that is not stored.
	ID      *int64
	SortKey *int64
	Type    string
	// Value is the text of markup, or the words of a directive without its percent sign, quoted as for
	// a shell.
	Value string
	// BundleUUID is set for an item that shows a bundle.
	BundleUUID string
	// SubworksheetUUID is set for an item that shows a worksheet.
	SubworksheetUUID string
}

// Bundle is a bundle as the user of a request may see it. A bundle that the user may not read has the
// type "private", the name "<private>" and no state.
type Bundle struct {
	codalab.Bundle
	// OwnerName is empty if the owner is hidden or does not exist.
	OwnerName string
	// HostWorksheet is one worksheet on which the bundle appears and which the user may read; nil if
	// there is none.
	HostWorksheet *codalab.WorksheetName
}

// WorksheetInfo is a worksheet without its items, as the user of a request may see it.
type WorksheetInfo struct {
	codalab.Worksheet
	// OwnerID and OwnerName are nil if the owner is hidden.
	OwnerID   *string `json:"owner_id"`
	OwnerName *string `json:"owner_name,omitempty"`
}

// UsageError is a user's mistake, in one sentence. CodaLab's clients show it unchanged.
type UsageError struct {
	Message string
}

// Error returns the message.
func (e *UsageError) Error() string { return e.Message }
