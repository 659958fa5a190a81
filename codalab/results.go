package codalab

// Results of several runs go to the server in one request: POST /workers/ID/results. Its body is a tar stream. The first
// entry, ResultsIndex, is a ResultsList in JSON, and each other one the archive of a run's results, in the order of the
// list and named by ResultsName. CodaLab's own server has no such route.

// ResultsIndex is the name of the first entry.
const ResultsIndex = "results.json"

// ResultsName returns the name of the entry with a run's results, a gzipped tar archive.
func ResultsName(uuid string) string { return uuid + ".tar.gz" }

// Bounds of a request with the results of several runs: their number, as many as the server changes in one transaction, and the
// bytes of the body.
const (
	MostResults      = 50
	MostResultsBytes = 16 << 20
)

// ResultsList lists the runs whose results a request has.
type ResultsList struct {
	Bundles []ResultsOf `json:"bundles"`
}

// ResultsOf describes the results of one run.
type ResultsOf struct {
	UUID string `json:"uuid"`
	// Identity is the Lasting digest of the bundle's identity. The results are for no other bundle of the UUID.
	Identity string `json:"identity"`
}

// ResultsAnswers are the answers to a ResultsList, in its order.
type ResultsAnswers struct {
	Bundles []ResultsAnswer `json:"bundles"`
}

// ResultsAnswer is the answer for the results of one run: a Status of 0 if the bundle has them, and otherwise the status and
// the message of the refusal.
type ResultsAnswer struct {
	UUID    string `json:"uuid"`
	Status  int    `json:"status,omitempty"`
	Message string `json:"message,omitempty"`
}
