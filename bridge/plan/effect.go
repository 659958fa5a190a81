package plan

// Kind is what an effect does.
type Kind string

// The kinds of effects.
const (
	// Claim tells the server that the bundle is taken (start_bundle).
	Claim Kind = "claim"
	// Stage brings the image and the dependencies in.
	Stage Kind = "stage"
	// Prepare writes what the job will read to the shared disk.
	Prepare Kind = "prepare"
	// Submit runs sbatch. The one effect that is not repeated at will.
	Submit Kind = "submit"
	// QueryAccounting asks the accounting database for the row's mark.
	QueryAccounting Kind = "account"
	// ReadRecords reads the current attempt's records.
	ReadRecords Kind = "look"
	// Fence takes the current attempt so that it can never begin.
	Fence Kind = "close"
	// Cancel runs scancel.
	Cancel Kind = "cancel"
	// Collect sends the results to the server.
	Collect Kind = "collect"
	// Confirm asks the server for the bundle's state and worker, and for results and
	// an end that the server may have lost.
	Confirm Kind = "confirm"
	// Release removes the bundle's files from the shared disk.
	Release Kind = "release"
	// Forget removes the row from the ledger.
	Forget Kind = "forget"
)

// Kinds lists the kinds of effects.
func Kinds() []Kind {
	return []Kind{Claim, Stage, Prepare, Submit, QueryAccounting, ReadRecords, Fence, Cancel, Collect, Confirm, Release, Forget}
}

// Effect is one thing to be done in the world after Row was saved. At most
// one effect of a kind runs for an attempt of a bundle.
type Effect struct {
	Kind Kind
	// Row is the row as it was saved when the effect was decided. It is not to
	// be changed.
	Row *Row
}
