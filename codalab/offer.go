package codalab

// Offer is an offer of a bundle or worksheet to another user: the attributes of a JSON:API object of type "offers", which
// only cl-server has. Relationships lead to its giver, who is the owner, and to its receiver.
type Offer struct {
	UUID string `json:"uuid"`
	// Kind is "bundle" or "worksheet".
	Kind string `json:"kind"`
	Name string `json:"name"`
	// BundleType and DataSize are those of a bundle.
	BundleType string `json:"bundle_type,omitempty"`
	DataSize   int64  `json:"data_size"`
	// Charge and Entries are what the bundle takes of its receiver's quota, in bytes and in entries; 0 for a worksheet.
	Charge  int64 `json:"charge"`
	Entries int64 `json:"entries"`
	// Made and Until are Unix times: of the offer, and of its end.
	Made  int64 `json:"made"`
	Until int64 `json:"until"`
}
