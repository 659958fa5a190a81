package sbatch

import (
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// recordedTable reads the recorded limits of a version.
func recordedTable(t *testing.T, version string) LimitTable {
	t.Helper()
	table := LimitTable{User: "researcher"}
	for name, read := range map[string]func(string) error{
		"limits-qos.txt": table.readQOS, "limits-partitions.txt": table.readPartitions,
		"limits-user.txt":     func(out string) error { return table.readUser(out, "clslurm") },
		"limits-accounts.txt": func(out string) error { return table.readAccounts(out, "clslurm") },
	} {
		if err := read(recordedOf(t, version, name)); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	return table
}

// words spells limits for a comparison.
func words(limits []Limit) []string {
	var all []string
	for _, l := range limits {
		name := strings.Join([]string{l.Holder.QOS, l.Holder.Account, l.Holder.User, string(l.Kind), l.TRES}, " ")
		all = append(all, strings.Join(strings.Fields(name), " ")+"="+spell(l))
	}
	return all
}

func spell(l Limit) string {
	if !l.Known {
		return strconv.FormatInt(l.Most, 10)
	}
	return strconv.FormatInt(l.Most, 10) + "(" + strconv.FormatInt(l.Used, 10) + ")"
}

// The hierarchy of limits and their use, as three Slurms print them.
func TestLimitsOfAJobAreThoseOfItsQOSAndOfAllItsAccounts(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"22.05.8", "24.11.5", "26.05.5"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			table := recordedTable(t, version)
			use, err := parseLimitUse(recordedOf(t, version, "limits-use.txt"))
			if err != nil {
				t.Fatal(err)
			}
			for name, c := range map[string]struct {
				account, qos, partition string
				want                    []string
			}{
				// The QOS of the partition hides MaxJobsPU of the job's, and MaxJobs of the association.
				"everything": {"clreclab", "", "clrec", []string{
					"clrecpart researcher MaxJobsPU=3(3)", "clrecpart MaxTRESPJ mem=2097152",
					"clrecjob GrpJobs=9(3)", "clrecjob GrpSubmitJobs=11(3)", "clrecjob GrpWall=9000(0)", "clrecjob GrpTRES node=3(1)",
					"clrecjob GrpTRESMins cpu=50000(0)", "clrecjob GrpTRESRunMins mem=9000000(1500)", "clrecjob researcher MaxSubmitJobsPU=6(3)",
					"clrecjob researcher MaxTRESPU cpu=6(3)", "clrecjob researcher MaxTRESPU mem=10240(300)", "clrecjob clreclab MaxJobsPA=5(3)",
					"clrecjob clreclab MaxSubmitJobsPA=7(3)", "clrecjob clreclab MaxTRESPA gres/gpu=2(0)", "clrecjob MaxWallPJ=1800",
					"clrecjob MaxTRESPJ cpu=4", "clrecjob MaxTRESPJ gres/gpu=1", "clrecjob MaxTRESPN cpu=8", "clrecjob MaxTRESMinsPJ cpu=1000",
					"clreclab researcher GrpTRES cpu=12(3)", "clreclab researcher MaxTRESPN mem=65536",
					"clrectop GrpTRES cpu=100(3)", "clrectop GrpTRES mem=1536000(300)",
				}},
				"associations alone": {"clreclab", "normal", "cpu", []string{
					"clreclab researcher GrpTRES cpu=12(3)", "clreclab researcher MaxJobs=2(3)", "clreclab researcher MaxSubmitJobs=5(3)", "clreclab researcher MaxWallPJ=2880",
					"clreclab researcher MaxTRESPJ cpu=32", "clreclab researcher MaxTRESPN mem=65536", "clreclab GrpJobs=20(3)", "clreclab GrpSubmitJobs=30(3)",
					"clrectop GrpJobs=40(3)", "clrectop GrpTRES cpu=100(3)", "clrectop GrpTRES mem=1536000(300)", "clrectop GrpTRESMins cpu=600000(0)",
				}},
				"the default account":       {"", "limited", "", []string{"limited researcher MaxSubmitJobsPU=2"}}, // whose use was not asked for
				"partitions of several QOS": {"", "", "cpu,clrec", nil},
				"no such account":           {"nosuch", "", "", nil},
			} {
				if d := cmp.Diff(c.want, words(use.Fill(table.Of(c.account, c.qos, c.partition)))); d != "" {
					t.Errorf("%s (-want +got):\n%s", name, d)
				}
			}
		})
	}
}

// A QOS without jobs lists nobody, which is a use of zero.
func TestUserWithoutJobsUsesNothing(t *testing.T) {
	t.Parallel()
	use, err := parseLimitUse(assocMgrTitle + "\nQOS Records\n\nQOS=limited(2)\n    GrpJobs=N(0) GrpJobsAccrue=N(0) GrpSubmitJobs=N(0) GrpWall=N(0.00)\n    Account Limits\n        No Accounts\n    User Limits\n        No Users\n")
	if err != nil {
		t.Fatal(err)
	}
	all := []Limit{
		{Holder: LimitHolder{QOS: "limited", User: "researcher"}, Kind: MaxSubmitJobsPU, Most: 2},
		{Holder: LimitHolder{QOS: "limited"}, Kind: GrpJobs, Most: 5},
		{Holder: LimitHolder{QOS: "limited"}, Kind: MaxWallPJ, Most: 60},
		{Holder: LimitHolder{QOS: "other", User: "researcher"}, Kind: MaxJobsPU, Most: 2},
	}
	want := []string{"limited researcher MaxSubmitJobsPU=2(0)", "limited GrpJobs=5(0)", "limited MaxWallPJ=60", "other researcher MaxJobsPU=2"}
	if d := cmp.Diff(want, words(use.Fill(all))); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if d := cmp.Diff(words(all), words(LimitUse{}.Fill(all))); d != "" {
		t.Errorf("an unknown use (-want +got):\n%s", d)
	}
}

// A damaged or cut answer is an error, and never a lower limit.
func TestDamagedAnswersAboutLimitsAreErrors(t *testing.T) {
	t.Parallel()
	qos, user, accounts, partitions, use := recorded(t, "limits-qos.txt"), recorded(t, "limits-user.txt"), recorded(t, "limits-accounts.txt"), recorded(t, "limits-partitions.txt"), recorded(t, "limits-use.txt")
	var table LimitTable
	for name, err := range map[string]error{
		"cut qos":           table.readQOS(qos[:len(qos)-3]),
		"banner":            table.readQOS("Welcome to the cluster\n" + qos),
		"limit":             table.readQOS(strings.Replace(qos, "|9|", "|nine|", 1)),
		"amount":            table.readQOS(strings.Replace(qos, "cpu=6", "cpu=6X", 1)),
		"resource":          table.readQOS(strings.Replace(qos, "cpu=6", "cpu", 1)),
		"time":              table.readQOS(strings.Replace(qos, "1-06:00:00", "soon", 1)),
		"cut user":          table.readUser(user[:len(user)-9], "clslurm"),
		"user":              table.readUser(accounts, "clslurm"),
		"limit of accounts": table.readAccounts(strings.Replace(accounts, "|40|", "|-|", 1), "clslurm"),
		"partition":         table.readPartitions("slurm_load_partitions: " + partitions),
		"no QoS":            table.readPartitions(strings.ReplaceAll(partitions, "QoS=", "Qualm=")),
	} {
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	for name, out := range map[string]string{"empty": "", "banner": "Welcome\n" + use, "cut": use[:len(use)-1], "number": strings.Replace(use, "GrpJobs=40(3)", "GrpJobs=40(33333333333333333333)", 1)} {
		if _, err := parseLimitUse(out); err == nil {
			t.Errorf("use, %s: no error", name)
		}
	}
	if other := (&LimitTable{User: "researcher"}); other.readUser(user, "another") != nil || len(other.Associations) != 0 {
		t.Errorf("associations of another cluster: %+v", other.Associations)
	}
}

// Each of Slurm's reasons that explainLimit reads is about one kind of limits, and each kind that makes a job wait has a
// reason.
func TestEachReasonOfALimitIsAboutOneKind(t *testing.T) {
	t.Parallel()
	reasons := map[string]bool{}
	for _, version := range []string{"22.05.8", "24.11.5", "26.05.5"} {
		for line := range strings.Lines(recordedOf(t, version, "reasons.txt")) {
			if name, ok := strings.CutPrefix(strings.TrimSpace(line), "reason "); ok {
				reasons[name] = true
			}
		}
	}
	kinds := []LimitKind{
		GrpJobs, GrpSubmitJobs, GrpWall, GrpTRES, GrpTRESMins, GrpTRESRunMins, MaxJobs, MaxSubmitJobs, MaxWallPJ, MaxTRESPJ, MaxTRESPN, MaxTRESMinsPJ,
		MaxJobsPU, MaxSubmitJobsPU, MaxTRESPU, MaxJobsPA, MaxSubmitJobsPA, MaxTRESPA,
	}
	explained := map[LimitKind]bool{}
	for reason := range reasons {
		var of []LimitKind
		for _, kind := range kinds {
			for _, holder := range []LimitHolder{{QOS: "q"}, {Account: "a"}} {
				for _, tres := range []string{"", "cpu", "mem", "gres/gpu", "node", "energy", "license/x", "bb/x", "billing"} {
					if (tres != "") != strings.Contains(string(kind), "TRES") {
						continue
					}
					if (Limit{Holder: holder, Kind: kind, TRES: tres}).Explains(reason) {
						of = append(of, kind)
						explained[kind] = true
					}
				}
			}
		}
		if len(of) > 1 {
			t.Errorf("%s is about %v", reason, of)
		}
		if _, isLimit := explainLimit(reason); isLimit && len(of) == 0 && !strings.Contains(reason, "Min") && !strings.Contains(reason, "Unk") {
			t.Errorf("%s is about no limit", reason)
		}
	}
	for _, kind := range kinds {
		if !explained[kind] {
			t.Errorf("no reason is about %s", kind)
		}
	}
}
