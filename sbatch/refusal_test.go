package sbatch

import (
	"maps"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// verdict is the classification of a failed submission.
type verdict struct {
	Refused, Retry, OfSite bool
	Message                string
}

func never(message string) verdict  { return verdict{Refused: true, Message: message} }
func ofSite(message string) verdict { return verdict{Refused: true, OfSite: true, Message: message} }

func laterOn(message string) verdict   { return verdict{Refused: true, Retry: true, Message: message} }
func undecided(message string) verdict { return verdict{Message: message} }

const (
	noPartition = "Invalid partition name specified"
	noNode      = "Requested node configuration is not available"
	tooLong     = "Pathname of a file, directory or other parameter too long"
)

// verdicts has the verdict of each recorded refusal, by the options of sbatch.
var verdicts = map[string]verdict{
	"--partition=nosuch":      ofSite(noPartition + " (invalid partition specified: nosuch)"),
	"--account=nosuch":        ofSite("Invalid account or account/partition combination specified"),
	"--qos=nosuch":            ofSite("Invalid qos specification"),
	"--wckey=nosuch":          ofSite("Invalid wckey specification"),
	"--reservation=nosuch":    ofSite("Requested reservation is invalid"),
	"--reservation=clrec":     ofSite("Access denied to requested reservation"),
	"--constraint=nofeat":     ofSite("Invalid feature specification"),
	"--nodelist=n9":           ofSite("Invalid node name specified"),
	"--licenses=matlab":       ofSite("Invalid license specification"),
	"--gres=foo:1":            never("Invalid generic resource (gres) specification"),
	"--gres=gpu:1":            never(noNode),
	"--mem=900G":              never(noNode + " (Memory specification can not be satisfied)"),
	"--threads-per-core=5":    never(noNode + " (Socket, core and/or thread specification can not be satisfied)"),
	"--nodes=0":               never("Node count specification invalid"),
	"--array=1-20000":         never("Invalid job array specification"),
	"--nice=-5":               never("Invalid --nice value"),
	"--nice=99999999999":      never("Invalid --nice value, out of range (+/- 2147483645)"),
	"--time=abc":              ofSite("Invalid --time specification"),
	"--mem=abc":               ofSite("Invalid --mem specification"),
	"--signal=B:USRX":         ofSite("Invalid --signal specification"),
	"--begin=bogus":           ofSite("Invalid time specification (pos=0): bogus; Invalid --begin specification"),
	"--nosuchopt":             ofSite(`unrecognized option '--nosuchopt'; Try "sbatch --help" for more information`),
	"--cpus-per-task=abc":     never(`Invalid numeric value "abc" for --cpus-per-task.`),
	"--dependency=afterok:1a": never("Job dependency problem"),
	"< /dev/null":             never("Batch script is empty!"),
	`<<< " "`:                 never("Batch script contains only whitespace!"),
	"< 4.2M":                  never(tooLong),

	"--gres=gpu:9 --partition=gpu":            never(noNode),
	"--gres=gpu:h100:1 --partition=gpu":       never(noNode),
	"--nodelist=n3 --partition=cpu":           never(noNode),
	"--time-min=5:00:00 --time=10":            never("Invalid time-min specification (exceeds job's time or other limits)"),
	"--job-name=$(printf %01500d 0)":          never(tooLong),
	"--partition=clrec-group":                 ofSite("User's group not permitted to use this partition"),
	"--partition=clrec-qos --cpus-per-task=2": never(policy + " (QOSMaxCpuPerJobLimit)"),
	"--partition=clrec-qos --time=10":         never(policy + " (QOSMaxWallDurationPerJobLimit)"),
	`<<< "echo"`: never("This does not look like a batch script.  The first; " +
		"line must start with #! followed by the path to an interpreter.; For instance: #!/bin/sh"),
	`<<< $'#!/bin/sh\r'`: never(`Batch script contains DOS line breaks (\r\n); instead of expected UNIX line breaks (\n).`),

	"--qos=limited # the third":  laterOn(policy + " (QOSMaxSubmitJobPerUserLimit)"),
	"--partition=clrec-drain":    laterOn("Required partition not available (inactive or drain)"),
	"--partition=clrec-inactive": laterOn("Required partition not available (inactive or drain)"),

	"--clusters=nosuch": undecided("No cluster 'nosuch' known by database.; 'nosuch' can't be reached now, or it is an invalid entry " +
		"for --cluster.  Use 'sacctmgr list clusters' to see available clusters."),
	"# no controller": undecided("Unable to contact slurm controller (connect failure)"),
	"# no munge": undecided("Protocol authentication error (If munged is up, restart with --num-threads=10; Munge encode failed: " +
		`Failed to access "/var/tmp/cl-slurm/cluster/run/munge/nosuch": No such file or directory (Did you start munged?); ` +
		"slurm_send_node_msg: auth_g_create: REQUEST_SUBMIT_BATCH_JOB has authentication error)"),
	"# no slurm.conf": undecided("s_p_parse_file: cannot stat file /nonexistent/slurm.conf: No such file or directory, " +
		"retrying in 1sec up to 60sec; ClusterName needs to be specified; Unable to process configuration file"),
}

// newVerdicts has the verdicts of Slurm 24.11 and 26.05 that differ.
func newVerdicts(cluster string) map[string]verdict {
	newer := maps.Clone(verdicts)
	newer["--partition=clrec-group"] = verdict{} // Slurm accepts it, and its job waits
	newer["# no munge"] = undecided("Protocol authentication error (If munged is up, restart with --num-threads=10; Munge encode failed: " +
		`Failed to access "/var/tmp/cl-slurm/` + cluster + `/run/munge/nosuch": No such file or directory (Did you start munged?); ` +
		"slurm_buffers_pack_msg: auth_g_create: REQUEST_SUBMIT_BATCH_JOB has authentication error)")
	return newer
}

func TestRecordedRefusals(t *testing.T) {
	t.Parallel()
	for version, verdicts := range map[string]map[string]verdict{
		"22.05.8": verdicts, "24.11.5": newVerdicts("cluster-trixie"), "26.05.5": newVerdicts("cluster-sid"),
	} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			testRecordedRefusals(t, recordedOf(t, version, "sbatch-refused.txt"), verdicts)
		})
	}
}

func testRecordedRefusals(t *testing.T, records string, verdicts map[string]verdict) {
	t.Helper()
	seen := map[string]bool{}
	for block := range strings.SplitSeq(strings.TrimSpace(records), "\n\n") {
		head, rest, _ := strings.Cut(block, "\n")
		stderr, rc, _ := strings.Cut("\n"+rest, "\nrc=")
		options := strings.TrimPrefix(head, "$ sbatch ")
		exit, err := strconv.Atoi(rc)
		if err != nil {
			t.Fatalf("%s: %v", head, err)
		}
		want, known := verdicts[options]
		if !known {
			t.Errorf("%s: no verdict", head)
		}
		seen[options] = true
		got := verdict{Message: oneLine(stderr)}
		got.Refused, got.Retry, got.OfSite = classify(strings.TrimPrefix(stderr, "\n"), exit)
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", head, d)
		}
	}
	for options := range verdicts {
		if !seen[options] {
			t.Errorf("sbatch %s is not recorded", options)
		}
	}
}

// Messages of slurmctld 24.11 and 26.05 that 22.05 does not have, and that are not recorded with the others
// (Slurm src/common/slurm_errno.c).
func TestRefusalsOfNewerSlurms(t *testing.T) {
	t.Parallel()
	for stderr, want := range map[string]verdict{
		"sbatch: error: CPU count per node can not be satisfied\n" +
			"sbatch: error: Batch job submission failed: Requested node configuration is not available": never(noNode + " (CPU count per node can not be satisfied)"),
		"sbatch: error: Slurm job queue full, sleeping and retrying\n" +
			"sbatch: error: Batch job submission failed: MaxJobCount limit reached": laterOn("MaxJobCount limit reached (Slurm job queue full, sleeping and retrying)"),
		"sbatch: error: Batch job submission failed: Rate limit exceeded, please retry momentarily": laterOn("Rate limit exceeded, please retry momentarily"),
		"sbatch: error: Batch job submission failed: Rate limit exceeded, please retry later":       laterOn("Rate limit exceeded, please retry later"),
		"sbatch: error: Batch job submission failed: Invalid QOS specification, relative QOS can only be used in a single partition per cluster.": ofSite(
			"Invalid QOS specification, relative QOS can only be used in a single partition per cluster."),
		"sbatch: error: Batch job submission failed: Requested topology configuration is not available": never("Requested topology configuration is not available"),
	} {
		got := verdict{Message: oneLine(stderr)}
		got.Refused, got.Retry, got.OfSite = classify(stderr, 1)
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", stderr, d)
		}
	}
}

// A site's wrapper runs sbatch by ssh, whose own exit status is 255. If the connection breaks, the
// submission may have succeeded, whatever plugins of the site have printed before.
func TestBrokenWrapperAfterAPluginsLineIsNoRefusal(t *testing.T) {
	t.Parallel()
	for _, stderr := range []string{
		"sbatch: hello\n",
		"sbatch: hello\nConnection to login1 closed by remote host.\n",
		"sbatch: error: lua: no project is named, using the default\nclient_loop: send disconnect: Broken pipe\n",
		"sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying\n",
		"/opt/slurm/bin/sbatch: option names are checked\n",
		"ssh: connect to host login1 port 22: Connection refused\n",
	} {
		if refused, _, _ := classify(stderr, 255); refused {
			t.Errorf("%q is taken for a refusal", stderr)
		}
	}
	for _, stderr := range []string{
		"sbatch: hello\nsbatch: error: Invalid --mem specification\n",
		"sbatch: error: --uid only permitted by root user\n",
		"sbatch: error: invalid --profile=x option\n",
		"/usr/bin/sbatch: option '--mem' requires an argument\nTry \"sbatch --help\" for more information\n",
		"sbatch: option '--ex' is ambiguous; possibilities: '--exclude' '--exclusive'\nsbatch: error: Try \"sbatch --help\" for more information\n",
	} {
		if refused, retry, _ := classify(stderr, 255); !refused || retry {
			t.Errorf("%q: refused %v, retry %v, want a final refusal", stderr, refused, retry)
		}
	}
}

func TestLimitOfARefusalIsExplained(t *testing.T) {
	t.Parallel()
	for words, want := range map[string]string{
		policy + " (QOSMaxSubmitJobPerUserLimit)":        "the jobs of the bridge's Slurm user that wait or run are as many as the QOS allows",
		policy + " (lua: hello; AssocMaxSubmitJobLimit)": "the jobs of the bridge's Slurm user that wait or run are as many as the account allows",
		policy + " (QOSMaxCpuPerJobLimit)":               "it asks for more processors than the QOS allows one job",
		policy:                                           "",
		"Invalid qos specification":                      "",
		"Max jobs of Grp: Minutes, Maximum":              "",
	} {
		if got, ok := RefusedLimit(words); got.Text != want || ok != (want != "") {
			t.Errorf("%q: %q, %v", words, got.Text, ok)
		}
	}
}
