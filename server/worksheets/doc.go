// Package worksheets serves worksheets: their items, their changes, and their form as lines and blocks
// (package interpret).
package worksheets
