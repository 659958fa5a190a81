package codalabimport

import (
	"database/sql"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/cl-slurm/cl-slurm/server/store"
)

// latin1 are the characters that MySQL's latin1, which is Windows-1252, has for the bytes 0x80 to 0x9f.
const latin1 = "€\u0081‚ƒ„…†‡ˆ‰Š‹Œ\u008dŽ\u008f\u0090‘’“”•–—˜™š›œ\u009džŸ"

// decodeText decodes titles of worksheets and values of their items. CodaLab's own server writes them
// as UTF-8 through a connection of the character set latin1, so that each byte becomes a character
// (codalab/model/mysql_model.py: encode_str). Other texts stay unchanged.
func decodeText(text string) string {
	high := []rune(latin1)
	bytes := make([]byte, 0, len(text))
	for _, r := range text {
		at := rune(slices.Index(high, r)) //nolint:gosec // there are 32
		switch {
		case r < 0x100:
			bytes = append(bytes, byte(r)) //nolint:gosec // it fits
		case at >= 0:
			bytes = append(bytes, byte(0x80+at)) //nolint:gosec // it fits
		default:
			return clean(text)
		}
	}
	if !utf8.Valid(bytes) {
		return clean(text)
	}
	return clean(string(bytes))
}

// clean removes the characters that PostgreSQL rejects in texts.
func clean(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "")
}

func optional(text sql.NullString) *string {
	if !text.Valid {
		return nil
	}
	cleaned := clean(text.String)
	return &cleaned
}

// moment is a time of the database, in UTC.
func moment(t sql.NullTime) store.Time {
	if !t.Valid || t.Time.IsZero() { // MySQL may have 0000-00-00
		return store.Time{}
	}
	return store.Time{Time: t.Time}
}

// frozen is a time as the REST API has it.
func frozen(t sql.NullTime) *string {
	if !t.Valid {
		return nil
	}
	text := t.Time.UTC().Format(time.RFC3339)
	text = strings.Replace(text, "Z", "+00:00", 1)
	return &text
}
