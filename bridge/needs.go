package bridge

import (
	"context"
	"io"
	"os"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/spool"
)

// BundleService is a CodaLab server as workers use it. *client.Client of package
// codalab/client is one.
type BundleService interface {
	CheckIn(ctx context.Context, worker string, in codalab.CheckIn) ([]codalab.Message, error)
	Standing(ctx context.Context, bundle string) (codalab.Standing, error)
	StartBundle(ctx context.Context, worker, bundle string, in codalab.StartBundle) (bool, error)
	Reply(ctx context.Context, worker string, socket int64, r codalab.ReadReply) error
	ReplyData(ctx context.Context, worker string, socket int64, body io.Reader) error
}

// BundleStarter claims several bundles in one request, at most codalab.MostStarts, and returns the answers in their order. The
// error is an errors.ErrUnsupported if the server does not have such requests. *client.Client of package codalab/client is one.
type BundleStarter interface {
	StartBundles(ctx context.Context, worker string, in []codalab.BundleStart) ([]codalab.StartedBundle, error)
}

// OwnerService knows the users of the server. *client.Client of package codalab/client is one. The error's status is
// 404 for a user that the server does not have.
type OwnerService interface {
	UserByID(ctx context.Context, id string) (codalab.User, error)
}

// SecretService gives a worker the values of the secrets of a run that it has claimed. *client.Client of package
// codalab/client is one. The error's status is 404 if the owner has removed one.
type SecretService interface {
	RunSecrets(ctx context.Context, worker, bundle string) (map[string]string, error)
}

// SecretFiles are the files with these values on the shared disk. spool.Disk is one, and documents the methods.
type SecretFiles interface {
	GiveSecrets(bundle, submission string, values map[string]string) error
	GivenSecrets() ([]spool.SecretsFile, error)
	WithdrawSecrets(f spool.SecretsFile) error
}

// Secrets gives bundles their secrets.
type Secrets struct {
	Service SecretService
	Files   SecretFiles
}

// Ledger keeps the rows. *ledger.Ledger is one, and documents the methods.
type Ledger interface {
	LedgerReader
	Take(ctx context.Context) error
	Save(ctx context.Context, rows []plan.Row, shared ...plan.Submission) error
	Delete(ctx context.Context, r plan.Row) error
}

// LedgerReader reads the rows.
type LedgerReader interface {
	Outline(ctx context.Context) (plan.Outline, error)
	Row(ctx context.Context, bundle string) (plan.Row, error)
	Generation(ctx context.Context) (int64, error)
	Submissions(ctx context.Context) ([]plan.Submission, error)
}

// MemberLists has the lists of members that the workers of arrays and packs read. spool.Disk is one, and documents the methods.
type MemberLists interface {
	WriteMembers(m spool.Members) error
	Join(ctx context.Context, list string, n int, s spool.Slot) (joined bool, err error)
	Members(of func(submission string) bool) ([]spool.Members, error)
	MembersFiles() ([]spool.MembersFile, error)
	RemoveMembers(f spool.MembersFile) error
}

// Orders writes the records that workers read. spool.Disk is one, and documents the methods.
type Orders interface {
	Prepare(name spool.AttemptName, s spool.Spec) error
	TellTimeLimit(bundle string, name spool.AttemptName, l spool.TimeLimit) error
	StopAttempt(bundle string, name spool.AttemptName) error
	MemberLists
}

// Spool is the shared disk. spool.Disk is one, and documents the methods.
type Spool interface {
	Orders
	ReadRecords(bundle string, name spool.AttemptName) (spool.Records, error)
	Fence(ctx context.Context, bundle string, name spool.AttemptName, at time.Time) (spool.Started, error)
	TakeRings() ([]spool.Ring, error)
	Release(bundle string) error
}

// Carrier copies the files of bundles that are resumed. spool.Disk is one, and documents the method.
type Carrier interface {
	Carry(ctx context.Context, bundle string, from, to spool.AttemptName, files func(copied int)) error
}

// Gauge measures the shared disk. spool.Disk is one.
type Gauge interface {
	Space() (spool.Space, error)
}

// Stager brings a bundle's image, for nodes of an architecture (in Go's spelling; empty is the
// bridge's own), and its dependencies to the shared disk. It reports its progress in single
// sentences. Calls may be repeated at any time. An error with Transient() bool that is true may
// go away; one with RetryAfter() time.Duration asks for that pause.
//
// Changed says, in sentences for the researcher, which of the data that a bundle uses in place
// has changed since it was staged; empty if none has.
type Stager interface {
	Stage(ctx context.Context, run codalab.RunBundle, reference, architecture string, progress func(string)) (spool.Inputs, error)
	Changed(ctx context.Context, inputs spool.Inputs) string
}

// TogetherCollector is a Collector that may send tiny results of several runs in one request. CollectTogether is Collect for
// them. Unless it returns true, Collect has to collect them.
type TogetherCollector interface {
	CollectTogether(ctx context.Context, worker string, run codalab.RunBundle, runDir string) (stored bool)
}

// Collector collects the results in a run directory. It reports its progress in single sentences, and
// returns the details of a success. Calls may be repeated at any time. Open opens the results for
// reading, also after Collect has moved them. Measure lists the results once, which takes more than
// seconds only if the disk is slow.
type Collector interface {
	Measure(ctx context.Context, run codalab.RunBundle, runDir string, mode spool.ResultsMode) spool.MeasuredResults
	Open(run codalab.RunBundle, runDir string) (*os.Root, error)
	Collect(ctx context.Context, run codalab.RunBundle, runDir string, mode spool.ResultsMode, progress func(string)) (details string, err error)
	// GiveUp sends the end of the output in the place of results that Collect would upload. It returns nil if Collect
	// uploads none, because it leaves them on the shared disk or moves them: then Collect takes as long as a listing.
	GiveUp(ctx context.Context, run codalab.RunBundle, runDir string, mode spool.ResultsMode) (*spool.HeldResults, error)
}
