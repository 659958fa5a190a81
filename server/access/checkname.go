package access

import (
	"net/http"
	"slices"
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/rest"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// CheckName refuses a name that a bundle cannot have (codalab/lib/spec_util.py: check_name).
func CheckName(name string) error {
	if codalab.IsName(name) {
		return CheckNameSize(name)
	}
	return rest.Refuse(http.StatusBadRequest, "Invalid name '%s'. Name must start with a letter or underscore and can only contain letters, digits, underscores, periods, and dashes.", name)
}

// CheckGroupName refuses a name that a worksheet or group cannot have (codalab/rest/schemas.py:
// validate_name).
func CheckGroupName(name string) error {
	if codalab.IsName(name) {
		return CheckNameSize(name)
	}
	return rest.Refuse(http.StatusBadRequest, `Names must match ^[a-zA-Z_][a-zA-Z0-9_\.\-]*$, was %s`, name)
}

// systemNames are names that people take for the site's own. Only root, and the operator on the command line, give them
// to a user, a group or a worksheet. dashboard is a worksheet of CodaLab's web page (codalab/lib/spec_util.py).
func systemNames() []string {
	return []string{"admin", "administrator", "anonymous", "codalab", "dashboard", "everybody", "nobody", "public", "root", "system"}
}

// CheckSystemName refuses a name that people would take for the site's own, in whatever case.
func CheckSystemName(u store.User, name string) error {
	if !u.Root() && slices.Contains(systemNames(), strings.ToLower(name)) {
		return rest.Refuse(http.StatusBadRequest, "The name %s looks like the site's own, and only root can give it: take another one.", name)
	}
	return nil
}

// maxName and MaxKey bound names and the keys of dependencies, in bytes. Indexes of
// PostgreSQL hold rows of 2.7 kB.
const (
	maxName = 255
	MaxKey  = 1024
)

// MaxLine and MaxParagraph bound texts of worksheets in bytes: titles and tags, and the text of an item. The second one is that of
// CodaLab's own server with MySQL, where the column has the type TEXT (codalab/model/tables.py: worksheet_item).
const (
	MaxLine      = 1024
	MaxParagraph = 1<<16 - 1
)

// CheckTextSize refuses a text with more than most bytes. What names it in the sentence, as "The title of a worksheet".
func CheckTextSize(what, text string, most int) error {
	if len(text) > most {
		return rest.Refuse(http.StatusRequestEntityTooLarge, "%s may have %d bytes, not %d", what, most, len(text))
	}
	return nil
}

// CheckNameSize refuses a name that is too long.
func CheckNameSize(name string) error {
	if len(name) > maxName {
		return rest.Refuse(http.StatusBadRequest, "A name may have %d bytes, not %d", maxName, len(name))
	}
	return nil
}
