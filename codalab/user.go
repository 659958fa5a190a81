package codalab

import "time"

// User is a user as the server shows it: the attributes of a JSON:API object of type "users"
// (codalab/rest/schemas.py: UserSchema).
type User struct {
	// ID is the object's id.
	ID          string  `json:"-"`
	UserName    string  `json:"user_name"`
	FirstName   *string `json:"first_name"`
	LastName    *string `json:"last_name"`
	Affiliation *string `json:"affiliation"`
	URL         *string `json:"url"`
	// DateJoined has the form of Python's "%c".
	DateJoined string  `json:"date_joined"`
	AvatarID   *string `json:"avatar_id"`
	HasAccess  bool    `json:"has_access"`
	// Account is nil if the server does not show it. Only root sees the Account of another user.
	*Account
}

// Account is the part of a User that the user and root see (codalab/rest/schemas.py:
// AuthenticatedUserSchema, AdminUserSchema). Times are in seconds and sizes in bytes.
type Account struct {
	Email            string `json:"email"`
	Notifications    int    `json:"notifications"`
	TimeQuota        int64  `json:"time_quota"`
	ParallelRunQuota int64  `json:"parallel_run_quota"`
	TimeUsed         int64  `json:"time_used"`
	DiskQuota        int64  `json:"disk_quota"`
	DiskUsed         int64  `json:"disk_used"`
	// The following are not in CodaLab's own answers. EntriesUsed counts files, directories and links of contents, and
	// bundles. DiskUsedByRuns and TimeUsedByRuns are the parts of DiskUsed and TimeUsed that belong to running runs;
	// they are set only if users ask for themselves.
	EntriesQuota   int64 `json:"entries_quota,omitempty"`
	EntriesUsed    int64 `json:"entries_used,omitempty"`
	DiskUsedByRuns int64 `json:"disk_used_by_runs,omitempty"`
	TimeUsedByRuns int64 `json:"time_used_by_runs,omitempty"`
	// LastLogin has the form of Python's "%c"; nil means never.
	LastLogin *string `json:"last_login"`
	// IsVerified is set only if root asks for a user by name; IsRootUser and ProtectedMode are set only if
	// users ask for themselves.
	IsVerified    *bool `json:"is_verified,omitempty"`
	IsRootUser    *bool `json:"is_root_user,omitempty"`
	ProtectedMode *bool `json:"protected_mode,omitempty"`
	// RequireSignIn means that public objects are for signed-in users only. It is set only if users ask for themselves;
	// CodaLab's own server does not tell it.
	RequireSignIn bool `json:"require_sign_in,omitempty"`
}

// TokenAnswer is a token that the server gives out: the answer of POST /oauth2/token, and to a
// WorkerTokenRequest.
type TokenAnswer struct {
	Access string `json:"access_token"`
	// Refresh gets the next token; a worker's token has none.
	Refresh string `json:"refresh_token,omitempty"`
	Type    string `json:"token_type"`
	// Seconds is the validity of Access.
	Seconds float64 `json:"expires_in"`
	Scope   string  `json:"scope"`
	// LatestSeconds is the time after which no renewal of a worker token is valid.
	LatestSeconds float64 `json:"latest_expires_in,omitempty"`
	// Device is a token by which the server knows the program at its next sign-in, so that others' failed sign-ins
	// do not delay it. It permits nothing. cl-server sends it to programs that ask for it.
	Device string `json:"device_token,omitempty"`
}

// Session is one sign-in of a program, as cl-server shows it to its user: the attributes of a JSON:API object of type
// "sessions".
type Session struct {
	// ID is the object's id.
	ID string `json:"-"`
	// Program is the program's name for itself, and Client CodaLab's name of its kind.
	Program string `json:"program"`
	Client  string `json:"client"`
	// Address is that of the program at its last use.
	Address string    `json:"address"`
	Made    time.Time `json:"made"`
	Used    time.Time `json:"used"` // some minutes late
	// Current is set for the session of the request.
	Current bool `json:"current"`
}

// PasswordChange is the body of POST /user/password, which changes the user's password.
type PasswordChange struct {
	Old string `json:"old_password"`
	New string `json:"new_password"`
}

// DeviceGrant is the grant type of a program whose user signs in by a browser, on whatever machine (RFC 8628). CodaLab's own
// server does not have it.
const DeviceGrant = "urn:ietf:params:oauth:grant-type:device_code"

// DeviceAnswer is the answer of POST /oauth2/device_authorization: the user opens Page and types UserCode there, while the
// program asks for tokens with DeviceCode.
type DeviceAnswer struct {
	DeviceCode string `json:"device_code"`
	UserCode   string `json:"user_code"`
	Page       string `json:"verification_uri"`
	// Seconds is the time for that, and Interval the least time between two questions, in seconds.
	Seconds  float64 `json:"expires_in"`
	Interval float64 `json:"interval"`
}

// UserEdit is a change of a user: the attributes of PATCH /user and PATCH /users. Nil fields stay as they
// are.
type UserEdit struct {
	UserName      *string `json:"user_name,omitempty"`
	FirstName     *string `json:"first_name,omitempty"`
	LastName      *string `json:"last_name,omitempty"`
	Affiliation   *string `json:"affiliation,omitempty"`
	URL           *string `json:"url,omitempty"`
	AvatarID      *string `json:"avatar_id,omitempty"` // the uuid of a bundle; empty for none
	Notifications *int    `json:"notifications,omitempty"`

	// Only root changes these.
	Email            *string  `json:"email,omitempty"`
	TimeQuota        *float64 `json:"time_quota,omitempty"`
	ParallelRunQuota *float64 `json:"parallel_run_quota,omitempty"`
	DiskQuota        *float64 `json:"disk_quota,omitempty"`
	EntriesQuota     *float64 `json:"entries_quota,omitempty"` // CodaLab's own server has none
	TimeUsed         *float64 `json:"time_used,omitempty"`
	HasAccess        *bool    `json:"has_access,omitempty"`
}
