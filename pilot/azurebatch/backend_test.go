package azurebatch_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/pilot"
	"github.com/cl-slurm/cl-slurm/pilot/azurebatch"
	"github.com/cl-slurm/cl-slurm/pilot/azurebatch/batchtest"
	"github.com/cl-slurm/cl-slurm/pilot/pilottest"
)

func TestStartedTaskHasTheShapeAndNoPassword(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1)
	s.Shape.GPUs, s.Shape.WorkDir, s.Shape.Slots = 1, "/mnt/codalab", 2
	s.SetPool(map[string]any{"vmSize": "Standard_NC6s_v3"})
	p := s.start(t)
	if p.Phase != pilot.Pending || p.Job != p.Name || !s.IsPilot(p.Name) || len(p.Name) > 64 {
		t.Errorf("%+v", p)
	}
	body, state := s.Service.Task(p.Name)
	got, err := json.MarshalIndent(body, "", "  ")
	testenv.Must(t, err)
	if state != "running" || strings.Contains(string(got), "secret\"") || strings.Contains(string(got), s.Key) || strings.Contains(string(got), "docker.sock") || strings.Contains(string(got), "privileged") {
		t.Errorf("%s: %s", state, got)
	}
	container := body["containerSettings"].(map[string]any)
	wantOptions := "--cpus 4 --memory 8000m --user root --gpus 1 --security-opt seccomp=unconfined --security-opt apparmor=unconfined " +
		"--security-opt systempaths=unconfined --device /dev/fuse --device /dev/net/tun --volume /tmp --volume /mnt/codalab:/mnt/codalab"
	if diff := cmp.Diff(wantOptions, container["containerRunOptions"]); diff != "" || container["imageName"] != "lab/cl-worker:1" {
		t.Errorf("%v: %s", container, diff)
	}
	wantLine := "cl-worker --server http://server:2900 --verbose --exit-when-idle --idle-seconds 600 --work-dir work --id host-" + p.Name +
		" --network-prefix cl_worker_" + p.Name + "_network --tag 'gpu nodes' --pass-down-termination --max-memory 8000m"
	if diff := cmp.Diff(wantLine, body["commandLine"]); diff != "" {
		t.Error(diff)
	}
	wantEnv := []any{
		map[string]any{"name": "CL_WORKER_MAX_CPUS", "value": "4"},
		map[string]any{"name": "CODALAB_WORKER_TOKEN", "value": token},
	}
	if diff := cmp.Diff(wantEnv, body["environmentSettings"]); diff != "" {
		t.Error(diff)
	}
	wantConstraints := map[string]any{"maxTaskRetryCount": 0.0, "retentionTime": "PT604800S"}
	if diff := cmp.Diff(wantConstraints, body["constraints"]); diff != "" || body["requiredSlots"] != 2.0 {
		t.Error(body["requiredSlots"], diff)
	}
}

func TestPreviewShowsNoSecret(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1)
	text, err := s.Preview(s.NewName())
	testenv.Must(t, err)
	if strings.Contains(text, s.logs.Signature) || strings.Contains(text, "sig=") || !strings.Contains(text, `/logs?…"`) || !strings.Contains(text, "POST "+s.URL+"/jobs/prod-cpu/tasks?api-version=2025-06-01\n") {
		t.Errorf("%s", text)
	}
	if len(s.Requests()) != 0 {
		t.Errorf("%q", s.Requests())
	}
}

func TestLostAnswerOfAStartIsFoundByItsName(t *testing.T) {
	t.Parallel()
	for _, lost := range []int{1, 4} { // azcore repeats the request three times
		s := newSite(t, 1)
		s.LoseAnswers(lost)
		p := s.start(t)
		if ids := s.IDs(""); len(ids) != 1 || ids[0] != p.Name {
			t.Errorf("%d answers lost: tasks %q, want %s", lost, ids, p.Name)
		}
	}
}

func TestStartThatMayHaveHappenedIsUncertain(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1)
	s.Refuse(8, http.StatusServiceUnavailable, "ServerBusy", "The server is currently unable to receive requests. Please retry your request.")
	_, err := s.Start(t.Context(), s.NewName(), token)
	var doubt pilot.Uncertain
	if !errors.As(err, &doubt) || !doubt.Uncertain() || !transient(err) {
		t.Errorf("%v", err)
	}
}

func transient(err error) bool {
	var e interface{ Transient() bool }
	return errors.As(err, &e) && e.Transient()
}

// TestRefusalsAreOneSentence is the table of what can go wrong at a start.
func TestRefusalsAreOneSentence(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change    func(s *site)
		want      string
		transient bool
	}{
		"unknown job": {
			change: func(s *site) { s.Backend.Job = "prod-gpu" },
			want:   "Azure Batch: JobNotFound: The specified job does not exist; name a job of account lab with --job-id",
		},
		"completed job": {
			change: func(s *site) { s.SetJob("completed") },
			want:   "Azure Batch: JobCompleted: The specified job is in the state completed; make a new job on the same pool, and name it with --job-id",
		},
		"job that is disabled now": {
			change:    func(s *site) { s.SetJob("disabling") },
			want:      "Azure Batch: JobNotActive: The specified job is in the state disabling; enable the job in the portal: it takes no tasks until then",
			transient: true,
		},
		"wrong key": {
			change: func(s *site) { s.Account = "other" },
			want:   "Azure Batch: AuthenticationFailed: Server failed to authenticate the request",
		},
		"key of another account": {
			change: func(s *site) { s.Key = "b3RoZXI=" },
			want:   "is not the same as any computed signature; check the key of account lab and its --service-url; an account may also allow Entra alone",
		},
		"clock behind": {
			change: func(s *site) {
				s.Service.Now = func() time.Time { return time.Now().Add(17 * time.Minute) }
			},
			want: "this machine's clock is 17m0s behind Azure's, and Azure accepts 15 minutes: set the clock",
		},
		"quota": {
			change: func(s *site) {
				s.Refuse(1, http.StatusConflict, "ActiveJobAndScheduleQuotaReached", "Active job and schedule quota for the account has been reached.")
			},
			want:      "ActiveJobAndScheduleQuotaReached: Active job and schedule quota for the account has been reached; the manager waits; ask Azure for a larger quota",
			transient: true,
		},
		"too many requests": {
			change: func(s *site) {
				s.Refuse(1, http.StatusTooManyRequests, "TooManyRequests", "Too many requests.", "Retry-After", "60")
			},
			want:      "TooManyRequests: Too many requests",
			transient: true,
		},
		"account that is disabled": {
			change: func(s *site) {
				s.Refuse(1, http.StatusForbidden, "AccountIsDisabled", "The specified account is disabled.")
			},
			want: "AccountIsDisabled: The specified account is disabled; enable account lab in the portal",
		},
		"no answer in JSON": {
			change: func(s *site) { s.Refuse(1, http.StatusNotFound, "", "") },
			want:   "Azure Batch: 404 Not Found; check --service-url: a Batch account does not answer so",
		},
		"machines without GPUs": {
			change: func(s *site) { s.Shape.GPUs = 2 },
			want:   "the machines of pool cpus have the size standard_d4d_v5, which has no GPU of NVIDIA, and --gpus asks for 2",
		},
		"path with a space": {
			change: func(s *site) { s.Shape.WorkDir = "/mnt/my work" },
			want:   `"/mnt/my work:/mnt/my work" cannot be passed to Azure Batch's containers`,
		},
		"both kinds of quotes": {
			change: func(s *site) { s.Worker.Arguments = []string{"--tag", `it's "x"`} },
			want:   "has both kinds of quotes, which Azure Batch cannot pass",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, 1)
			test.change(s)
			_, err := s.Start(t.Context(), s.NewName(), token)
			if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "\n") || transient(err) != test.transient {
				t.Errorf("%v (transient %v)\nwant %s", err, transient(err), test.want)
			}
			if ids := s.IDs(""); len(ids) != 0 {
				t.Errorf("tasks %q", ids)
			}
		})
	}
}

// The server shows the error to owners of bundles, and writes a new text to each of them.
func TestErrorOfAStartIsTheSameForEachWorker(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1)
	s.SetJob("completed")
	_, first := s.Start(t.Context(), s.NewName(), token)
	_, second := s.Start(t.Context(), s.NewName(), token)
	if first == nil || second == nil || first.Error() != second.Error() {
		t.Errorf("%v, and then %v", first, second)
	}
}

func TestRetryAfterIsHeeded(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1)
	s.Refuse(1, http.StatusTooManyRequests, "TooManyRequests", "Too many requests.", "Retry-After", "1")
	began := time.Now()
	s.start(t)
	if took := time.Since(began); took < time.Second {
		t.Errorf("it was repeated after %s", took)
	}
}

func TestPauseThatTheServiceAsksForHoldsAllRequests(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1)
	var later atomic.Int64
	now := func() time.Time { return time.Now().Add(time.Duration(later.Load())) }
	c, err := azurebatch.NewClient(s.URL, azurebatch.Credential{Account: s.Account, Key: s.Key}, azurebatch.Options{ClientOptions: quick(), Now: now})
	testenv.Must(t, err)
	s.Client = c
	s.Refuse(1, http.StatusServiceUnavailable, "ServerBusy", "The server is currently unable to receive requests. Please retry your request.", "Retry-After", "60")
	for _, change := range []time.Duration{0, 0, 59 * time.Second} {
		later.Store(int64(change))
		if _, err := s.Pilots(t.Context()); err == nil || !transient(err) || !strings.Contains(err.Error(), "list the tasks of job prod-cpu: Azure Batch: ServerBusy: ") {
			t.Errorf("after %s: %v", change, err)
		}
	}
	_, err = s.Start(t.Context(), s.NewName(), "token")
	var doubt pilot.Uncertain
	if !errors.As(err, &doubt) || doubt.Uncertain() {
		t.Errorf("a start that was not sent: %v", err)
	}
	if requests := s.Requests(); len(requests) != 1 {
		t.Errorf("%q", requests)
	}
	later.Store(int64(61 * time.Second))
	s.start(t)
}

// A task's id has 64 characters at most.
func TestLongestNameOfAManagerFits(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1)
	s.Backend = s.open(t, strings.Repeat("m", 20))
	if p := s.start(t); len(p.Name) > 64 || !s.IsPilot(p.Name) {
		t.Errorf("%s", p.Name)
	}
}

func TestWorkersOfServersWithoutTokensReadAFileOfTheNode(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1)
	const want = "write your name and password into a file on each node, in two lines, and name it with --worker-password-file"
	if _, err := s.Start(t.Context(), s.NewName(), ""); err == nil || !strings.Contains(err.Error(), want) || transient(err) {
		t.Errorf("without a file: %v", err)
	}
	s.Shape.PasswordFile = "/etc/codalab/password"
	p, err := s.Start(t.Context(), s.NewName(), "")
	testenv.Must(t, err)
	body, _ := s.Service.Task(p.Name)
	text, err := json.Marshal(body)
	testenv.Must(t, err)
	for _, want := range []string{"--password-file /etc/codalab/password", "--volume /etc/codalab/password:/etc/codalab/password:ro"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%s lacks %s", text, want)
		}
	}
	if strings.Contains(string(text), "CODALAB_") {
		t.Errorf("a secret is in %s", text)
	}
	body, _ = s.Service.Task(s.start(t).Name)
	if text, err := json.Marshal(body); err != nil || strings.Contains(string(text), "/etc/codalab") {
		t.Errorf("a worker with a token has the file: %s, %v", text, err)
	}
}

func TestPilotsAreThisManagersTasksOfAllPages(t *testing.T) {
	t.Parallel()
	s := newSite(t, 3)
	s.PageSize = 2
	other := s.open(t, "codalab_gpu") // its ids begin like ours with the mark codalab
	if _, err := other.Start(t.Context(), other.NewName(), token); err != nil {
		t.Fatal(err)
	}
	for range 7 {
		s.start(t)
	}
	again := s.open(t, "codalab")
	for _, b := range []*azurebatch.Backend{s.Backend, again} {
		list, err := b.Pilots(t.Context())
		if err != nil || len(list) != 7 {
			t.Errorf("%d pilots, %v", len(list), err)
		}
	}
	if list, err := other.Pilots(t.Context()); err != nil || len(list) != 1 {
		t.Errorf("%+v, %v", list, err)
	}
}

func TestEndedPilotsLeaveTheListOfTheServiceAndAreFoundOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1)
	p := s.start(t)
	s.pilots(t)
	s.Print(p.Name, "stderr.txt", "no server\n")
	s.Finish(p.Name, 1)
	if got := s.pilots(t)[p.Name]; got.Phase != pilot.Ended || got.Reason != "exit code 1" || got.Cancelled {
		t.Errorf("%+v", got)
	}
	before := len(s.Requests())
	for range 3 {
		if got := s.pilots(t)[p.Name]; got.Phase != pilot.Ended {
			t.Errorf("%+v", got)
		}
	}
	if requests := s.Requests()[before:]; len(requests) != 3 {
		t.Errorf("three looks took %q", requests)
	}
}

func TestManyEndsTakeOneList(t *testing.T) {
	t.Parallel()
	s := newSite(t, 0)
	for range 30 {
		s.start(t)
	}
	s.pilots(t)
	for _, id := range s.IDs("") {
		s.Fail(id, "ContainerInvalidImage", "The image cannot be pulled")
	}
	before := len(s.Requests())
	for _, p := range s.pilots(t) {
		if p.Phase != pilot.Ended || p.Reason != "ContainerInvalidImage: The image cannot be pulled" {
			t.Errorf("%+v", p)
		}
	}
	if requests := s.Requests()[before:]; len(requests) != 2 {
		t.Errorf("it took %q", requests)
	}
}

func TestRequestsOfAnIdleManagerAreFlat(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 10, 1000} {
		s := newSite(t, n)
		for range n {
			s.start(t)
		}
		s.pilots(t)
		before := len(s.Requests())
		if got := len(s.pilots(t)); got != n {
			t.Errorf("%d pilots, want %d", got, n)
		}
		if requests := s.Requests()[before:]; len(requests) != 1 {
			t.Errorf("a look at %d workers took %q", n, requests)
		}
	}
}

func TestVanishedTaskLeavesThePilots(t *testing.T) {
	t.Parallel()
	s := newSite(t, 2)
	gone, stays := s.start(t), s.start(t)
	s.pilots(t)
	s.Vanish(gone.Name)
	if got := s.pilots(t); len(got) != 1 || got[stays.Name].Phase != pilot.Active {
		t.Errorf("%+v", got)
	}
}

func TestRequeuedTaskIsOnePilot(t *testing.T) {
	t.Parallel()
	s := newSite(t, 3)
	p := s.start(t)
	for want, lose := range map[string]func(string){"": s.Preempt, "Azure Batch has requeued it 1 time": s.Requeue} {
		first := s.pilots(t)[p.Name]
		lose(p.Name)
		got := s.pilots(t)
		if len(got) != 1 || got[p.Name].Phase != pilot.Active || got[p.Name].Node == first.Node || want != "" && got[p.Name].Reason != want {
			t.Errorf("%+v, before %+v", got, first)
		}
	}
}

func TestStopEndsATaskAndMayComeTwice(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1)
	p, waits := s.start(t), s.start(t)
	for range 2 {
		testenv.Must(t, s.Stop(t.Context(), p))
		testenv.Must(t, s.Stop(t.Context(), waits))
	}
	for name, got := range s.pilots(t) {
		if got.Phase != pilot.Ended || !got.Cancelled || !strings.Contains(got.Reason, "TaskEnded: Task Was Ended by User Request") {
			t.Errorf("%s: %+v", name, got)
		}
	}
	s.Vanish(p.Name)
	testenv.Must(t, s.Stop(t.Context(), p))
}

func TestTidyDeletesOldTasks(t *testing.T) {
	t.Parallel()
	s := newSite(t, 3)
	old, late, runs := s.start(t), s.start(t), s.start(t)
	s.Finish(old.Name, 0)
	s.Finish(late.Name, 0)
	s.pilots(t)
	testenv.Must(t, s.Tidy(t.Context(), pilottest.NewToken))
	if ids := s.IDs(""); len(ids) != 3 {
		t.Errorf("tasks %q", ids)
	}
	s.Age(old.Name, 8*24*time.Hour)
	s.Backend = s.open(t, "codalab") // a manager that begins again
	s.pilots(t)
	testenv.Must(t, s.Tidy(t.Context(), pilottest.NewToken))
	testenv.Must(t, s.Tidy(t.Context(), pilottest.NewToken))
	if ids := s.IDs(""); len(ids) != 2 || strings.Contains(strings.Join(ids, " "), old.Name) {
		t.Errorf("tasks %q, want %s and %s", ids, late.Name, runs.Name)
	}
}

// Each word of a command arrives as it is.
func TestCommandLineIsSplitIntoTheSameWords(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1)
	for _, word := range []string{"plain", "", "a b", `"x"`, "it's", "$HOME", "`id`", "a;b", "a\\b", "ü"} {
		s.Worker.Arguments = []string{"--tag", word, "--next"}
		p := s.start(t)
		body, _ := s.Service.Task(p.Name)
		got, err := batchtest.Split(body["commandLine"].(string))
		testenv.Must(t, err)
		if diff := cmp.Diff(append(s.Worker.Command(p.Name), "--max-memory", "8000m"), got); diff != "" {
			t.Errorf("%q: %s", word, diff)
		}
	}
}
