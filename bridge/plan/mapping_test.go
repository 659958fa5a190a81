package plan_test

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

// ownedBy changes the owner of a row.
func ownedBy(id, name string, groups ...string) func(*plan.Row) {
	return func(r *plan.Row) {
		run := *r.Run
		run.OwnerID, run.OwnerName, run.OwnerGroups = id, name, groups
		r.Run = &run
	}
}

func nice(n int64) *int64 { return &n }

// table is a site's table of owners.
func table() []plan.Mapping {
	return []plan.Mapping{
		{Users: []string{"mallory"}, Refuse: "Ask hpc@example.org for an account"},
		{Users: []string{"bob"}, Queues: []string{"gpu"}, Billing: plan.Billing{Account: "gpu-only"}},
		{Users: []string{"bob", "0xca501"}, Groups: []string{"nlp"}, Billing: plan.Billing{Account: "nlp", QOS: "limited", WCKey: "proj1", Reservation: "course", Nice: nice(0)}},
		{Groups: []string{"vision"}, Billing: plan.Billing{QOS: "high"}},
	}
}

func TestJobIsChargedByTheFirstEntryThatFitsItsOwnerElseByTheQueue(t *testing.T) {
	t.Parallel()
	p := policy()
	q := p.Queues["cpu"]
	q.Account, q.QOS, q.Nice = "lab", "normal", 100
	p.Queues["cpu"], p.Map = q, table()
	for name, c := range map[string]struct {
		owner func(*plan.Row)
		want  string
	}{
		"by name":                        {ownedBy("1", "bob"), "nlp limited proj1 course 7"},
		"by id":                          {ownedBy("0xca501", "carol"), "nlp limited proj1 course 7"},
		"by group":                       {ownedBy("2", "dave", "vision", "nlp"), "nlp limited proj1 course 7"},
		"in part":                        {ownedBy("2", "dave", "vision"), "lab high   107"},
		"not":                            {ownedBy("3", "erin", "other"), "lab normal   107"},
		"without a name":                 {ownedBy("3", ""), "lab normal   107"},
		"a group's name is no user's":    {ownedBy("3", "nlp"), "lab normal   107"},
		"a user's name is no group's":    {ownedBy("3", "erin", "bob"), "lab normal   107"},
		"an id of another is no name":    {ownedBy("bob2", "0xca501x"), "lab normal   107"},
		"another case is another person": {ownedBy("3", "Bob"), "lab normal   107"},
	} {
		r := rowIn(plan.Submitting)
		c.owner(&r)
		r.Run.Metadata = codalab.Metadata{"request_priority": -7}
		req := p.Request(r)
		if got := strings.Join([]string{req.Account, req.QOS, req.WCKey, req.Reservation, strconv.FormatInt(req.Nice, 10)}, " "); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestNiceStaysWithinSlurmsRange(t *testing.T) {
	t.Parallel()
	p := policy()
	q := p.Queues["cpu"]
	q.Nice = 100
	p.Queues["cpu"] = q
	for priority, want := range map[int64]int64{5: 100, 0: 100, -7: 107, -1 << 62: plan.MaxNice, -1 << 63: 100} {
		r := rowIn(plan.Submitting)
		r.Run.Metadata = codalab.Metadata{"request_priority": priority}
		if got := p.Request(r).Nice; got != want {
			t.Errorf("priority %d: nice %d, want %d", priority, got, want)
		}
	}
}

func TestOwnerWhomTheTableRefusesGetsItsSentence(t *testing.T) {
	t.Parallel()
	b := given(t, rowIn(plan.Claiming), ownedBy("9", ""))
	b.policy.Map = table()
	b.decide(plan.News{Claimed: &plan.Claimed{Accepted: true, OwnerName: "mallory"}})
	b.is(plan.Finalizing).verdict(spool.CauseUser, "Ask hpc@example.org for an account.")
	b = given(t, rowIn(plan.Claiming), ownedBy("9", ""))
	b.policy.Map = table()
	b.decide(plan.News{Claimed: &plan.Claimed{Accepted: true, OwnerName: "erin"}}).is(plan.Staging, plan.Stage)
	if b.row.Run.OwnerName != "erin" {
		t.Errorf("%+v", b.row.Run)
	}
}

// A wrong account in the table is the operator's mistake. The bundle waits for its correction as long as for an outage,
// and the others of the queue go on.
func TestI10MistakeInTheTableOfOwnersFailsNoBundle(t *testing.T) {
	t.Parallel()
	for mapped, want := range map[bool]int{true: 20, false: 2} { // a bundle alone is tried a few times
		b := given(t, rowIn(plan.Submitting), ownedBy("1", "bob"))
		if mapped {
			b.policy.Map = table()
		}
		tries := 0
		for ; tries < 20; tries++ {
			b.decide(answered(plan.SbatchAnswer{Refused: true, OfSite: true, Words: "Invalid account or account/partition combination specified"}))
			if b.row.Phase != plan.Staging {
				break
			}
			if pause := b.row.DueAt.Sub(b.now); pause <= 0 || pause > 2*time.Minute {
				t.Fatalf("the next try is in %s", pause)
			}
			if said := "the operator's table gives its owner (account nlp, QOS limited, wckey proj1, reservation course): Invalid account"; mapped && !strings.Contains(b.row.Reason, said) {
				t.Fatalf("%q", b.row.Reason)
			}
			b.now = b.row.DueAt
			b.row = b.policy.NewAttempt(b.now, b.row, b.row.Generation+1)
			b.row.Prepared, b.row.SubmittedAt, b.row.SbatchCount = true, b.now, 1
		}
		if tries != want {
			t.Errorf("mapped %v: %d tries, then %s (%s)", mapped, tries, b.row.Phase, b.row.Reason)
		}
		if !mapped {
			continue
		}
		b.now = b.now.Add(b.policy.OutagePatience)
		b.decide(answered(plan.SbatchAnswer{Refused: true, OfSite: true, Words: "Invalid account or account/partition combination specified"})).is(plan.Finalizing)
	}
}

// hostile are names that a user may choose, or a server may send.
var hostile = []string{
	"", "plain", "with space", `"quoted" 'twice'`, "pipe|PENDING|n1", "line\nfeed\r\n", "tab\tand\x07bell", "tränen-é", "日本語", "🙂", "a,b;c=d",
	"bridge=ffffff generation=999", "x generation=999 identity=evil", "--uid=0", "-", ".", "../..", "name.1-1-ffffff", strings.Repeat("long", 50), strings.Repeat("é", 200), "\x00\xff\xfe",
	"$(reboot)`reboot`", "%j%A%%", "codalab bundle=0x1 bridge=b1b2b3", "(null)", "_._-",
}

var plainText = regexp.MustCompile(`[A-Za-z0-9_.= -]+`)

func TestHostileNamesLeaveTheUniquePartOfNameAndCommentIntact(t *testing.T) {
	t.Parallel()
	p := policy()
	plain := p.NewAttempt(epoch, rowIn(plan.Staging), 42)
	wantStamp, _ := plan.StampOf(stampedJob(p, plain))
	for _, owner := range hostile {
		for _, name := range hostile {
			r := rowIn(plan.Staging)
			ownedBy("1", owner)(&r)
			r.Run.Metadata = codalab.Metadata{"name": name}
			r = p.NewAttempt(epoch, r, 42)
			submitted := string(r.SubmissionName)
			if !strings.HasPrefix(submitted, "cl-") || !strings.HasSuffix(submitted, "-0123456789ab.1-42-b1b2b3") || strings.Count(submitted, ".") != 1 || len(submitted) > 150 {
				t.Fatalf("owner %q, bundle %q: the job's name is %q", owner, name, submitted)
			}
			comment := p.Request(r).Comment
			for _, text := range []string{submitted, comment} {
				if plainText.ReplaceAllString(text, "") != "" {
					t.Fatalf("owner %q, bundle %q: %q", owner, name, text)
				}
			}
			stamp, ok := plan.StampOf(stampedJob(p, r))
			if diff := cmp.Diff(wantStamp, stamp); !ok || diff != "" {
				t.Fatalf("owner %q, bundle %q: the comment %q is read as\n%s", owner, name, comment, diff)
			}
		}
	}
}

func TestJobsNameAndCommentNameTheOwnerAndTheBundle(t *testing.T) {
	t.Parallel()
	p, r := policy(), rowIn(plan.Staging)
	ownedBy("0x1", "bob.s")(&r)
	r.Run.Metadata = codalab.Metadata{"name": "train-v1.2"}
	r = p.NewAttempt(epoch, r, 3)
	if r.SubmissionName != "cl-bob_s-train-v1_2-0123456789ab.1-3-b1b2b3" {
		t.Error(r.SubmissionName)
	}
	if c := p.Request(r).Comment; !strings.HasSuffix(c, " login=bob.s name=train-v1.2") || !strings.Contains(c, " owner=0x1 ") {
		t.Error(c)
	}
}

// The names of older bridges have neither the bundle's name nor, in still older ones, the generation. Rows keep the
// names under which their jobs were submitted.
func TestI2JobOfAnOlderBridgesNameIsAdopted(t *testing.T) {
	t.Parallel()
	for _, old := range []string{"cl-ann-0123456789ab.1-1-b1b2b3", "cl-ann-0123456789ab.1-b1b2b3"} {
		b := given(t, rowIn(plan.Submitting), ownedBy("1", "bob"), func(r *plan.Row) { r.SubmissionName = plan.SubmissionName(old) })
		found := job(sbatch.StatePending)
		found.Name = old
		news := seen(early, found)
		news.Observation.SubmissionName = plan.SubmissionName(old)
		if b.at(early).decide(news).is(plan.Queued); b.row.Job.Name != old {
			t.Errorf("%+v", b.row.Job)
		}
	}
}

// stampedJob is the job that Slurm makes of a row's request.
func stampedJob(p plan.Policy, r plan.Row) sbatch.Job {
	return sbatch.Job{ID: 7, Name: string(r.SubmissionName), Comment: p.Request(r).Comment}
}
