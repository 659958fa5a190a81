package codalab

// MostNoticed is the largest number of bundles of one notice.
const MostNoticed = 10_000

// Notice is a user's wish for a mail when some bundles have ended: an object of /notices, which only cl-server has.
type Notice struct {
	ID string `json:"-"`
	// Bundles is their number, and To the address of the mail.
	Bundles int    `json:"bundles"`
	To      string `json:"to"`
	// Made is in Unix seconds, and so is Done: the time at which the mail was sent; 0 before that.
	Made int64 `json:"made"`
	Done int64 `json:"done,omitempty"`
	// Problem is the reason for which the last try to send the mail failed.
	Problem string `json:"problem,omitempty"`
}

// NewNotice makes a notice: an object of POST /notices.
type NewNotice struct {
	Bundles []string `json:"bundle_uuids"`
}
