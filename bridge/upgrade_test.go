package bridge_test

import (
	"context"
	"database/sql"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/cl-slurm/cl-slurm/bridge"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/bridge/sharedfiles"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
	"github.com/cl-slurm/cl-slurm/staging/results"
)

// Bundles of the recorded site, by their phases.
const (
	oldClaiming   = "0xa1e32550574342a7be430f0d5f15407b"
	oldStaging    = "0xff9b1084e2d7429eae7f91839de5261e"
	oldSubmitting = "0x988d8335a1944175a1a4f02a03f438e9" // sbatch ran, and had not answered
	oldQueued     = "0xb21b793d27b74ba5ac68367242363c75"
	oldToKill     = "0xac367d6b8d7e46569e0e18cc3af475c1" // queued too
	oldRunning    = "0x6589ccc06fa64b8db693a2f75854ed5f"
	oldKilled     = "0xfe15b2bcdc224f8687c943b23ebe4a42"
	oldCollecting = "0xcb3ae441e80c4cf6a792238c217f4552"
	oldKeeping    = "0x94459e1ca64d4c9294afc78c5f9a4691" // its results had been moved to kept/
	oldFailed     = "0xe13110bb689947fa8c29bb972b32714e"
	oldDone       = "0x9a820138a08244308ea8cbbc67d12e54"
)

// oldSite unpacks the recorded site: its shared directory, its ledger and its jobs.
func oldSite(s *site) {
	s.Helper()
	archive, err := txtar.ParseFile("testdata/1585532.txtar")
	if err != nil {
		s.Fatal(err)
	}
	for _, f := range archive.Files {
		text := strings.ReplaceAll(string(f.Data), `"/shared`, `"`+string(s.shared))
		switch f.Name {
		case "ledger.sql":
			db, err := sql.Open("sqlite", s.path)
			if err == nil {
				_, err = db.ExecContext(context.Background(), text)
				err = errors.Join(err, db.Close())
			}
			if err != nil {
				s.Fatal(err)
			}
		case "squeue.txt":
			for line := range strings.Lines(text) {
				part := strings.Split(strings.TrimSpace(line), "|")
				id, err := strconv.ParseInt(part[0], 10, 64)
				submitted, timeErr := time.Parse("2006-01-02T15:04:05", part[4])
				if err := errors.Join(err, timeErr); err != nil {
					s.Fatal(err)
				}
				j := &fakeJob{end: func() {}, node: "n1", Job: sbatch.Job{ID: sbatch.JobID(id), Name: part[1], State: sbatch.State(part[2]), Comment: part[3], Submitted: submitted}}
				if j.State.Ended() {
					j.ended = time.Now()
				}
				s.slurm.jobs = append(s.slurm.jobs, j)
			}
		default:
			path := filepath.Join(string(s.shared), f.Name)
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
				s.Fatal(err)
			}
		}
	}
}

// oldWorker does what a worker of that version did for a bundle: it takes the attempt, unless it has,
// ends well, and rings.
func oldWorker(s *site, bundle string, job sbatch.JobID) {
	s.Helper()
	dir := filepath.Join(string(s.shared), "spool", bundle, "1")
	const token = "366e816d0fd7ea811d039756b0e4fa98"
	at := time.Now().UTC().Format(time.RFC3339Nano)
	started := `{"format":1,"token":"` + token + `","node":"n1","job":"` + job.String() + `","at":"` + at + `"}`
	exit := `{"format":1,"token":"` + token + `","cause":"succeeded","exit_code":0,"command_started":"` + at + `","command_ended":"` + at + `"}`
	f, err := os.OpenFile(filepath.Join(dir, "started"), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = f.WriteString(started)
		err = errors.Join(err, f.Close())
	} else if errors.Is(err, os.ErrExist) {
		err = nil
	}
	run := s.shared.RunDir(bundle, spool.OldAttemptName(1))
	err = errors.Join(err, os.MkdirAll(run, 0o700), os.WriteFile(filepath.Join(run, "stdout"), []byte("once\n"), 0o600),
		os.WriteFile(filepath.Join(dir, "exit.json"), []byte(exit), 0o600),
		os.WriteFile(filepath.Join(string(s.shared), "spool", "bell", bundle+".1"), nil, 0o600))
	if err != nil {
		s.Fatal(err)
	}
}

// swept is what a sweep without patience would remove.
func swept(s *site) (paths []string) {
	s.Helper()
	sweeper := sharedfiles.Sweeper{Ledger: &s.book.Reader, Scheduler: s.slurm, Disk: spool.Disk{Layout: s.shared}, Grace: -time.Hour, Now: time.Now}
	found, err := sweeper.Find(context.Background())
	if err != nil {
		s.Fatal(err)
	}
	for _, f := range found {
		if !f.Kept {
			paths = append(paths, strings.TrimPrefix(f.Path, string(s.shared)+"/"))
		}
	}
	return paths
}

// uploads notes each upload to the server.
type uploads struct{ *fakeServer }

func (u uploads) UploadContents(_ context.Context, bundle string, _ client.UploadOptions, body io.Reader) error {
	_, err := io.Copy(io.Discard, body)
	u.change(func() { u.uploads[bundle] += "sent " })
	return err
}

// The programs of this version are started on what the version before left, with bundles in each phase.
// Each bundle ends once, as it did there or as its old worker says.
func TestSiteOfTheVersionBeforeIsTakenOver(t *testing.T) {
	t.Parallel()
	atSite(t, func(s *site) {
		time.Sleep(time.Until(time.Date(2026, 11, 23, 9, 30, 10, 0, time.UTC))) // when it ended
		oldSite(s)
		s.alter = func(b *bridge.Bridge) {
			for _, name := range []string{"later", "kept", "local", "lost"} {
				b.Policy.Queues[name] = plan.Queue{Name: name, Tag: name, DefaultTime: time.Hour}
			}
			kept := b.Policy.Queues["kept"]
			kept.Results = spool.ResultsKeep
			b.Policy.Queues["kept"] = kept
			b.Collector = &results.Collector{Contents: uploads{s.server}, Layout: s.shared, Now: time.Now}
		}
		worker := filepath.Join(string(s.shared), "bin", "f49eb3429380", "cl-worker")
		err := errors.Join(os.MkdirAll(filepath.Dir(worker), 0o700), os.WriteFile(worker, nil, 0o700),
			os.Chtimes(worker, time.Now(), time.Now()), os.Chtimes(filepath.Dir(worker), time.Now(), time.Now()))
		if err != nil {
			s.Fatal(err)
		}
		s.start()
		for bundle, r := range s.rows() {
			s.server.change(func() { s.server.identities[bundle] = r.Run.Identity() })
		}
		begun := s.rows()
		if len(begun) != 12 || begun[oldRunning].Begun == nil || begun[oldFailed].Exit == nil || begun[oldSubmitting].SubmissionName == "" {
			s.Fatalf("%d rows: %+v", len(begun), begun)
		}
		// The sbatch of the version before outlived its bridge.
		lost := begun[oldSubmitting]
		late := s.slurm.add(string(lost.SubmissionName), "codalab bundle="+oldSubmitting+" attempt=1 owner=1 bridge="+s.book.ID+" generation="+strconv.FormatInt(lost.Generation, 10))
		s.server.send(codalab.Message{Type: codalab.MessageKill, UUID: oldToKill})
		s.within(time.Minute, "the job is adopted", func() bool { return s.rows()[oldSubmitting].Job.ID == late.ID })
		if found := swept(s); len(found) > 0 {
			s.Errorf("a sweep would remove %v", found)
		}
		for _, bundle := range []string{oldSubmitting, oldQueued, oldRunning} {
			oldWorker(s, bundle, s.rows()[bundle].Job.ID)
		}
		for bundle, want := range map[string]int{
			oldClaiming: 0, oldStaging: 0, oldSubmitting: 0, oldQueued: 0, oldRunning: 0, oldCollecting: 0, oldKeeping: 0, oldKilled: 137, oldFailed: 7,
		} {
			run := s.result(3*time.Minute, bundle)
			if run.ExitCode == nil || *run.ExitCode != want || want == 0 && run.FailureMessage != nil {
				s.Errorf("%s: %+v, want exit code %d", bundle, run, want)
			}
		}
		if run := s.result(time.Minute, oldToKill); run.FailureMessage == nil || *run.FailureMessage != "Kill requested" || run.ExitCode != nil {
			s.Errorf("the bundle that was killed before it began: %+v", run)
		}
		s.within(time.Minute, "all are done", func() bool {
			return !slices.ContainsFunc(slices.Collect(maps.Values(s.rows())), func(r plan.Row) bool { return r.Phase != plan.Done })
		})
		for bundle, r := range s.rows() {
			fresh := bundle == oldClaiming || bundle == oldStaging
			if r.Attempt.Number != 1 || (r.OnDisk == spool.OldAttemptName(1)) == fresh {
				s.Errorf("%s is attempt %d in %q", bundle, r.Attempt.Number, r.OnDisk)
			}
		}
		s.slurm.change(func() { // Slurm forgets the jobs
			s.slurm.jobs = nil
		})
		if found := swept(s); !slices.Equal(found, []string{"bin/f49eb3429380"}) {
			s.Errorf("once all jobs have ended a sweep would remove %v", found)
		}
		s.stop()
		if s.slurm.submits != 2 {
			s.Errorf("%d submissions, want those of the two bundles that had none", s.slurm.submits)
		}
		for bundle, n := range s.server.verdicts {
			if n != 1 || s.server.uploads[bundle] != "sent " && bundle != oldToKill {
				s.Errorf("%s: reported %d times, its results %q", bundle, n, s.server.uploads[bundle])
			}
		}
		if n := len(s.server.verdicts); n != 10 {
			s.Errorf("%d verdicts, want those of the ten bundles that had none: %v", n, s.server.verdicts)
		}
	})
}
